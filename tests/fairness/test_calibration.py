"""Calibration curves: the share of positive rows at each level of the score."""

from __future__ import annotations

import numpy as np
import pytest

from fairij import audit


def test_each_bin_is_what_counting_gives() -> None:
    rng = np.random.default_rng(0)
    p, groups = rng.random(1000), rng.choice(["a", "b"], 1000)
    y = (rng.random(1000) < p).astype(int)
    weight = rng.choice([0.0, 1.0, 2.0], 1000)
    curves = audit(y, p, sensitive_features=groups, sample_weight=weight).calibration
    assert curves is not None
    assert len(curves) == 20
    edges = [-1, *np.quantile(p, np.linspace(0.1, 0.9, 9)), 2]
    for place, line in curves[curves["group"] == "b"].reset_index().iterrows():
        inside = (p > edges[int(place)]) & (p <= edges[int(place) + 1]) & (groups == "b")  # type: ignore[call-overload]
        worth = weight[inside].sum() ** 2 / (weight[inside] ** 2).sum()
        assert line["rows"] == pytest.approx(worth)
        assert line["score"] == pytest.approx(np.average(p[inside], weights=weight[inside]))
        assert line["share"] == pytest.approx(np.average(y[inside], weights=weight[inside]))
        assert line["low"] <= line["share"] <= line["high"]


def test_tied_scores_have_fewer_bins_and_labels_have_none() -> None:
    y, groups = np.tile([0, 1, 1, 0], 50), np.repeat(["a", "b"], 100)
    p = np.tile([0.2, 0.2, 0.7, 0.7], 50)
    curves = audit(y, p, sensitive_features=groups).calibration
    assert curves is not None
    assert list(curves["score"].round(6)) == [0.2, 0.7, 0.2, 0.7]
    assert audit(y, y, sensitive_features=groups).calibration is None
