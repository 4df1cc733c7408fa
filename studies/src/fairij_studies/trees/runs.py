"""The work of each unit of the study of trees: one base model, one method, all constraints."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from sklearn.base import clone

from fairij import AccuracyBudget, FairIJ, LowestGap, Path, TargetGap, adapt
from fairij.baselines import ERM, Predictor, make_baseline
from fairij.datasets import Splits
from fairij.errors import FairIJWarning
from fairij.method.selection import Selection, measures_of
from fairij_studies.tabular.trial import CONSTRAINTS, PARTS, first_rows, measures
from fairij_studies.trees.data import Places, load_splits, source, tuning_splits
from fairij_studies.trees.expected import expected_rows
from fairij_studies.trees.models import make_model

Record = dict[str, Any]
BASE, EXPECTED = "ERM", "Fair-IJ expected"
# Settings of each form, by constraint. Rates given the label depend on fewer rows. More damping
# keeps the edit from fitting single rows.
FORMS: dict[str, dict[str, dict[str, Any]]] = {
    "Fair-IJ": {
        "demographic_parity": {"damping": (1e-2, 3e-2)},
        "equalized_odds": {"damping": (1e-1, 3e-1)},
        "equal_opportunity": {"damping": (3e-2, 1e-1)},
    },
    "Fair-IJ reweight": {
        "demographic_parity": {"search": "reweight", "damping": (1e-2, 3e-2)},
        "equalized_odds": {"search": "reweight", "damping": (1e-1, 3e-1)},
        "equal_opportunity": {"search": "reweight", "damping": (3e-2, 1e-1)},
    },
    "Fair-IJ path": {
        "demographic_parity": {"search": "path", "damping": 3e-2},
        "equalized_odds": {"search": "path", "damping": 1e-1},
        "equal_opportunity": {"search": "path", "damping": 2e-1, "temperature": 3.0},
    },
    "Fair-IJ both gaps": {  # a path that closes both gaps together
        "equalized_odds": {
            "search": "path",
            "constraints": "equalized_odds_balanced",
            "damping": 2e-2,
        },
    },
    EXPECTED: {  # labels and groups of validation rows by their probabilities
        "demographic_parity": {"search": "reweight", "damping": (1e-2, 3e-2)},
        "equalized_odds": {"search": "reweight", "damping": (1e-1, 3e-1)},
        "equal_opportunity": {"search": "reweight", "damping": (3e-2, 1e-1)},
    },
    "Fair-IJ cheapest first": {  # a path that may close one of several gaps before the others
        "equalized_odds": {
            "search": Path(cheapest_first=True),
            "constraints": "equalized_odds_balanced",
            "damping": (5e-2, 1e-1),
            "temperature": 2.0,
        },
    },
}
BUDGETS = (0.002, 0.003, 0.004, 0.006, 0.01)  # of accuracy on validation rows
SLACK = 0.005
TARGETS = {  # of the validation gap; the headline first
    "demographic_parity": (0.010, 0.020, 0.050, 0.100),
    "equalized_odds": (0.055, 0.040, 0.070, 0.100),
    "equal_opportunity": (0.010, 0.020, 0.030, 0.050),
}
RIVALS: dict[str, tuple[str, tuple[float, ...], dict[str, Any]]] = {
    "LinearPost": ("linear_post", (0.1, 0.05, 0.02, 0.01, 0.001), {}),
    "RelaxedThresholds": ("relaxed_thresholds", (0.1, 0.05, 0.02, 0.01, 0.0), {}),
    "ExponentiatedGradient": ("exponentiated_gradient", (0.02, 0.005), {"max_iter": 5}),
}


@dataclass(frozen=True)
class Case:
    """One base model: the table, the model, whether it sees the group, and the seed."""

    title: str
    model: str
    group_is_feature: bool
    seed: int
    places: Places
    rows: int | None = None  # largest number of rows in each part; None for all
    tuning: bool = False  # do not use test rows: training rows replace them


@dataclass(frozen=True)
class Fitted:
    """A case with its splits and its model, trained."""

    case: Case
    splits: Splits
    model: Any
    train_seconds: float

    def record(self, method: str, predictor: Predictor, **said: Any) -> Record:
        """Return one record with all measures on validation and test rows."""
        train, validation, test = self.splits
        measured = {
            f"{part}_{name}": value
            for part in PARTS
            for name, value in measures(predictor, getattr(self.splits, part)).items()
        }
        return {
            "data": self.case.title,
            "data_source": source(self.case.title, self.case.places, self.case.group_is_feature),
            "n_train": len(train),
            "n_validation": len(validation),
            "n_test": len(test),
            "sensitive": self.splits.sensitive,
            "group_is_feature": self.case.group_is_feature,
            "model": self.case.model,
            "method": method,
            "train_seconds": self.train_seconds,
            **said,
            **measured,
        }

    def as_predictor(self, model: Any) -> Predictor:
        return ERM().fit(model, self.splits.train, self.splits.validation)


@lru_cache(maxsize=2)  # the units of a case run one after another
def fitted(case: Case) -> Fitted:
    splits = load_splits(case.title, case.places, case.group_is_feature, case.seed)
    if case.tuning:
        splits = tuning_splits(splits)
    if case.rows is not None:
        train, validation, test = (first_rows(part, case.rows) for part in splits)
        splits = replace(splits, train=train, validation=validation, test=test)
    model = make_model(case.model, case.title)
    start = time.perf_counter()
    model.fit(splits.train.X, splits.train.y)
    return Fitted(case, splits, model, time.perf_counter() - start)


def base_records(case: Case) -> list[Record]:
    base = fitted(case)
    nature = {"needs_group": False, "refits": False, "randomised": False}
    said = {"constraint": None, "parameter": None, "value": None, "seconds": base.train_seconds}
    return [base.record(BASE, base.as_predictor(base.model), **said, **nature)]


def edit_records(
    case: Case, form: str, budgets: Sequence[float], targets: int | None = None
) -> list[Record]:
    """Run Fair-IJ at every accuracy budget, at each target, and near the lowest gap."""
    base, records = fitted(case), []
    seen = _expected(base) if form == EXPECTED else base
    for constraint in FORMS[form]:
        rules: list[tuple[str, float, Selection]] = [
            *(("accuracy budget", budget, AccuracyBudget(budget)) for budget in budgets),
            *(("target gap", gap, TargetGap(gap)) for gap in TARGETS[constraint][:targets]),
            ("slack", SLACK, LowestGap(slack=SLACK)),
        ]
        start = time.perf_counter()
        chosen = _edits(seen, constraint, form, [rule for _, _, rule in rules])
        seconds = time.perf_counter() - start  # of all rules together
        for (parameter, value, _), (model, facts) in zip(rules, chosen, strict=True):
            records.append(
                base.record(
                    form,
                    base.as_predictor(model),
                    constraint=constraint,
                    parameter=parameter,
                    value=value,
                    seconds=seconds,
                    needs_group=False,
                    refits=False,
                    randomised=False,
                    **facts,
                )
            )
    return records


def _expected(base: Fitted) -> Fitted:
    """Return the model with expected validation rows. Records are measured on the real ones."""
    train, validation, _ = base.splits
    rows = expected_rows(base.model, train, validation)
    return replace(base, splits=replace(base.splits, validation=rows))


def _edits(
    base: Fitted, constraint: str, form: str, rules: Sequence[Selection]
) -> list[tuple[Any, Mapping[str, Any]]]:
    """Return the edited model of each rule, from one fit if the search keeps its candidates."""
    settings = FORMS[form][constraint]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairIJWarning)  # a target that is not reached
        fair = edit(base, constraint, selection=rules[0], **settings)
        drops = fair.moves_ is None
        others = [edit(base, constraint, selection=r, **settings) for r in rules[1:] if drops]
    if fair.moves_ is None:
        return [(fit.estimator_, _facts(fit, fit.chosen_)) for fit in (fair, *others)]
    editable, table = adapt(base.model), fair.candidates_
    rows = [rule.choose(measures_of(table)) for rule in rules]
    moves = torch.from_numpy(fair.moves_)
    return [(editable.edited(editable.theta + moves[row]), _facts(fair, row)) for row in rows]


def edit(base: Fitted, constraint: str, **settings: Any) -> FairIJ:
    train, validation, _ = base.splits
    given = {"constraints": constraint, "search": "grid", "selection": "lowest_gap"} | settings
    return FairIJ(base.model, verbose=False, **given).fit(
        train.X,
        train.y,
        X_val=validation.X,
        y_val=validation.y,
        sensitive_features_val=validation.s,
    )


def rival_records(case: Case, rival: str, values: Sequence[float]) -> list[Record]:
    """Run a baseline at every value of its sweep, on the same split and base model."""
    base, records = fitted(case), []
    name, _, settings = RIVALS[rival]
    if name == "exponentiated_gradient":
        settings = settings | {"estimator": clone(base.model)}
    for constraint in CONSTRAINTS:
        for value in values:
            baseline = make_baseline(
                name, constraint=constraint, value=value, seed=case.seed, **settings
            )
            start = time.perf_counter()
            predictor = baseline.fit(base.model, base.splits.train, base.splits.validation)
            seconds = time.perf_counter() - start
            records.append(
                base.record(
                    rival,
                    predictor,
                    constraint=constraint,
                    parameter="tolerance",
                    value=value,
                    seconds=seconds,
                    needs_group=baseline.needs_group_at_test,
                    refits=baseline.refits,
                    randomised=baseline.randomised,
                )
            )
    return records


def _facts(fair: FairIJ, row: int) -> Mapping[str, Any]:
    chosen = fair.candidates_.iloc[row]
    said = fair.diagnostics_
    return {
        "k": int(chosen["k"]),
        "scale": float(chosen["scale"]),
        "damping": float(chosen["damping"]),
        "n_parameters": said["n_parameters"],
        "gradient_norm": said["gradient_norm"],
        "drift": said["drift"],
        "surrogate": said["surrogate_before"],
    }
