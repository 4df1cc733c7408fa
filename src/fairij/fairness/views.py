"""Views: the same rows compared in other tables of groups than one.

Within strata (control features), each stratum is a view: its rows, and the same groups in it. Of
marginals, each sensitive column is a view: all rows, and the groups of that column. Rows are
counted once, by *cells*, the combinations that occur. A view says which of its groups each cell
belongs to, so every table of counts by cells has the tables of all views.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fairij.errors import InvalidInputError
from fairij.fairness.groups import (
    GroupChances,
    Groups,
    MissingGroups,
    View,
    Views,
    as_frame,
    encode_groups,
)

Array = NDArray[np.float64]
Kind = Literal["strata", "marginals"]
OUTSIDE = -1  # the group of a cell that is not in a view
JOIN = " | "  # between the group of a cell and its stratum
MOST_STRATA = 100
SUFFIX: dict[Kind, str] = {"strata": "within strata", "marginals": "of marginals"}


def within_strata(groups: Groups, control_features: Any, rows: int) -> Groups:
    """The cells where groups and strata meet, with a view for each stratum.

    ``control_features`` are one column or several; each combination that occurs is a stratum.
    """
    if groups.views is not None:
        raise InvalidInputError(
            "`control_features` must be given without `marginals`: give one sensitive column, or "
            "the combinations of several."
        )
    try:
        strata = encode_groups(as_frame(control_features, expected_rows=rows))
    except InvalidInputError as error:
        said = str(error).replace("sensitive_features", "control_features")
        raise InvalidInputError(said.partition(", give them their own group")[0]) from None
    if len(strata.names) > MOST_STRATA:
        raise InvalidInputError(
            f"`control_features` must make at most {MOST_STRATA} strata, and these make "
            f"{len(strata.names)}: cut a column of numbers into ranges, or name fewer columns."
        )
    own = len(groups.names)
    raw = strata.codes * own + groups.codes
    known = groups.codes < own
    used = np.unique(raw[known])
    if groups.chances is not None:  # every group may be in every stratum
        used = np.unique([c * own + g for c in np.unique(strata.codes[known]) for g in range(own)])
    codes = np.where(known, np.searchsorted(used, np.where(known, raw, used[0])), len(used))
    of_group, of_layer = used % own, used // own
    chances = None
    if groups.chances is not None:
        chances = np.zeros((len(codes), len(used)))
        for cell, (g, c) in enumerate(zip(of_group, of_layer, strict=True)):
            chances[:, cell] = groups.chances[:, g] * (strata.codes == c)
        codes = np.where(known, chances.argmax(1), len(used)).astype(np.int64)
    names = tuple(
        f"{groups.names[g]}{JOIN}{strata.names[c]}" for g, c in zip(of_group, of_layer, strict=True)
    )
    views = tuple(
        View(name, groups.names, np.where(of_layer == c, of_group, OUTSIDE))
        for c, name in enumerate(strata.names)
    )
    whole = View("all rows", groups.names, of_group)
    return Groups(
        codes.astype(np.int64), names, groups.absent, chances, groups.weight, groups.spare,
        Views("strata", views, whole),
    )  # fmt: skip


def as_marginals(sensitive_features: Any, groups: Groups) -> Groups:
    """The combinations of several sensitive columns, with a view for each column.

    ``groups`` are the same columns, encoded.
    """
    if isinstance(sensitive_features, (Groups, GroupChances)):
        raise InvalidInputError(
            "`marginals` must go with columns of groups, and here are chances of groups: leave it "
            "out."
        )
    frame = as_frame(sensitive_features, missing="ignore")
    if frame.shape[1] < 2:
        raise InvalidInputError(
            "`marginals` must go with two or more sensitive columns, and there is one: leave it "
            "out, or give a table of several columns."
        )
    known = groups.codes < len(groups.names)
    views = []
    for name in frame.columns:
        own = encode_groups(frame.loc[known, [name]])
        of_cell = np.zeros(len(groups.names), dtype=np.int64)
        of_cell[groups.codes[known]] = own.codes
        views.append(View(str(name), own.names, of_cell))
    if len({view.name for view in views}) < len(views):
        raise InvalidInputError(
            "`sensitive_features` must have columns with different names for `marginals`; got "
            f"{[view.name for view in views]}."
        )
    return replace(groups, views=Views("marginals", tuple(views), None))


def cells_of(
    sensitive_features: Any,
    rows: int | None = None,
    *,
    missing: MissingGroups = "error",
    control_features: Any = None,
    marginals: bool = False,
) -> Groups:
    """Groups as they were asked for: combinations, marginals, or within strata."""
    groups = encode_groups(sensitive_features, expected_rows=rows, missing=missing)
    if marginals and control_features is not None:
        raise InvalidInputError(
            "`control_features` must be given without `marginals`: ask for one of the two."
        )
    if marginals and groups.views is None:
        return as_marginals(sensitive_features, groups)
    if control_features is not None:
        return within_strata(groups, control_features, len(groups))
    return groups


@dataclass(frozen=True)
class Seen:
    """A view of some rows: which of them are in it, and their groups there."""

    view: View
    rows: NDArray[np.int64]
    groups: Groups


def seen(groups: Groups) -> Iterator[Seen]:
    """The rows and groups of each view."""
    assert groups.views is not None
    for view in groups.views.each:
        yield _seen(groups, view, keep_all=groups.views.kind == "marginals")


def _seen(groups: Groups, view: View, *, keep_all: bool) -> Seen:
    cells = np.append(view.of_cell, len(view.names))  # the last: rows without a group
    codes = cells[groups.codes]
    inside = np.arange(len(codes)) if keep_all else np.flatnonzero(codes != OUTSIDE)
    if not keep_all and groups.spare:  # rows without a group have no stratum that is known here
        inside = np.flatnonzero((codes != OUTSIDE) & (codes < len(view.names)))
    chances = None if groups.chances is None else groups.chances @ view.matrix
    own = Groups(codes, view.names, (), chances, groups.weight, groups.spare)
    return Seen(view, inside, own.take(inside))


def collapsed(groups: Groups) -> Groups:
    """The groups without strata; of marginals, the combinations."""
    if groups.views is None:
        return groups
    if groups.views.whole is None:
        return replace(groups, views=None)
    return _seen(groups, groups.views.whole, keep_all=True).groups


def metric_name(kind: Kind, metric: str) -> str:
    """The name of a gap over all views, as ``demographic_parity_difference_within_strata``."""
    return f"{metric}_{SUFFIX[kind].replace(' ', '_')}"
