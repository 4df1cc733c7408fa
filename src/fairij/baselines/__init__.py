"""Rivals of Fair-IJ with one interface. A new one is one class and one name in `BASELINES`.

``BASELINES[name](constraint=..., ...).fit(model, train, validation)`` gives a `Predictor`. Class
attributes say what each needs and does: ``needs_group_at_test``, ``refits``, ``randomised``,
``constraints``, ``trade_off``.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fairij.baselines.base import ERM, Baseline, Predictor, TradeOff
from fairij.baselines.exponentiated_gradient import ExponentiatedGradient
from fairij.baselines.group_blind import FST, LinearPost
from fairij.baselines.in_processing import Recipe
from fairij.baselines.penalties import HGR, FairMixup, GapReg
from fairij.baselines.thresholds import HPS, RelaxedThresholds
from fairij.data.checks import one_of
from fairij.errors import InvalidInputError

BASELINES: dict[str, type[Baseline]] = {
    method.name: method
    for method in (
        *(ERM, GapReg, FairMixup, HGR, ExponentiatedGradient),
        *(FST, LinearPost, HPS, RelaxedThresholds),
    )
}


def make_baseline(
    name: str,
    *,
    constraint: str | None = None,
    value: float | None = None,
    seed: int | None = None,
    **settings: Any,
) -> Baseline:
    """A baseline by name.

    Parameters
    ----------
    name : str
        One of `BASELINES`.
    constraint : str, optional
        Passed on to baselines that have a constraint.
    value : float, optional
        Value of the parameter that trades accuracy for fairness.
    seed : int, optional
        Passed on to baselines that draw at random.
    **settings : dict
        Other settings of the baseline.

    Examples
    --------
    >>> from fairij.baselines import make_baseline
    >>> make_baseline("linear_post", constraint="equalized_odds", value=0.05).tolerance
    0.05
    """
    one_of("name", name, sorted(BASELINES))
    method: Any = BASELINES[name]
    fields = {field.name for field in dataclasses.fields(method)}
    shared = {"constraint": constraint, "seed": seed}
    settings |= {n: given for n, given in shared.items() if given is not None and n in fields}
    if value is not None:
        if method.trade_off is None:
            raise InvalidInputError(
                f"`value` must be None for {name!r}, which has no trade-off; got {value}."
            )
        settings[method.trade_off.parameter] = value
    return method(**settings)


__all__ = [
    "BASELINES",
    "ERM",
    "FST",
    "HGR",
    "HPS",
    "Baseline",
    "ExponentiatedGradient",
    "FairMixup",
    "GapReg",
    "LinearPost",
    "Predictor",
    "Recipe",
    "RelaxedThresholds",
    "TradeOff",
    "make_baseline",
]
