"""Adult for real: what an edit predicts against refits, and the gaps that are promised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fairij import AccuracyBudget, Exact, FairIJ, Grid, LowestGap, audit
from fairij.datasets import Split, Splits, adult_splits
from fairij.errors import NegativeCurvatureError
from fairij.models.torch.training import train_mlp

pytestmark = pytest.mark.slow
GAP = "demographic_parity_difference"


@pytest.fixture(scope="module", params=[0, 3])
def trained(request: pytest.FixtureRequest) -> tuple[Splits, nn.Module]:
    splits = adult_splits(request.param)
    return splits, train(splits, np.arange(len(splits.train)))


def train(splits: Splits, kept: np.ndarray) -> nn.Module:
    rows, held = splits.train, splits.validation
    return train_mlp(rows.X[kept], rows.y[kept], held.X, held.y, seed=splits.seed)


def fit(module: nn.Module, splits: Splits, **settings: Any) -> FairIJ:
    rows, held = splits.train, splits.validation
    return FairIJ(
        module, verbose=False, **({"search": "grid", "selection": "lowest_gap"} | settings)
    ).fit(rows.X, rows.y, X_val=held.X, y_val=held.y, sensitive_features_val=held.s)


def measure(module: nn.Module, part: Split) -> dict[str, float]:
    with torch.no_grad():
        predicted = (module(torch.from_numpy(part.X))[:, 0] > 0).numpy().astype(int)
    return audit(part.y.astype(int), predicted, sensitive_features=part.s).to_dict()


@pytest.mark.parametrize(
    ("settings", "metric", "gap", "accuracy"),
    [
        (
            {"constraints": "demographic_parity", "selection": LowestGap(slack=0.005)},
            GAP,
            0.03,
            0.82,
        ),
        (
            {"constraints": "equalized_odds_balanced", "selection": AccuracyBudget(0.005)},
            "equalized_odds_sum",
            0.09,
            0.84,
        ),
        ({"constraints": "equal_opportunity"}, "equal_opportunity_difference", 0.04, 0.845),
    ],
)
def test_the_gap_on_the_official_test_set(
    trained: tuple[Splits, nn.Module],
    settings: dict[str, Any],
    metric: str,
    gap: float,
    accuracy: float,
) -> None:
    splits, module = trained
    before = measure(module, splits.test)
    after = measure(fit(module, splits, **settings).estimator_, splits.test)
    assert after[metric] < gap < before[metric] + 0.05
    assert after[metric] < 0.7 * before[metric]
    assert after["accuracy"] > accuracy


@pytest.mark.parametrize("k", [500, 1000])
def test_an_edit_predicts_what_refitting_without_the_rows_does(
    trained: tuple[Splits, nn.Module], k: int
) -> None:
    splits, module = trained
    before = measure(module, splits.test)[GAP]
    edited = fit(module, splits, search=Grid(k=(k,), scales=(1.0,)))
    assert len(edited.dropped_) == k
    kept = np.setdiff1d(np.arange(len(splits.train)), edited.dropped_)
    refitted = measure(train(splits, kept), splits.test)[GAP]
    predicted = measure(edited.estimator_, splits.test)[GAP]
    assert refitted < before
    assert before - predicted == pytest.approx(before - refitted, rel=0.6)


def test_the_raw_hessian_is_indefinite_at_this_minimum(trained: tuple[Splits, nn.Module]) -> None:
    splits, module = trained
    head = fit(module, splits, parameters="2", solver=Exact(), curvature="hessian")
    assert head.diagnostics_["curvature"] == "hessian"  # the last layer alone is convex
    with pytest.raises(NegativeCurvatureError, match="curvature='ggn'"):
        fit(module, splits, curvature="hessian", damping=1e-3)
