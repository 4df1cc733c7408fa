"""Changes of measures on the same rows: decisions counted by hand, intervals against resamples."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from fairij.cli.console import plain
from fairij.fairness import Audit, audit, audit_regression
from fairij.fairness.paired import Paired, paired, paired_numbers

NAMES = ("f", "m")


def rows(n: int, seed: int) -> dict[str, Any]:
    """Two models that mostly agree; the second treats the groups more alike."""
    rng = np.random.default_rng(seed)
    group = (rng.random(n) < 0.3).astype(int)
    y = (rng.random(n) < np.where(group, 0.3, 0.5)).astype(int)
    noise = rng.normal(size=n)
    scores = noise + 1.2 * y - 0.8 * group, noise + 0.3 * rng.normal(size=n) + 1.1 * y - 0.3 * group
    chances = [1 / (1 + np.exp(0.7 - score)) for score in scores]
    return {"y": y, "groups": np.take(NAMES, group), "chances": chances}


def compared(data: dict[str, Any], weight: Any = None) -> Paired:
    y, groups, chances = data["y"], data["groups"], data["chances"]
    predicted = tuple((p > 0.5).astype(int) for p in chances)
    how: dict[str, Any] = {"sensitive_features": groups, "sample_weight": weight}
    first, last = (
        audit(y, labels, scores=p, **how) for labels, p in zip(predicted, chances, strict=True)
    )
    both = (predicted[0], predicted[1])
    return paired(y, both, (first, last), chances=tuple(chances), codes=y, **how)


def test_decisions_are_counted_by_group_and_direction() -> None:
    data = rows(500, 0)
    found = compared(data)
    first, last = ((p > 0.5) for p in data["chances"])
    for name in NAMES:
        own = data["groups"] == name
        counts = found.decisions.loc[name]
        assert counts["rows"] == own.sum()
        assert counts["to_positive"] == (own & ~first & last).sum()
        assert counts["to_negative"] == (own & first & ~last).sum()
    assert found.changed == pytest.approx((first != last).mean())
    assert found.largest_class == pytest.approx(max(data["y"].mean(), 1 - data["y"].mean()))


def test_rows_that_weigh_twice_count_twice() -> None:
    data = rows(300, 1)
    weight = np.where(np.arange(300) < 100, 2.0, 1.0)
    twice = np.concatenate([np.arange(100), np.arange(300)])
    repeated = {"y": data["y"][twice], "groups": data["groups"][twice]}
    repeated["chances"] = [p[twice] for p in data["chances"]]
    one, other = compared(data, weight), compared(repeated)
    for column in ("before", "after", "change"):
        np.testing.assert_allclose(one.measures[column], other.measures[column], atol=1e-9)


MEASURES = (
    "accuracy",
    "balanced_accuracy",
    "demographic_parity_difference",
    "equal_opportunity_difference",
    "demographic_parity_ratio",
    "true_positive_rate",
    "auc",
    "log_loss",
    "brier",
)


def test_intervals_of_changes_are_those_of_resamples() -> None:
    """In a sample without small cells, where a bootstrap of the pairs can be believed."""
    data, rng, n = rows(3000, 2), np.random.default_rng(0), 3000
    found = compared(data)
    drawn = []
    for _ in range(30):
        some = rng.integers(0, n, n)
        part = {"y": data["y"][some], "groups": data["groups"][some]}
        part["chances"] = [p[some] for p in data["chances"]]
        drawn.append(compared(part).measures["change"])
    for name in MEASURES:
        _, low, high = found.change(name)
        spread = 2 * 1.96 * np.std([one[name] for one in drawn])
        assert high - low == pytest.approx(spread, rel=0.4), name


def test_a_change_is_surer_than_two_separate_audits() -> None:
    found = compared(rows(2000, 3))
    data = rows(2000, 3)
    y, groups = data["y"], data["groups"]
    wide = 0.0
    for p in data["chances"]:
        _, low, high = audit(y, (p > 0.5).astype(int), sensitive_features=groups).interval(
            "accuracy"
        )
        wide += ((high - low) / 2) ** 2
    _, low, high = found.change("accuracy")
    assert high - low < 0.8 * 2 * np.sqrt(wide)


def test_nothing_changes_between_a_model_and_itself() -> None:
    data = rows(400, 4)
    data["chances"] = [data["chances"][0]] * 2
    found = compared(data)
    assert found.changed == 0
    np.testing.assert_allclose(found.measures["change"], 0, atol=1e-12)
    assert ((found.measures["low"] <= 1e-12) & (found.measures["high"] >= -1e-12)).all()
    for name in ("auc", "log_loss", "brier"):
        assert found.change(name) == pytest.approx((0, 0, 0), abs=1e-12)


def test_it_is_written_and_read() -> None:
    found = compared(rows(200, 5))
    again = Paired.from_dict(json.loads(json.dumps(plain(found.to_dict()))))
    for name in ("measures", "decisions", "calibration"):
        one, other = getattr(found, name), getattr(again, name)
        np.testing.assert_allclose(one.to_numpy(), other.loc[one.index, one.columns].to_numpy())
    assert again.largest_class == found.largest_class


def test_several_classes_and_many_groups() -> None:
    rng = np.random.default_rng(6)
    y, groups = rng.integers(0, 3, 300), rng.integers(0, 400, 300) // 10
    labels = np.array(["a", "b", "c"])
    chances = rng.dirichlet(np.ones(3), 300), rng.dirichlet(np.ones(3), 300)
    predicted = tuple(labels[p.argmax(1)] for p in chances)
    audits = tuple(audit(labels[y], p, sensitive_features=groups) for p in predicted)
    found = paired(
        labels[y],
        (predicted[0], predicted[1]),
        (audits[0], audits[1]),
        sensitive_features=groups,
        chances=chances,
        codes=y,
    )
    assert list(found.decisions) == ["rows", "changed"]
    assert len(found.decisions) == 40
    for name in ("accuracy", "auc", "log_loss"):
        _, low, high = found.change(name)
        assert low < high
    assert np.isnan(found.change("equal_opportunity_difference")[0]) == any(
        np.isnan(one["equal_opportunity_difference"]) for one in audits
    )


def test_numbers() -> None:
    rng = np.random.default_rng(7)
    group, y = rng.integers(0, 2, 2000), rng.normal(size=2000)
    before = y + group + rng.normal(size=2000)
    after = y + 0.2 * group + rng.normal(size=2000) * 0.2 + (before - y - group) * 0.9
    audits = tuple(audit_regression(y, p, sensitive_features=group) for p in (before, after))
    both: tuple[Audit, Audit] = (audits[0], audits[1])
    found = paired_numbers(y, (before, after), both, sensitive_features=group)
    change, low, high = found.change("mean_prediction_difference")
    assert low < -0.8 < high
    assert low <= change <= high
    mse, r2 = found.values("mean_squared_error"), found.values("r2")
    assert r2[1] == pytest.approx(1 - mse[1] / np.var(y))
    assert found.decisions["moved"].iloc[0] == pytest.approx(
        np.abs(after - before)[group == 0].mean()
    )
