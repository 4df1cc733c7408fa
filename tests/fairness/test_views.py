"""Gaps within strata and of marginals: equal to fairlearn, differentiable, and refused if odd."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from fairlearn.metrics import MetricFrame, selection_rate, true_positive_rate
from sklearn.linear_model import LinearRegression, LogisticRegression

from biased import problem
from fairij import FairIJ, Grid, GroupChances, TargetRatio, audit
from fairij.errors import FairIJWarning, InvalidInputError, SmallGroupWarning
from fairij.fairness import audit_regression
from fairij.fairness.constraints import CONSTRAINTS, Constraint
from fairij.fairness.contract import Outputs
from fairij.fairness.viewed import viewed
from fairij.fairness.views import cells_of, collapsed

DATA = problem(n=300, n_val=600)
MODEL = LogisticRegression().fit(DATA.X, DATA.y)
RNG = np.random.default_rng(5)
N = len(DATA.y_val)
LEVEL = np.where(DATA.X_val[:, 1] > 0, "high", "low")
BOTH = pd.DataFrame({"sex": DATA.sex_val, "race": DATA.race_val})
WEIGHT = RNG.integers(1, 4, N)
QUICK = Grid(points=4, scales=(1.0, 5.0, 20.0))
WITHIN, MARGINAL = "_within_strata", "_of_marginals"
PREDICTED = MODEL.predict(DATA.X_val)


def fit(data: Any = DATA, model: Any = MODEL, **given: Any) -> FairIJ:
    names = ("marginals", "constraints", "selection", "threshold", "search", "missing_groups")
    settings = {name: given.pop(name) for name in (*names, "validation_use") if name in given}
    usual = {"selection": "lowest_gap", "verbose": False, "search": QUICK}
    fair = FairIJ(model, **usual | settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairIJWarning)
        return data.fit(fair, **given)


def theirs(predicted: Any, groups: Any, control: Any = None, weight: Any = None) -> Any:
    """fairlearn's differences of selection rates, one for each stratum."""
    return MetricFrame(
        metrics=selection_rate,
        y_true=DATA.y_val,
        y_pred=predicted,
        sensitive_features=groups,
        control_features=control,
        sample_params=None if weight is None else {"sample_weight": weight},
    ).difference()


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_strata_are_those_of_fairlearn(weight: Any) -> None:
    found = audit(
        DATA.y_val,
        PREDICTED,
        sensitive_features=DATA.race_val,
        control_features=LEVEL,
        sample_weight=weight,
    )
    each = theirs(PREDICTED, DATA.race_val, LEVEL, weight)
    mine = found.views.xs("demographic_parity_difference", level="metric")["value"]
    assert mine.to_dict() == pytest.approx(each.to_dict())
    count = np.ones(N) if weight is None else weight
    shares = [count[name == LEVEL].sum() for name in each.index]
    whole = found.interval(f"demographic_parity_difference{WITHIN}")
    assert whole[0] == pytest.approx(np.average(each, weights=shares))
    assert 0 <= whole[1] < whole[0] < whole[2]
    plain = audit(DATA.y_val, PREDICTED, sensitive_features=DATA.race_val, sample_weight=weight)
    assert found.metrics.equals(plain.metrics)
    assert found.by_group.equals(plain.by_group)


def test_marginals_are_the_columns_one_by_one() -> None:
    found = audit(DATA.y_val, PREDICTED, sensitive_features=BOTH, marginals=True)
    total = 0.0
    for name, column in BOTH.items():
        alone = audit(DATA.y_val, PREDICTED, sensitive_features=column)
        for metric in alone.metrics.index:
            line = found.views.loc[(name, metric)]
            assert line.tolist() == pytest.approx(list(alone.interval(metric)))
        total += theirs(PREDICTED, column)
    assert found[f"demographic_parity_difference{MARGINAL}"] == pytest.approx(total)
    assert found.by_group.index.tolist() == sorted({f"{s} & {r}" for s, r in BOTH.to_numpy()})


@pytest.mark.parametrize("constraint", ["demographic_parity", "equal_opportunity"])
@pytest.mark.parametrize("threshold", [None, 0.4])
def test_an_edit_closes_the_gap_within_strata(constraint: str, threshold: Any) -> None:
    search = "constrained" if threshold is None else QUICK
    given = {"constraints": constraint, "threshold": threshold, "search": search}
    fair = fit(**given, control_features_val=LEVEL)
    labels = fair.predict(DATA.X_val)
    rate = selection_rate if constraint == "demographic_parity" else true_positive_rate
    after = MetricFrame(
        metrics=rate,
        y_true=DATA.y_val,
        y_pred=labels,
        sensitive_features=DATA.sex_val,
        control_features=LEVEL,
    ).difference()
    row = fair.candidates_.iloc[fair.chosen_]
    assert [row[f"gap[{name}]"] for name in after.index] == pytest.approx(list(after))
    first, shares = fair.candidates_.iloc[0], [np.mean(name == LEVEL) for name in after.index]
    assert row["gap"] == pytest.approx(np.average(after, weights=shares))
    assert row["gap"] < 0.5 * first["gap"]
    assert fair.after_[f"{constraint}_difference{WITHIN}"] == pytest.approx(row["gap"])
    assert fair.before_.by_group.index.tolist() == ["f", "m"]
    assert fair.edit_.settings["constraint"] == f"{constraint} within strata"
    assert fair.honest_gap_.low < fair.honest_gap_.expected < fair.honest_gap_.high


@pytest.mark.parametrize("search", ["constrained", QUICK])
def test_an_edit_closes_the_gap_of_each_column(search: Any) -> None:
    fair = fit(marginals=True, search=search, sensitive_features_val=BOTH)
    labels = fair.estimator_.predict(DATA.X_val)
    first, row = fair.candidates_.iloc[0], fair.candidates_.iloc[fair.chosen_]
    for name, column in BOTH.items():
        assert row[f"gap[{name}]"] == pytest.approx(theirs(labels, column))
    assert row["gap"] == pytest.approx(row["gap[sex]"] + row["gap[race]"])
    assert row["gap"] < 0.5 * first["gap"]


def test_the_rest_goes_together_with_views() -> None:
    """Weights, rows without a group, chances of groups, folds, ratios and several constraints."""
    lost = DATA.sex_val.astype(object)
    lost[:90] = None
    sure = pd.DataFrame({"f": DATA.sex_val == "f", "m": DATA.sex_val == "m"}).astype(float)
    plain = fit(control_features_val=LEVEL)
    chances = fit(control_features_val=LEVEL, sensitive_features_val=GroupChances(sure))
    for name in ("gap", "gap[high]", "accuracy"):
        assert chances.candidates_[name].to_numpy() == pytest.approx(
            plain.candidates_[name].to_numpy(), abs=1e-4
        )
    known = fit(control_features_val=LEVEL, sensitive_features_val=lost, missing_groups="ignore")
    sure_ones = audit(
        DATA.y_val[90:],
        PREDICTED[90:],
        sensitive_features=DATA.sex_val[90:],
        control_features=LEVEL[90:],
    )
    mine = known.before_[f"demographic_parity_difference{WITHIN}"]
    assert mine == pytest.approx(sure_ones[f"demographic_parity_difference{WITHIN}"])
    weighed = fit(control_features_val=LEVEL, sample_weight_val=WEIGHT)
    each = theirs(PREDICTED, DATA.sex_val, LEVEL, WEIGHT)
    assert weighed.candidates_["gap[high]"][0] == pytest.approx(each["high"])
    for settings in (
        {"validation_use": "cross_fit", "search": QUICK},
        {"constraints": ["demographic_parity", "equal_opportunity"]},
        {"constraints": "worst_group_loss"},
        {"constraints": "demographic_parity_ratio", "selection": TargetRatio(0.8)},
    ):
        fair = fit(control_features_val=LEVEL, **settings)
        gaps = fair.candidates_["gap"]
        assert np.isfinite(gaps).all()
        assert gaps[fair.chosen_] <= gaps[0]


def test_means_of_numbers_within_strata() -> None:
    data = problem("real", n=300, n_val=500)
    model = LinearRegression().fit(data.X, data.y)
    level = np.where(data.X_val[:, 1] > 0, "high", "low")
    fair = fit(data, model, constraints="mean_prediction", control_features_val=level)
    for fitted, line in ((model, 0), (fair.estimator_, fair.chosen_)):
        values = fitted.predict(data.X_val)
        each = pd.Series(values).groupby([level, data.sex_val]).mean().groupby(level=0)
        apart = (each.max() - each.min()).to_dict()
        row = fair.candidates_.iloc[line]
        assert {n: row[f"gap[{n}]"] for n in apart} == pytest.approx(apart, abs=1e-5)
    made = audit_regression(
        data.y_val, values, sensitive_features=data.sex_val, control_features=level
    )
    assert made[f"mean_prediction_difference{WITHIN}"] == pytest.approx(
        fair.candidates_["gap"][fair.chosen_], abs=1e-5
    )


@pytest.mark.parametrize("name", ["demographic_parity", "equalized_odds_balanced", "mean_error"])
@pytest.mark.parametrize("plain", [True, False])
def test_gradients_agree_with_finite_differences(name: str, plain: bool) -> None:
    constraint = CONSTRAINTS[name]
    is_class = bool(constraint.is_classification)
    z = torch.from_numpy(RNG.normal(size=N))
    y = torch.from_numpy((DATA.y_val if is_class else RNG.normal(size=N)).astype(float))
    cells = cells_of(DATA.race_val, control_features=LEVEL)
    if not plain:
        cells = cells.weighted(WEIGHT.astype(float))
    classes = np.arange(2 if is_class else 0)
    made, said = viewed(constraint, cells, y.numpy(), classes)
    assert not said
    loss = Outputs(is_class)
    for gradients in (made.part_gradients, made.group_gradients):
        found = gradients(z, y, cells, loss, 1.0)
        direction, step = torch.from_numpy(RNG.normal(size=N)), 1e-6
        up, down = (gradients(z + s * direction, y, cells, loss, 1.0) for s in (step, -step))
        for (_, slope), (high, _), (low, _) in zip(found, up, down, strict=True):
            assert float(slope @ direction) == pytest.approx((high - low) / (2 * step), abs=1e-6)
    assert len(made.group_gradients(z, y, cells, loss, 1.0)) >= 4  # three groups, two strata


def test_strata_without_a_group_are_left_out_and_told() -> None:
    strata = np.where(np.arange(N) < 20, "rare", LEVEL)
    strata[:20][DATA.sex_val[:20] == "f"] = "high"
    with pytest.warns(SmallGroupWarning, match="1 of 3 strata, with .* take no part in the gap"):
        fair = DATA.fit(FairIJ(MODEL, verbose=False), control_features_val=strata)
    assert "gap[rare]" not in fair.candidates_
    assert np.isfinite(fair.candidates_["gap"]).all()


def test_groups_without_views_stay_as_they_are() -> None:
    groups = cells_of(DATA.sex_val)
    assert collapsed(groups) is groups
    constraint = CONSTRAINTS["demographic_parity"]
    assert viewed(constraint, groups, DATA.y_val, np.arange(2)) == (constraint, [])
    cells = cells_of(DATA.sex_val, control_features=LEVEL)
    assert len(cells.names) == 4
    assert np.array_equal(collapsed(cells).codes, groups.codes)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"control_features_val": LEVEL[:9]}, "`control_features_val` must have one row per"),
        ({"control_features_val": np.arange(N)}, "at most 100 strata, and these make 600"),
        ({"control_features_val": DATA.sex_val}, "must have a stratum in which every group"),
        (
            {"control_features_val": np.where(np.arange(N) == 4, None, LEVEL)},
            "`control_features_val` has 1 missing value",
        ),
        ({"marginals": True}, "two or more sensitive columns, and there is one"),
        ({"marginals": 3}, "`marginals` must be one of"),
        (
            {"marginals": True, "sensitive_features_val": BOTH, "control_features_val": LEVEL},
            "must be given without `marginals`",
        ),
        (
            {"control_features_val": LEVEL, "sensitive_features": DATA.sex},
            "strata of training rows are not known",
        ),
        (
            {"control_features_val": LEVEL, "constraints": lambda z, y, groups: z.mean()},
            "must be gaps of rates for strata and marginals",
        ),
        (
            {"marginals": True, "sensitive_features_val": BOTH.assign(race="all")},
            "'race' has 600 of 'all'",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        fit(**given)


def test_strata_need_validation_rows_of_their_own() -> None:
    with pytest.raises(InvalidInputError, match="`control_features_val` must come with"):
        FairIJ(MODEL).fit(DATA.X, DATA.y, sensitive_features=DATA.sex, control_features_val=LEVEL)


def test_a_constraint_of_ones_own_has_no_names() -> None:
    assert Constraint.custom(lambda z, y, groups: z.mean()).named is None
