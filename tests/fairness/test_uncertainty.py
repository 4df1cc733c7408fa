"""Standard errors and p-values of gaps, against resamples and against models without a gap."""

from __future__ import annotations

import numpy as np
import pytest

from fairij.fairness.groups import encode_groups
from fairij.fairness.rates import GAPS, confusion_counts
from fairij.fairness.uncertainty import of_counts, of_means


def counted(
    rng: np.random.Generator, sizes: tuple[int, ...], rates: tuple[float, ...], edits: int
) -> np.ndarray:
    """Counts of models that predict 1 at these rates in each group, whatever the label."""
    codes = np.repeat(np.arange(len(sizes)), sizes)
    y = rng.integers(2, size=len(codes))
    predicted = (rng.random((edits, len(codes))) < np.array(rates)[codes]).astype(int)
    return confusion_counts(y, predicted, codes, n_groups=len(sizes), n_classes=2)


@pytest.mark.parametrize("name", ["demographic_parity", "equalized_odds", "equalized_odds_mean"])
def test_the_standard_error_is_the_deviation_of_the_gap(name: str) -> None:
    tables = counted(np.random.default_rng(0), (300, 700), (0.2, 0.5), 2000)
    gap = GAPS[name]
    told = of_counts(gap, tables)["gap_error"].mean()
    assert told == pytest.approx(gap.metric(tables).std(), rel=0.1)


@pytest.mark.parametrize("name", ["demographic_parity", "equalized_odds"])
@pytest.mark.parametrize("sizes", [(40, 1000), (500, 500), (40, 300, 700, 1000)])
def test_without_a_gap_few_are_found(name: str, sizes: tuple[int, ...]) -> None:
    tables = counted(np.random.default_rng(1), sizes, (0.3,) * len(sizes), 2000)
    share = (of_counts(GAPS[name], tables)["gap_p"] < 0.05).mean()
    assert 0.005 < share < 0.075


def test_a_clear_gap_is_found_though_a_small_group_has_a_wider_one() -> None:
    tables = counted(np.random.default_rng(2), (12, 1000, 1000), (0.5, 0.2, 0.35), 50)
    assert (of_counts(GAPS["demographic_parity"], tables)["gap_p"] < 1e-4).all()


def test_forty_rows_are_not_sure_where_a_thousand_are() -> None:
    table = np.array([[[10, 0], [0, 30]], [[300, 0], [0, 600]]], dtype=float)  # 0.75 and 0.667
    few = of_counts(GAPS["demographic_parity"], table)
    many = of_counts(GAPS["demographic_parity"], np.stack([table[0] * 25, table[1]]))
    assert few["gap_p"] > 0.2
    assert many["gap_p"] < 0.01
    assert few["gap_error"] > 2 * many["gap_error"]


def test_rates_of_one_are_not_certain_and_groups_without_rows_are_left_out() -> None:
    table = np.zeros((3, 2, 2))
    table[0, 1, 1], table[1, 1, 1] = 20, 30  # all are accepted; the third group is empty
    told = of_counts(GAPS["demographic_parity"], table)
    assert told["gap_p"] == 1.0
    assert 0.02 < told["gap_error"] < 0.2


def test_regression() -> None:
    rng = np.random.default_rng(3)
    codes = np.repeat([0, 1], [60, 400])
    groups = encode_groups(codes)
    predicted = rng.normal(size=(500, 460)) * (1 + codes)
    gap, y = GAPS["mean_prediction"], np.zeros(460)
    told = of_means(gap, predicted, y, groups)
    assert (told["gap_p"] < 0.05).mean() == pytest.approx(0.05, abs=0.03)
    signed = predicted[:, codes == 1].mean(1) - predicted[:, codes == 0].mean(1)
    assert told["gap_error"].mean() == pytest.approx(signed.std(), rel=0.1)
    assert (of_means(gap, predicted + 2 * codes, y, groups)["gap_p"] < 1e-6).all()
