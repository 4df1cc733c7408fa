"""What the default search and rule keep of a model, on rows that nothing was chosen on."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import lightgbm
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from fairij import Budget, FairIJ, Grid
from fairij.errors import FairIJWarning
from fairij.fairness.rates import GAPS, confusion_counts
from fairij.fairness.uncertainty import of_counts

TRAIN, VALIDATION, TEST = slice(0, 1500), slice(1500, 3000), slice(3000, 11000)
PARITY = GAPS["demographic_parity"]
PAPER = {"search": Grid(points=12, scales=(0.3, 1.0, 3.0, 10.0)), "selection": "lowest_gap"}
QUICK = (("linear", 0.05), ("linear", 0.5), ("trees", 0.5), ("trees", 0.95))
CASES = [  # models, and shares of positive labels
    pytest.param(*case, marks=[pytest.mark.slow] * (case not in QUICK))
    for case in product(("linear", "trees"), (0.05, 0.12, 0.5, 0.89, 0.95))
]


@dataclass(frozen=True)
class Rows:
    """A first feature that tells the group, and sways the label if there is a gap."""

    X: np.ndarray
    y: np.ndarray
    s: np.ndarray

    def part(self, some: Any) -> Rows:
        return Rows(self.X[some], self.y[some], self.s[some])


@cache
def made(positive: float, gap: float = 1.2) -> Rows:
    rng = np.random.default_rng(4)
    s = (rng.random(TEST.stop) < 0.6).astype(int)
    X = rng.normal(size=(len(s), 5))
    X[:, 0] += gap * s
    latent = X @ [1.0, 1.0, -0.8, 0.6, 0.0] + rng.logistic(size=len(s))
    return Rows(X, (latent > np.quantile(latent, 1 - positive)).astype(int), s)


@cache
def trained(kind: str, positive: float, gap: float = 1.2) -> Any:
    train = made(positive, gap).part(TRAIN)
    if kind == "linear":
        return LogisticRegression().fit(train.X, train.y)
    model = lightgbm.LGBMClassifier(n_estimators=25, num_leaves=8, n_jobs=1, verbosity=-1)
    return model.fit(train.X, train.y)


def edited(model: Any, rows: Rows, held: Rows | None = None, **settings: Any) -> FairIJ:
    """An edit; a notice is part of the result."""
    train, held = rows.part(TRAIN), held or rows.part(VALIDATION)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairIJWarning)
        return FairIJ(model, verbose=False, **settings).fit(
            train.X, train.y, X_val=held.X, y_val=held.y, sensitive_features_val=held.s
        )


@cache
def by_default(kind: str, positive: float) -> tuple[Kept, Kept]:
    """What the model has before and after an edit with nothing but defaults."""
    rows, model = made(positive), trained(kind, positive)
    return kept(model, rows), kept(edited(model, rows).estimator_, rows)


@dataclass(frozen=True)
class Kept:
    """What is left of a model on test rows."""

    auc: float
    gap: float
    gap_error: float
    rarer: float  # the share of the label that is predicted less often


def kept(model: Any, rows: Rows) -> Kept:
    test = rows.part(TEST)
    predicted = model.predict(test.X).astype(int)
    table = confusion_counts(test.y, predicted, test.s, n_groups=2, n_classes=2)
    error = float(of_counts(PARITY, table)["gap_error"])
    auc = float(roc_auc_score(test.y, model.predict_proba(test.X)[:, 1]))
    rarer = float(min(predicted.mean(), 1 - predicted.mean()))
    return Kept(auc, float(PARITY.metric(table)), error, rarer)


@pytest.mark.parametrize(("kind", "positive"), CASES)
def test_no_edit_ruins_the_scores(kind: str, positive: float) -> None:
    before, after = by_default(kind, positive)
    assert after.auc > before.auc - 0.05


@pytest.mark.parametrize(("kind", "positive"), CASES)
def test_no_edited_model_is_nearly_constant(kind: str, positive: float) -> None:
    before, after = by_default(kind, positive)
    # on validation rows at least half; here they are others
    assert after.rarer > 0.4 * min(before.rarer, positive, 1 - positive)


@pytest.mark.parametrize(("kind", "positive"), CASES)
def test_the_gap_does_not_grow_by_more_than_chance(kind: str, positive: float) -> None:
    before, after = by_default(kind, positive)
    assert after.gap < before.gap + 2 * after.gap_error
    if positive == 0.5:
        assert after.gap < 0.7 * before.gap  # it is there to close gaps, too


def test_the_lowest_gap_at_any_cost_does_all_of_this() -> None:
    """So the cases above are hard enough."""
    rows = made(0.05)
    before = kept(trained("linear", 0.05), rows)
    after = kept(edited(trained("linear", 0.05), rows, **PAPER).estimator_, rows)
    assert after.rarer < 0.1 * before.rarer
    rows = made(0.95)
    before = kept(trained("trees", 0.95), rows)
    after = kept(edited(trained("trees", 0.95), rows, **PAPER).estimator_, rows)
    assert after.auc < before.auc - 0.05


def test_without_a_gap_the_model_comes_back_unchanged_and_says_so() -> None:
    rows, model = made(0.3, gap=0.0), trained("linear", 0.3, gap=0.0)
    fair = edited(model, rows)
    assert fair.chosen_ == 0
    assert np.array_equal(fair.estimator_.coef_, model.coef_)
    (said,) = fair.diagnostics_["remarks"]
    assert re.search(r"The gap of the model as it is, 0\.\d+, cannot be told from zero", said)
    train, held = rows.part(TRAIN), rows.part(VALIDATION)
    with pytest.warns(FairIJWarning, match="cannot be told from zero"):
        FairIJ(model, verbose=False).fit(
            train.X, train.y, X_val=held.X, y_val=held.y, sensitive_features_val=held.s
        )
    assert edited(model, rows, selection=Budget(confidence=0, errors=0)).chosen_ > 0


def test_forty_rows_of_a_group_do_not_show_a_small_gap() -> None:
    rows, model = made(0.3, gap=0.4), trained("linear", 0.3, gap=0.4)
    held = rows.part(VALIDATION)
    assert edited(model, rows, held).chosen_ > 0
    first, second = np.flatnonzero(held.s == 0), np.flatnonzero(held.s == 1)
    draws = [held.part(np.r_[first[40 * i : 40 * (i + 1)], second]) for i in range(5)]
    assert sum(edited(model, rows, small).chosen_ == 0 for small in draws) >= 3


@pytest.mark.parametrize("validation", ["split", "cross_fit"])
def test_measures_are_there_however_validation_rows_serve(validation: str) -> None:
    rows, model = made(0.5), trained("linear", 0.5)
    table = edited(model, rows, validation_use=validation).candidates_
    held = rows.part(VALIDATION)
    whole = roc_auc_score(held.y, model.predict_proba(held.X)[:, 1])
    assert table["auc"][0] == pytest.approx(whole, abs=0.02)
    for name in ("log_loss", "brier", "calibration_error", "calibration_error[0]", "gap_error"):
        assert np.isfinite(table[name]).all()


def test_the_choice_is_repeated_with_the_budgets_on_scores() -> None:
    """A candidate over a budget of AUC is taken in no resample."""
    rows, model = made(0.5), trained("linear", 0.5)
    strict = edited(model, rows, selection=Budget(auc=0.005))
    free = edited(model, rows, selection=Budget(auc=None))
    assert strict.honest_gap_.expected > free.honest_gap_.expected + 0.02
