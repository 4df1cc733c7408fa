"""The methods of the study: which models each can take, what it needs, and how it is run.

Every method gives one record for each budget of accuracy: the setting of the lowest gap on
validation rows that keeps the accuracy there, measured on test rows.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from sklearn.base import clone

from fairij import AccuracyBudget, Budget, FairIJ, adapt
from fairij.baselines import Predictor, Recipe, make_baseline
from fairij.errors import FairIJWarning
from fairij.method.selection import Selection, measures_of
from fairij_studies.frontier.measured import (
    AS_TRAINED,
    BUDGETS,
    MODELS,
    NETWORK,
    Base,
    Case,
    Record,
    as_predictor,
    base_of,
    group_model,
    keep_scores,
    of_predictor,
    within,
)
from fairij_studies.trees.models import LIGHTGBM, LOGISTIC

AUTO, AUTO_BOTH = "Fair-IJ auto", "Fair-IJ auto, training groups"
DEFAULT_RULE = "default"
FURTHER = (0.0025, 0.005, 0.015, 0.03, 0.04, 0.06)  # further budgets, of the same fit
FURTHER_RULES = tuple(f"{budget:g}" for budget in FURTHER)
Sweep = dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Method:
    """One method of the comparison.

    ``run(base, constraint)`` gives its records, without the facts of the case; with a ``sweep``,
    ``run(base, constraint, values)``. ``competes``: it needs no group at prediction.
    ``training_groups``: it needs the groups of training rows.
    """

    run: Callable[..., list[Record]]
    sweep: Sweep | None = None
    models: tuple[str, ...] = MODELS
    competes: bool = True
    training_groups: bool = False
    refits: bool = False
    randomised: bool = False
    cost: dict[str, float] = field(default_factory=dict)  # by model; relative


def edited(base: Base, constraint: str, *, search: str, both: bool = False) -> list[Record]:
    """Fair-IJ as it comes, at each budget; "auto" also by the default rule of choice."""
    rules: dict[str, Selection] = {f"{b:g}": AccuracyBudget(b) for b in BUDGETS}
    if search == "auto":
        rules |= {f"{b:g}": AccuracyBudget(b) for b in FURTHER}
    if search == "auto" and not both:
        rules[DEFAULT_RULE] = Budget()
    records, fair, seconds = list[Record](), None, 0.0
    looks_at_rule = search == "auto" and base.case.model == LIGHTGBM  # two forms are compared
    for name, rule in rules.items():
        again = looks_at_rule and name not in FURTHER_RULES
        if fair is None or again or fair.moves_ is None:
            start = time.process_time()
            fair = _fitted(base, constraint, rule, search=search, both=both)
            seconds = time.process_time() - start
        row = rule.choose(measures_of(fair.candidates_))
        records.append(
            {
                "rule": name,
                "setting": float(fair.candidates_["scale"].iloc[row]),
                "form": _form(fair),
                "seconds": seconds,
                **_both_parts(base, as_predictor(base, _model_of(base, fair, row)), constraint),
            }
        )
    return records


def _fitted(base: Base, constraint: Any, rule: Selection, *, search: Any, both: bool) -> FairIJ:
    train, validation, _ = base.splits
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairIJWarning)
        return FairIJ(
            base.model, constraints=constraint, search=search, selection=rule, verbose=False
        ).fit(
            train.X,
            train.y,
            X_val=validation.X,
            y_val=validation.y,
            sensitive_features_val=validation.s,
            sensitive_features=train.s if both else None,
        )


def _model_of(base: Base, fair: FairIJ, row: int) -> Any:
    if row == fair.chosen_:
        return fair.estimator_
    editable = adapt(base.model)
    return editable.edited(editable.theta + torch.as_tensor(fair.moves_[row]))


def _form(fair: FairIJ) -> str:
    """The search that was run, as it was set."""
    return str(fair.search_)


def _both_parts(base: Base, predictor: Predictor, constraint: str) -> Record:
    return {
        f"{part}_{name}": value
        for part in ("validation", "test")
        for name, value in of_predictor(predictor, getattr(base.splits, part), constraint).items()
    }


def swept(
    base: Base, constraint: str, values: tuple[float, ...], *, name: str, **settings: Any
) -> list[Record]:
    """A baseline at every value; the model as it was trained may be chosen too.

    A setting that is a function gets the base model and the constraint.
    """
    before = as_predictor(base, base.model)
    tried: list[tuple[float | None, Predictor]] = [(None, before)]
    start = time.process_time()
    for value in values:
        given = {k: v(base, constraint) if callable(v) else v for k, v in settings.items()}
        method = make_baseline(
            name, constraint=constraint, value=value, seed=base.case.seed, **given
        )
        tried.append((value, method.fit(base.model, base.splits.train, base.splits.validation)))
    seconds = time.process_time() - start
    seen = [
        of_predictor(predictor, base.splits.validation, constraint) | {"place": place}
        for place, (_, predictor) in enumerate(tried)
    ]
    records = []
    for budget in BUDGETS:
        setting, predictor = tried[within(budget, seen[0], seen)["place"]]
        about = {"rule": f"{budget:g}", "setting": setting, "form": name, "seconds": seconds}
        records.append(about | _both_parts(base, predictor, constraint))
    return records


def as_trained(base: Base, constraint: str) -> list[Record]:
    keep_scores(base)
    about = {"rule": "none", "setting": None, "form": "", "seconds": base.train_seconds}
    return [about | _both_parts(base, as_predictor(base, base.model), constraint)]


def _every(*values: float) -> Sweep:
    return dict.fromkeys(("demographic_parity", "equalized_odds", "equal_opportunity"), values)


def _untrained(base: Base, constraint: str) -> Any:
    return clone(base.model)


def _learner(base: Base, constraint: str) -> Any:
    return group_model(base.case, constraint)


def _recipe(base: Base, constraint: str) -> Recipe:
    return Recipe(epochs=base.case.epochs, checkpoint="objective")


STRENGTHS: Sweep = {  # as in the studies of networks, Coverage's two further ones included
    "demographic_parity": (0.35, 0.75, 1.5, 0.2, 3.0, 6.0),
    "equalized_odds": (1.0, 2.0, 5.0, 0.5, 0.2, 10.0),
    "equal_opportunity": (1.0, 2.0, 5.0, 0.5, 0.2, 10.0),
}
_BOUNDS = (0.0, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.085, 0.1, 0.115, 0.13, 0.15)
TOLERANCES = _every(*_BOUNDS, 0.17, 0.2)

METHODS: dict[str, Method] = {
    AS_TRAINED: Method(as_trained, competes=False, cost={NETWORK: 12}),
    AUTO: Method(partial(edited, search="auto"), cost={NETWORK: 30, LIGHTGBM: 20, LOGISTIC: 4}),
    AUTO_BOTH: Method(
        partial(edited, search="auto", both=True),
        training_groups=True,
        cost={NETWORK: 20, LIGHTGBM: 14, LOGISTIC: 3},
    ),
    "Fair-IJ path": Method(partial(edited, search="path"), cost={NETWORK: 5, LIGHTGBM: 3}),
    "Fair-IJ grid": Method(partial(edited, search="grid"), cost={NETWORK: 6, LIGHTGBM: 6}),
    "LinearPost": Method(
        partial(swept, name="linear_post", recalibrate=True, learner=_learner),
        sweep=TOLERANCES,
        training_groups=True,
        cost=dict.fromkeys(MODELS, 7.0),
    ),
    "GapReg": Method(
        partial(swept, name="gapreg", recipe=_recipe),
        sweep=STRENGTHS,
        models=(NETWORK,),
        training_groups=True,
        refits=True,
        cost={NETWORK: 90},
    ),
    "ExponentiatedGradient": Method(
        partial(
            swept,
            name="exponentiated_gradient",
            max_iter=10,
            estimator=_untrained,
        ),
        sweep=_every(0.02, 0.005, 0.05),
        models=(LIGHTGBM, LOGISTIC),
        training_groups=True,
        refits=True,
        randomised=True,
        cost={LIGHTGBM: 60, LOGISTIC: 20},
    ),
    "RelaxedThresholds": Method(
        partial(swept, name="relaxed_thresholds"),
        sweep=TOLERANCES,
        competes=False,
        randomised=True,
        cost=dict.fromkeys(MODELS, 1.0),
    ),
}
ELSEWHERE = "OxonFair"  # it needs an environment of its own: `python -m benchmarks.oxonfair`
COMPETING = (*(name for name, method in METHODS.items() if method.competes), ELSEWHERE)


def records_of(
    case: Case, method: str, constraint: str, at_most: int | None = None
) -> list[Record]:
    """The work of one unit. ``at_most`` is the largest number of settings of a sweep."""
    base, chosen = base_of(case), METHODS[method]
    values = () if chosen.sweep is None else (chosen.sweep[constraint][:at_most],)
    facts = base.facts(method, constraint) | {
        "competes": chosen.competes,
        "training_groups": chosen.training_groups,
        "refits": chosen.refits,
        "randomised": chosen.randomised,
    }
    return [facts | record for record in chosen.run(base, constraint, *values)]
