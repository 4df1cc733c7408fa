"""What is counted of edited models on some rows, in a form that parts of rows can be pooled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
