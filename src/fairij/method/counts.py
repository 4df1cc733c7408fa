"""What is counted of edited models on some rows, in a form that parts of rows can be pooled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairij.fairness.rates import performances, rarest_class, rates_by_name
from fairij.fairness.scores import Scored


@dataclass(frozen=True)
class Counts:
    """Confusion counts ``(S, G, C, C)`` of S edits, which had finite outputs, and their scores."""

    table: NDArray[Any]
    finite: NDArray[np.bool_]
    scored: Scored

    @staticmethod
    def together(parts: Sequence[Counts]) -> Counts:
        """The counts of other edits, one after the other."""
        table, finite = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("table", "finite")
        )
        return Counts(table, finite, Scored.together([part.scored for part in parts]))

    @staticmethod
    def pooled(parts: Sequence[Counts], rows: Sequence[NDArray[np.int64]]) -> Counts:
        """The same edits counted over the rows of all parts; ``rows`` finds them in each part."""
        first, *others = zip(parts, rows, strict=True)
        table, finite = (values[first[1]] for values in (first[0].table, first[0].finite))
        for part, index in others:
            table += part.table[index]
            finite &= part.finite[index]
        scored = Scored.pooled([part.scored for part in parts], rows)
        return Counts(table.astype(np.float64), finite, scored)


def columns_of(
    table: NDArray[np.float64],
    names: Sequence[str],
    uncertainty: Callable[..., dict[str, NDArray[np.float64]]] | None,
) -> dict[str, NDArray[np.float64]]:
    """What counts ``(..., G, C, C)`` say of each edit besides its gap, as columns ``(...)``.

    There may be one more group than ``names``, of rows whose group is not known.
    """
    known = table[..., : len(names), :, :]
    unknown = np.full(table.shape[:-3], np.nan)
    sure = {"gap_error": unknown, "gap_p": unknown}
    if uncertainty is not None:
        sure = uncertainty(known)
    by_label = performances(table) | {"rarest_class": rarest_class(table)}
    return sure | by_label | by_group(rates_by_name(known), names)


def by_group(
    values: dict[str, NDArray[np.float64]], names: Sequence[str]
) -> dict[str, NDArray[np.float64]]:
    """One column for each measure and group, of values ``(..., G)``."""
    return {
        f"{measure}[{name}]": of_groups[..., code]
        for measure, of_groups in values.items()
        for code, name in enumerate(names)
    }
