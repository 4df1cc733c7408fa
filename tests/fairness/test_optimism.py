"""A gap that was chosen to be small: its optimism is found, and its interval covers."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from biased import fair, fitted, problem
from fairij import Grid, LowestGap, TargetGap
from fairij.errors import InvalidInputError, SmallGroupWarning
from fairij.fairness import GAPS, rates
from fairij.fairness import optimism as honesty
from fairij.fairness.optimism import Choice, Patterns, half_width, rows_needed

PARITY = GAPS["demographic_parity"].metric


RULE = LowestGap().choose


def drawn(rng: np.random.Generator, rows: int, candidates: int) -> tuple[np.ndarray, ...]:
    codes, y = rng.integers(2, size=rows), rng.integers(2, size=rows)
    rates = np.where(codes, 0.6, 0.5)  # every candidate's true gap is 0.1
    return (rng.random((candidates, rows)) < rates).astype(np.uint8), y, codes


def patterns_of(predictions: np.ndarray, y: np.ndarray, codes: np.ndarray) -> Patterns:
    return Patterns.of(predictions, y, codes, n_groups=2, n_classes=2)


def test_tables_of_patterns_are_tables_of_rows() -> None:
    rng = np.random.default_rng(0)
    predictions, y, codes = drawn(rng, 300, 4)
    patterns = patterns_of(predictions, y, codes)
    assert len(patterns.cells) <= 64  # 2^4 predictions in each of 4 cells
    expected = rates.confusion_counts(y, predictions, codes, n_groups=2, n_classes=2)
    times = np.stack([patterns.times, 2 * patterns.times]).astype(float)
    np.testing.assert_array_equal(patterns.tables(times), [expected, 2 * expected])
    assert patterns.resampled(rng, 2).sum(1).tolist() == [300, 300]


def test_three_classes_and_groups() -> None:
    rng = np.random.default_rng(1)
    y, codes = rng.integers(3, size=500), rng.integers(3, size=500)
    predictions = rng.integers(3, size=(5, 500)).astype(np.uint8)
    patterns = Patterns.of(predictions, y, codes, n_groups=3, n_classes=3)
    expected = rates.confusion_counts(y, predictions, codes, n_groups=3, n_classes=3)
    np.testing.assert_array_equal(patterns.tables(patterns.times[None].astype(float))[0], expected)


def test_the_interval_covers_where_the_naive_one_does_not() -> None:
    """Twenty candidates of one true gap, 0.1: the smallest looks better than it is."""
    rng = np.random.default_rng(2)
    covered, gaps, expected = 0, [], []
    for trial in range(40):
        predictions, y, codes = drawn(rng, 400, 20)
        patterns = patterns_of(predictions, y, codes)
        smallest = PARITY(patterns.tables(patterns.times[None].astype(float))).min()
        choice = Choice(patterns, PARITY, RULE, float(smallest), seed=trial)
        found = choice.honest_gap(n_resamples=100)
        fresh, y, codes = drawn(rng, 400, 1)
        table = rates.confusion_counts(y, fresh, codes, n_groups=2, n_classes=2)
        covered += found.low <= float(PARITY(table)[0]) <= found.high
        gaps.append(found.gap)
        expected.append(found.expected)
        assert found.optimism > 0
    assert covered >= 30  # the gap of the choice itself is far below 0.1
    assert np.mean(gaps) < 0.03
    assert np.mean(expected) > np.mean(gaps) + 0.015


def test_one_candidate_has_no_optimism() -> None:
    rng = np.random.default_rng(3)
    predictions, y, codes = drawn(rng, 4000, 1)
    patterns = patterns_of(predictions, y, codes)
    gap = float(PARITY(patterns.tables(patterns.times[None].astype(float)))[0, 0])
    choice = Choice(patterns, PARITY, RULE, gap)
    found = choice.honest_gap()
    assert abs(found.optimism) < 0.005
    assert found.optimism == found.expected - found.gap
    assert found.low < 0.1 < found.high
    assert found == choice.honest_gap()


def test_the_interval_has_the_sampling_errors_of_the_choice_and_of_an_audit() -> None:
    """Each has the variance of two rates; an interval with one of them would be 0.7 as wide."""
    rng = np.random.default_rng(5)
    predictions, y, codes = drawn(rng, 4000, 1)
    choice = Choice(patterns_of(predictions, y, codes), PARITY, RULE, gap=0.1)
    found = choice.honest_gap(n_resamples=1000)
    of_one = 1.96 * math.sqrt(0.6 * 0.4 / 2000 + 0.5 * 0.5 / 2000)
    # the ends are at -2.24 and 1.78 deviations instead of twice 1.96
    ratio = (2.24 + 1.78) / (2 * 1.96)
    expected = 2 * math.sqrt(2) * of_one * ratio
    assert found.high - found.low == pytest.approx(expected, rel=0.06)


def test_groups_that_differ_by_noise_are_made_alike() -> None:
    """Gaps of groups with one true rate: noise alone parts them, by about 0.8 of its deviation."""
    rng, before, after = np.random.default_rng(6), [], []
    for _ in range(200):
        ones = rng.binomial(500, 0.5, size=(2, 1))
        table = np.stack([np.concatenate([500 - ones, ones], 1)] * 2, 1) / 2.0
        before.append(float(PARITY(table)))
        shares = honesty.with_less_noise(table, PARITY, rng)
        assert shares.sum() == pytest.approx(1)
        np.testing.assert_allclose(shares.sum((1, 2)), 0.5)
        after.append(float(PARITY(shares)))
    assert np.mean(after) < 0.8 * np.mean(before)
    wide = np.array([[[300.0, 100.0]] * 2, [[100.0, 300.0]] * 2])  # a gap that is no noise
    assert float(PARITY(honesty.with_less_noise(wide, PARITY, rng))) == pytest.approx(0.5, abs=0.01)


def test_a_metric_that_is_never_defined() -> None:
    rng = np.random.default_rng(4)
    predictions, y, codes = drawn(rng, 50, 2)
    choice = Choice(
        patterns_of(predictions, y, codes),
        lambda table: np.full(table.shape[:-3], np.nan),
        RULE,
        gap=0.0,
    )
    assert np.isnan(choice.honest_gap(n_resamples=3).expected)


@pytest.mark.parametrize("validation", ["reuse", "split"])
@pytest.mark.parametrize("task", ["binary", "three"])
def test_a_fit_says_what_to_expect(validation: str, task: str) -> None:
    data = problem(task)
    model = data.fit(fair(fitted(task), validation_use=validation, search=Grid(points=5, max_k=40)))
    found = model.honest_gap_
    assert found.gap == model.candidates_["gap"][model.chosen_]
    assert found.low <= found.expected <= found.high
    assert found.optimism == found.expected - found.gap
    if task == "binary":  # of three classes, more of the gap is noise than luck of the choice
        assert found.optimism > 0


def test_where_the_choice_cannot_be_repeated() -> None:
    assert problem().fit(fair(validation_use="cross_fit")).honest_gap_ is None
    real = problem("real")
    settings = {"loss": "squared_error", "constraints": "mean_prediction"}
    assert real.fit(fair(fitted("real"), **settings)).honest_gap_ is None


def test_rows_that_play_no_part() -> None:
    data = problem()
    model = data.fit(fair(holdout_fraction=0.4))
    counted = model.holdout_after_.by_group["count"].sum()
    assert counted + model.after_.by_group["count"].sum() == 480
    assert counted == pytest.approx(192, abs=2)
    assert model.holdout_before_["accuracy"] != model.holdout_after_["accuracy"]
    again = data.fit(fair(holdout_fraction=0.4))
    assert again.holdout_after_.to_dict() == model.holdout_after_.to_dict()
    plain = data.fit(fair())
    assert plain.holdout_before_ is None
    assert plain.holdout_after_ is None
    for bad in (-0.1, 1.0, "half", float("nan")):
        with pytest.raises(
            InvalidInputError, match="`holdout_fraction` must be a number, at least 0"
        ):
            data.fit(fair(holdout_fraction=bad))


def test_rows_that_would_do() -> None:
    assert rows_needed(0.5, 0.02) == 4802
    assert math.sqrt(2) * half_width(0.5, 4802) == pytest.approx(0.02, rel=1e-3)  # of a gap
    assert half_width(0.5, 2401) == pytest.approx(0.02, rel=1e-3)  # of one rate
    warnings.filterwarnings("ignore", "No candidate reaches")
    with pytest.warns(
        SmallGroupWarning, match=r"A gap of 0.01 is asked for, but 1\d\d rows of 'f'"
    ):
        problem().fit(fair(selection=TargetGap(0.01)))


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_as_many_rows_as_are_said_to_do_show_the_gap(rate: float) -> None:
    """Gaps of groups that have none, drawn many times: 95 of a hundred lie within the target."""
    rows, rng = rows_needed(rate, 0.05), np.random.default_rng(0)
    ones = rng.binomial(rows, rate, size=(20_000, 2)) / rows
    within = np.abs(ones[:, 0] - ones[:, 1]) <= 0.05
    assert within.mean() == pytest.approx(0.95, abs=0.01)


def test_resamples_of_large_tables_are_drawn_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    tables = Patterns.tables

    def watched(self: Patterns, times: np.ndarray) -> np.ndarray:
        sizes.append(len(times))
        return tables(self, times)

    monkeypatch.setattr(Patterns, "tables", watched)
    monkeypatch.setattr(honesty, "COUNTS_AT_ONCE", 5 * 30 * 8)
    patterns = patterns_of(*drawn(np.random.default_rng(0), 200, 30))
    Choice(patterns, PARITY, RULE, gap=0.0).honest_gap(n_resamples=12)
    assert sizes == [1, 5, 5, 2]  # first the choice as it was


def test_all_rows_held_out_names_the_setting() -> None:
    data = problem()
    few = [int(np.flatnonzero(data.sex_val == sex)[0]) for sex in ("f", "m")]
    rows = {
        "X_val": data.X_val[few],
        "y_val": data.y_val[few],
        "sensitive_features_val": data.sex_val[few],
    }
    with pytest.raises(InvalidInputError, match=r"`holdout_fraction`=0\.5 would split off all 2"):
        data.fit(fair(holdout_fraction=0.5), **rows)
