"""Questions that people ask: precision, ratios, the worst group, and other libraries' names."""

from __future__ import annotations

import warnings
from typing import Any

import fairlearn.metrics as fairlearn
import fairlearn.reductions as reductions
import numpy as np
import pytest
import torch

from biased import fair, fitted, problem
from fairij import Budget, TargetRatio
from fairij.errors import FairIJWarning, InvalidInputError
from fairij.fairness import CONSTRAINTS, GAPS, encode_groups, get_constraint
from fairij.fairness.constraints import check_sizes
from fairij.fairness.names import OTHERS, read_as, said
from fairij.fairness.rates import confusion_counts, measures
from fairij.fairness.uncertainty import of_counts
from fairij.models.losses import get_loss

RATIOS = [name for name, gap in GAPS.items() if gap.form == "ratio"]


def quiet(fit: Any, **changes: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairIJWarning)
        return problem().fit(fit, **changes)


def counted(y: Any, predicted: Any, groups: Any) -> np.ndarray:
    return confusion_counts(
        np.asarray(y), np.asarray(predicted), np.asarray(groups), n_groups=2, n_classes=2
    )


@pytest.mark.parametrize("name", ["predictive_parity", "negative_predictive_parity"])
def test_an_edit_that_selects_nobody_has_no_precision_and_so_no_gap(name: str) -> None:
    y, groups = [0, 1, 0, 1], [0, 0, 1, 1]
    alike = 1 if name == "negative_predictive_parity" else 0
    for predicted in ([alike] * 4, [1 - alike, 1 - alike, alike, alike]):
        table = counted(y, predicted, groups)
        assert np.isnan(GAPS[name].metric(table))
        assert np.isnan(measures(table)[GAPS[name].metric_name])
    assert GAPS[name].metric(counted(y, [0, 1, 1, 0], groups)) == 1.0


def test_a_group_of_which_nobody_is_selected_is_refused_in_words() -> None:
    y, groups = np.array([0, 1] * 20), encode_groups(["a"] * 20 + ["b"] * 20)
    selected = np.array([0, 1] * 10 + [0] * 20)
    given = (CONSTRAINTS["predictive_parity"], y, np.array(["no", "yes"]), groups)
    with pytest.raises(InvalidInputError, match=r"predicted label .* 0 of 'b predicted as yes'"):
        check_sizes(*given, predicted=selected)
    (notice,) = check_sizes(*given, predicted=y)
    assert "10 of 'a predicted as yes'" in notice.text


@pytest.mark.parametrize("name", RATIOS)
def test_ratios_are_fairlearn_s(name: str) -> None:
    rng = np.random.default_rng(0)
    y, predicted = rng.integers(0, 2, (2, 300))
    groups = rng.choice(["a", "b", "c"], 300)
    table = measures_table(y, predicted, groups)
    theirs = {
        "demographic_parity_ratio": fairlearn.demographic_parity_ratio,
        "equalized_odds_ratio": fairlearn.equalized_odds_ratio,
        "equal_opportunity_ratio": fairlearn.equal_opportunity_ratio,
        "predictive_equality_ratio": fairlearn.false_positive_rate_ratio,
    }[name](y, predicted, sensitive_features=groups)
    assert GAPS[name].metric(table) == pytest.approx(1 - theirs)


def measures_table(y: Any, predicted: Any, groups: Any) -> np.ndarray:
    coded = encode_groups(groups)
    return confusion_counts(y, predicted, coded.codes, n_groups=len(coded.names), n_classes=2)


@pytest.mark.parametrize("name", [*RATIOS, "predictive_parity", "worst_group_error"])
def test_the_standard_error_is_the_deviation_of_the_gap(name: str) -> None:
    rng = np.random.default_rng(1)
    codes = np.repeat([0, 1], [600, 900])
    shares = np.array([[0.3, 0.1, 0.2, 0.4], [0.2, 0.3, 0.1, 0.4]])  # of (label, prediction)
    draws = [rng.choice(4, (3000, n), p=p) for n, p in zip((600, 900), shares, strict=True)]
    cells = np.concatenate(draws, 1)
    size = 8 * np.arange(3000)[:, None]
    table = np.bincount((size + codes * 4 + cells).ravel(), minlength=24000).reshape(-1, 2, 2, 2)
    gap = GAPS[name]
    told = of_counts(gap, table.astype(float))
    assert told["gap_error"].mean() == pytest.approx(gap.metric(table.astype(float)).std(), rel=0.1)
    assert np.isnan(told["gap_p"]).all() == (name == "worst_group_error")


@pytest.mark.parametrize("task", ["binary_cross_entropy", "softmax_cross_entropy", "squared_error"])
def test_the_worst_group_s_loss_is_a_mean_of_the_training_loss(task: str) -> None:
    loss, rng = get_loss(task), np.random.default_rng(0)
    z = torch.tensor(rng.normal(size=(60, 3) if task.startswith("soft") else 60))
    y = torch.tensor(rng.integers(0, 2, 60)).double()
    groups = encode_groups(rng.choice(["a", "b", "c"], 60))
    worst = CONSTRAINTS["worst_group_loss"]
    each = loss.value(z, y).numpy()
    expected = max(each[groups.codes == code].mean() for code in range(3))
    assert worst.gap(z[None], y, groups, None, loss)[0] == pytest.approx(expected)
    ((value, gradient),) = worst.part_gradients(z, y, groups, loss, 3.0)
    assert value == pytest.approx(expected)
    highest = int(np.argmax([each[groups.codes == code].mean() for code in range(3)]))
    own = torch.tensor(groups.codes == highest)
    torch.testing.assert_close(gradient[own], loss.slope(z, y)[own] / own.sum())
    assert not gradient[~own].any()


@pytest.mark.parametrize("search", ["path", "constrained"])
@pytest.mark.parametrize("name", ["worst_group_loss", "worst_group_error"])
def test_the_worst_group_gets_better(name: str, search: str) -> None:
    asked = {"constraints": name, "search": search, "selection": "lowest_gap"}
    result = quiet(fair(fitted("binary"), **asked))
    first, last = (result.candidates_["gap"].iloc[row] for row in (0, result.chosen_))
    assert last < first
    assert (result.honest_gap_ is None) == (name == "worst_group_loss")


def test_the_worst_group_is_judged_on_rows_that_made_no_edit() -> None:
    seen = {
        (name, use): quiet(
            fair(fitted("binary"), constraints=name, search="path", validation_use=use)
        ).edit_.settings["validation"]
        for name in ("worst_group_error", "worst_group_loss", "demographic_parity")
        for use in ("auto", "reuse")
    }
    assert [use for (_, asked), use in seen.items() if asked == "auto"] == ["split"] * 2 + ["reuse"]
    assert {use for (_, asked), use in seen.items() if asked == "reuse"} == {"reuse"}


@pytest.mark.parametrize("search", ["grid", "path", "constrained"])
def test_a_ratio_that_is_asked_for_is_reached(search: str) -> None:
    fit = fair(
        fitted("binary"),
        constraints="demographic_parity_ratio",
        search=search,
        selection=TargetRatio(0.8),
    )
    result = quiet(fit)
    before, after = result.before_, result.after_
    assert before["demographic_parity_ratio_gap"] > 0.2 >= after["demographic_parity_ratio_gap"]
    data = problem()
    ratio = fairlearn.demographic_parity_ratio(
        data.y_val, result.predict(data.X_val), sensitive_features=data.sex_val
    )
    assert ratio >= 0.8
    assert ratio == pytest.approx(1 - after["demographic_parity_ratio_gap"])
    assert result.honest_gap_.expected > 0


def test_rules_of_a_ratio_need_one() -> None:
    assert TargetRatio().ratio == 0.8
    assert TargetRatio(0.8).target == pytest.approx(0.2)
    assert TargetRatio(0.8).shortfall(0.2) is None
    assert "ratio of 0.8; the highest, 0.7000, is taken" in str(TargetRatio(0.8).shortfall(0.3))
    for wrong in (0, -1, 1.5, "0.8", None):
        with pytest.raises(InvalidInputError, match="`ratio` must be"):
            TargetRatio(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"by a ratio, as TargetRatio.*'demographic_par"):
        problem().fit(fair(fitted("binary"), selection=TargetRatio(0.8)))


def test_names_of_other_libraries_are_understood() -> None:
    assert set(OTHERS.values()) <= set(CONSTRAINTS)
    assert not set(OTHERS) & set(CONSTRAINTS)
    for moment in ("DemographicParity", "EqualizedOdds", "TruePositiveRateParity"):
        assert hasattr(reductions, moment)
        assert get_constraint(moment) is CONSTRAINTS[OTHERS[moment]]
    assert read_as("Demographic-Parity") == "demographic_parity"
    assert read_as("EqualizedOdds") == read_as("equalized_odds_difference")
    assert read_as("equalized_odds") == "equalized_odds"
    assert read_as("parity") is None
    assert said("demographic_parity") is None
    assert said(CONSTRAINTS["demographic_parity"]) is None
    with pytest.warns(FairIJWarning, match="'tpr' was read as 'equal_opportunity'"):
        problem().fit(fair(fitted("binary"), constraints="tpr", selection=Budget()))


@pytest.mark.parametrize("name", ["equalized_odds_difference", "selection_rate_difference"])
def test_a_difference_of_fairlearn_s_is_the_gap_that_it_is_read_as(name: str) -> None:
    rng = np.random.default_rng(0)
    y, predicted = rng.integers(0, 2, (2, 200))
    groups = rng.choice(["a", "b"], 200)
    theirs = getattr(fairlearn, name)(y, predicted, sensitive_features=groups)
    gap = GAPS[str(read_as(name))].metric(measures_table(y, predicted, groups))
    assert gap == pytest.approx(theirs)
