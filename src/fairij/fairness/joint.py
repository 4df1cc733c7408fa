"""Several constraints at once: gaps between groups, which are added, and gaps on other rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.errors import InvalidInputError
from fairij.fairness.constraints import Constraint, Surrogate, Uncertainty, get_constraint
from fairij.fairness.counterfactual import Counterfactual
from fairij.fairness.rates import ConstraintName

AND = " and "
Asked = ConstraintName | Constraint | Surrogate | Counterfactual


def constraint_of(asked: Any) -> Constraint:
    """What ``FairIJ(constraints=...)`` asks for: one constraint, or several of a list."""
    if isinstance(asked, Counterfactual):
        asked = [asked]
    if not isinstance(asked, (list, tuple)):
        return get_constraint(asked)
    elsewhere = tuple(one for one in asked if isinstance(one, Counterfactual))
    own = [get_constraint(one) for one in asked if not isinstance(one, Counterfactual)]
    if not own:
        raise InvalidInputError(
            "`constraints` must have a gap between groups, as in "
            f"['demographic_parity', Counterfactual(...)]; got {list(asked)!r}."
        )
    names = [*(one.name for one in own), *(one.name for one in elsewhere)]
    if len(set(names)) < len(names):
        raise InvalidInputError(f"`constraints` must have different names, got {names}.")
    return replace(jointly(own), name=AND.join(names), elsewhere=elsewhere)


def jointly(members: Sequence[Constraint]) -> Constraint:
    """One constraint whose gap is the sum of these, and whose parts are closed together."""
    if len(members) == 1:
        return members[0]
    alone = [one.name for one in members if one.metric is None]
    if alone:
        raise InvalidInputError(
            "`constraints` must be gaps of rates where there are several of them, but "
            f"{alone[0]!r} is none: give it alone, or choose from `fairij.CONSTRAINTS`."
        )
    kinds = {one.is_classification for one in members}
    if len(kinds) > 1:
        raise InvalidInputError(
            "`constraints` must be all for classification or all for regression; got "
            f"{[one.name for one in members]}."
        )

    def in_turn(form: str) -> Callable[..., Tensor] | None:
        forms = [getattr(one, form) for one in members]
        return partial(_together, forms) if all(forms) else None

    return Constraint(
        AND.join(one.name for one in members),
        partial(_sum_of_surrogates, [one.surrogate for one in members]),
        partial(_sum_of_metrics, [one.metric for one in members if one.metric is not None]),
        kinds.pop(),
        rates=tuple(dict.fromkeys(rate for one in members for rate in one.rates)),
        pairwise=all(one.pairwise for one in members),
        parts=partial(_together, [one.parts or one.surrogate for one in members]),
        signed=in_turn("signed"),
        expected=in_turn("expected"),
        uncertainty=partial(_uncertainty, [one.uncertainty for one in members]),
        is_zero_if_equal=all(one.is_zero_if_equal for one in members),
        is_ratio=all(one.is_ratio for one in members),
    )


def _together(forms: Sequence[Callable[..., Tensor]], *data: Any) -> Tensor:
    return torch.cat([form(*data).reshape(-1) for form in forms])


def _sum_of_surrogates(surrogates: Sequence[Callable[..., Tensor]], *data: Any) -> Tensor:
    return torch.stack([surrogate(*data) for surrogate in surrogates]).sum()


def _sum_of_metrics(
    metrics: Sequence[Callable[..., NDArray[np.float64]]], *data: Any
) -> NDArray[np.float64]:
    return np.sum([metric(*data) for metric in metrics], axis=0)


def _uncertainty(members: Sequence[Any], *data: Any, **more: Any) -> Uncertainty:
    """Errors add up at most; the clearest of the gaps tells whether there is one."""
    found = [member(*data, **more) for member in members]
    clearest = np.min([one["gap_p"] for one in found], axis=0)
    return {
        "gap_error": np.sum([one["gap_error"] for one in found], axis=0),
        "gap_p": np.minimum(clearest * len(found), 1),
    }
