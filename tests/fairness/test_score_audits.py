"""Audits of scores, next to scikit-learn and to decisions made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from fairij import TopShare, audit
from fairij.errors import InvalidInputError
from fairij.fairness.score_audits import area

RNG = np.random.default_rng(5)
N = 400
Y = RNG.integers(0, 2, N)
P = np.round(0.3 * Y + 0.7 * RNG.random(N), 2).clip(0.01, 0.99)  # with ties
who = RNG.choice(["f", "m"], N, p=[0.3, 0.7])
WEIGHT = RNG.integers(1, 5, N)
MEASURES = {"auc": roc_auc_score, "log_loss": log_loss, "brier": brier_score_loss}


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_measures_are_scikit_learns(weight: Any) -> None:
    found = audit(Y, P, sensitive_features=who, sample_weight=weight)
    for name, measure in MEASURES.items():
        assert found[name] == pytest.approx(measure(Y, P, sample_weight=weight), abs=1e-12)
        value, low, high = found.interval(name)
        assert low < value < high
        for group in ("f", "m"):
            some = who == group
            own = measure(Y[some], P[some], sample_weight=None if weight is None else weight[some])
            assert found.group_scores["value"][group, name] == pytest.approx(own, abs=1e-12)


def test_calibration_bias_is_the_mean_score_less_the_share_of_positives() -> None:
    found = audit(Y, P, sensitive_features=who)
    bias = {g: P[who == g].mean() - Y[who == g].mean() for g in ("f", "m")}
    for group, value in bias.items():
        assert found.group_scores["value"][group, "calibration_bias"] == pytest.approx(value)
    assert found["calibration_bias"] == pytest.approx(P.mean() - Y.mean())
    gap = abs(bias["f"] - bias["m"])
    assert found["calibration_bias_difference"] == pytest.approx(gap)
    bins = np.minimum((P * 10).astype(int), 9)
    off = [abs(P[bins == b].sum() - Y[bins == b].sum()) for b in range(10)]
    assert found["calibration_error"] == pytest.approx(sum(off) / N)


def test_the_interval_of_auc_holds_in_95_of_100_samples() -> None:
    """The truth is 0.8 by its formula for two exponential scores; DeLong's variance."""
    held = 0
    for seed in range(500):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, 80)
        score = 1 - np.exp(-rng.exponential(np.where(y == 1, 4.0, 1.0)))  # P(above) = 4 / 5
        _, low, high = area(score, y, np.ones(80), 0.95)
        held += low <= 0.8 <= high
    assert 463 <= held <= 487  # of 475, by less than 2.6 standard errors


@pytest.mark.parametrize(
    ("given", "threshold", "pos_label", "accepted"),
    [
        (P, None, None, P > 0.5),
        (P, 0.3, None, P >= 0.3),
        (np.c_[1 - P, P], 0.3, None, P >= 0.3),
        (P, 0.4, 0, np.round(1 - P, 2) >= 0.4),
        (np.linspace(0.01, 0.99, N), TopShare(0.25), None, np.arange(N) >= 0.75 * N),
    ],
)
def test_decisions_are_made_at_the_cut_off(
    given: Any, threshold: Any, pos_label: Any, accepted: Any
) -> None:
    found = audit(Y, given, sensitive_features=who, threshold=threshold, pos_label=pos_label)
    by_hand = audit(Y if pos_label is None else 1 - Y, accepted.astype(int), sensitive_features=who)
    assert found.to_dict() == by_hand.to_dict()
    assert found.positive_label == (1 if pos_label is None else pos_label)


def test_labels_and_scores_go_together() -> None:
    labels = (P > 0.6).astype(int)
    found = audit(Y, labels, scores=P, sensitive_features=who)
    assert found.to_dict() == audit(Y, labels, sensitive_features=who).to_dict()
    assert found["auc"] == pytest.approx(roc_auc_score(Y, P))
    flipped = audit(Y, labels, scores=P, sensitive_features=who, pos_label=0)
    assert flipped["auc"] == pytest.approx(found["auc"])
    assert flipped["calibration_bias"] == pytest.approx(-found["calibration_bias"])
    words = np.array(["no", "yes"])
    assert audit(words[Y], P, sensitive_features=who)["auc"] == found["auc"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"y_pred": 3 * P}, "chances from 0 to 1"),
        ({"y_pred": P, "threshold": 2}, "`threshold` must be a probability"),
        ({"y_pred": (P > 0.5).astype(int), "threshold": 0.3}, "leave it out"),
        ({"y_pred": (P > 0.5).astype(int), "scores": P - 1}, "row 0 holds -"),
        ({"y_pred": (P > 0.5).astype(int), "scores": P[:-1]}, "expected 400, got 399"),
        ({"y_true": Y + (P > 0.8), "y_pred": Y, "scores": P}, "must go with two labels"),
        ({"y_pred": Y, "scores": np.c_[P, P, P]}, "got 3 columns"),
    ],
)
def test_bad_scores(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        audit(**{"y_true": Y, "sensitive_features": who, **given})
