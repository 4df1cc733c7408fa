"""A constraint over several views: the same gap within each stratum, or of each sensitive column.

Within strata the gap is the mean of the strata's gaps, weighted by their rows. Of marginals it is
the sum of the columns' gaps. An edit closes each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.errors import InvalidInputError, Notice, SmallGroupWarning
from fairij.fairness.constraints import (
    Constraint,
    Graded,
    Pair,
    ScoringLoss,
    Uncertainty,
    rows_compared,
)
from fairij.fairness.groups import Groups, View, Views
from fairij.fairness.views import SUFFIX, Seen, seen

Array = NDArray[np.float64]
FEWEST = 2  # rows of a group, below which its stratum says nothing
MOST_TOLD = 6


@dataclass(frozen=True)
class Viewed(Constraint):
    """A constraint whose gap is that of several views together."""

    by_pairs: Constraint = field(kw_only=True)  # parts are gaps of two groups in one view

    def group_gradients(
        self, z: Tensor, y: Tensor, groups: Groups | Pair, loss: ScoringLoss, temperature: float
    ) -> list[Graded]:
        return self.by_pairs.part_gradients(z, y, groups, loss, temperature)


def viewed(
    constraint: Constraint, groups: Groups, y: NDArray[Any], classes: NDArray[Any]
) -> tuple[Constraint, list[Notice]]:
    """The constraint on the views of these groups; itself if there are none.

    Strata in which groups cannot be compared take no part, which is a notice.
    """
    if groups.views is None:
        return constraint, []
    if constraint.takes_outputs:
        raise InvalidInputError(
            f"`constraints` must be gaps of rates for strata and marginals; the function "
            f"{constraint.name!r} is given one number of a group for each row."
        )
    kept, notices = _usable(constraint, groups, y, classes)
    views, kind = [one.view for one in kept], groups.views.kind
    weights = np.ones(len(views))
    if kind == "strata":
        sizes = [_weight(one) for one in kept]
        weights = np.array(sizes) / np.sum(sizes)
    own = {one.name: getattr(constraint, one.name) for one in fields(Constraint)}
    common: dict[str, Any] = own | {
        "name": f"{constraint.name} {SUFFIX[kind]}",
        "surrogate": partial(_sum, constraint.surrogate, views, weights),
        "metric": constraint.metric and partial(_metric, constraint.metric, views, weights, kind),
        "pairwise": False,
        "parts": partial(_parts, constraint, views, weights),
        "signed": constraint.signed and partial(_signed, constraint.signed, views),
        "expected": None,
        "uncertainty": constraint.uncertainty
        and partial(_uncertainty, constraint.uncertainty, views, weights, kind),
        "adds_up": False,
        "named": constraint.metric and partial(_named, constraint.metric, views),
    }
    pairs = partial(_pairs, constraint, views, weights)
    return Viewed(**common, by_pairs=Constraint(**common | {"parts": pairs})), notices


def _weight(one: Seen) -> float:
    weight = one.groups.weight
    return float(len(one.rows) if weight is None else weight.sum())


def _usable(
    constraint: Constraint, groups: Groups, y: NDArray[Any], classes: NDArray[Any]
) -> tuple[list[Seen], list[Notice]]:
    """The views in which every group has rows to compare; an error if there are none."""
    assert groups.views is not None
    kept, left_out = [], []
    for one in seen(groups):
        cells = rows_compared(constraint, y[one.rows], classes, one.groups)
        few = {name: n for name, n in cells.items() if n < FEWEST}
        if not few and len(one.view.names) > 1:
            kept.append(one)
            continue
        left_out.append((one, next(iter(few.items()), (one.view.names[0], len(one.rows)))))
    if groups.views.kind == "marginals" and left_out:
        one, (name, n) = left_out[0]
        raise InvalidInputError(
            f"Every sensitive column must have two groups or more, each with at least {FEWEST} "
            f"validation rows that its rates are taken over; {one.view.name!r} has {n} of {name!r}."
        )
    if not kept:
        raise InvalidInputError(
            "`control_features_val` must have a stratum in which every group has at least "
            f"{FEWEST} validation rows that its rates are taken over; {_listed(left_out)}. Make "
            "fewer strata."
        )
    if not left_out:
        return kept, []
    rows = sum(len(one.rows) for one, _ in left_out)
    text = (
        f"{len(left_out)} of {len(left_out) + len(kept)} strata, with {rows:,} rows, take no part "
        f"in the gap, because too few rows of a group are in them: {_listed(left_out)}."
    )
    return kept, [Notice(text, SmallGroupWarning)]


def _listed(left_out: list[tuple[Seen, tuple[str, int]]]) -> str:
    told = [f"{one.view.name!r} has {n} of {name!r}" for one, (name, n) in left_out[:MOST_TOLD]]
    more = len(left_out) - MOST_TOLD
    return ", ".join(told) + (f" and {more} more like these" if more > 0 else "")


def _rows(view: View, groups: Tensor) -> tuple[Any, Tensor]:
    """Which rows a view has, and their groups in it; ``groups`` are codes or counts by cell."""
    if groups.ndim == 2:
        return slice(None), groups @ torch.as_tensor(view.matrix, device=groups.device).to(groups)
    codes = torch.as_tensor(view.of_cell, device=groups.device)[groups]
    inside = torch.nonzero(codes >= 0)[:, 0]
    return inside, codes[inside]


def _each(
    form: Callable[..., Tensor],
    views: Sequence[View],
    weights: Array,
    scores: Tensor,
    y: Tensor,
    groups: Tensor,
) -> list[Tensor]:
    """What each view gives, times its weight, ``(P,)`` or ``()``."""
    found = []
    for view, weight in zip(views, weights, strict=True):
        rows, codes = _rows(view, groups)
        found.append(float(weight) * form(scores[rows], y[rows], codes).reshape(-1))
    return found


def _sum(form: Callable[..., Tensor], views: Sequence[View], weights: Array, *data: Any) -> Tensor:
    return torch.cat(_each(form, views, weights, *data)).sum()


def _parts(constraint: Constraint, views: Sequence[View], weights: Array, *data: Any) -> Tensor:
    """The gaps that the surrogate sums: one for each view, or each part of it."""
    return torch.cat(_each(constraint.parts or constraint.surrogate, views, weights, *data))


def _pairs(
    constraint: Constraint,
    views: Sequence[View],
    weights: Array,
    scores: Tensor,
    y: Tensor,
    groups: Tensor,
) -> Tensor:
    """`_parts`, where a view of three or more groups has a part for each pair with its largest."""
    form, found = constraint.parts or constraint.surrogate, []
    for view, weight in zip(views, weights, strict=True):
        rows, codes = _rows(view, groups)
        z, truth = scores[rows], y[rows]
        if len(view.names) == 2 or not constraint.pairwise:
            found.append(float(weight) * form(z, truth, codes).reshape(-1))
            continue
        sizes = codes.sum(0) if codes.ndim == 2 else torch.bincount(codes, minlength=1)
        largest = int(sizes.argmax())
        for other in range(len(sizes)):
            if other == largest or not sizes[other] > 0:
                continue
            if codes.ndim == 2:
                part = form(z, truth, codes[:, [largest, other]])
            else:
                pair = torch.nonzero((codes == largest) | (codes == other))[:, 0]
                part = form(z[pair], truth[pair], codes[pair])
            found.append(float(weight) * part.reshape(-1))
    return torch.cat(found)


def _signed(form: Callable[..., Tensor], views: Sequence[View], *data: Any) -> Tensor:
    return torch.cat(_each(form, views, np.ones(len(views)), *data))


def _tables(view: View, data: Sequence[Any]) -> list[Any]:
    """The data of a metric as the view has them: counts by cell, or values with groups."""
    if len(data) == 1:
        return [np.einsum("...ctp,cg->...gtp", data[0], view.matrix)]
    values, y, groups = data
    (one,) = seen(replace(groups, views=Views("strata", (view,), None)))
    return [values[..., one.rows], y[one.rows], one.groups]


def _of_views(metric: Callable[..., Array], views: Sequence[View], data: Sequence[Any]) -> Array:
    """The gap of each view, ``(..., V)``."""
    return np.stack([metric(*_tables(view, data)) for view in views], -1)


def _metric(
    metric: Callable[..., Array], views: Sequence[View], weights: Array, kind: str, *data: Any
) -> Array:
    """Their mean or sum; strata without rows, as in a small part of the rows, are passed over."""
    gaps = _of_views(metric, views, data)
    if kind == "marginals":
        return np.asarray(gaps.sum(-1))
    known = ~np.isnan(gaps)
    total = (weights * known).sum(-1)
    mean = np.divide(
        np.nansum(weights * gaps, -1), total, out=np.full(total.shape, np.nan), where=total > 0
    )
    return np.asarray(mean)


def _named(metric: Callable[..., Array], views: Sequence[View], *data: Any) -> dict[str, Array]:
    gaps = _of_views(metric, views, data)
    return {f"gap[{view.name}]": gaps[..., place] for place, view in enumerate(views)}


def _uncertainty(
    member: Callable[..., Uncertainty],
    views: Sequence[View],
    weights: Array,
    kind: str,
    *data: Any,
    squares: Array | None = None,
) -> Uncertainty:
    """Strata have rows of their own; marginals share them, so their errors add up at most."""
    found = []
    for view in views:
        more = {} if squares is None else {"squares": _tables(view, [squares])[0]}
        found.append(member(*_tables(view, data), **more))
    error = np.nan_to_num(np.stack([one["gap_error"] for one in found], -1)) * weights
    chance = np.min([np.nan_to_num(one["gap_p"], nan=1.0) for one in found], axis=0)
    together = np.sqrt((error**2).sum(-1)) if kind == "strata" else error.sum(-1)
    return {"gap_error": together, "gap_p": np.minimum(chance * len(found), 1)}
