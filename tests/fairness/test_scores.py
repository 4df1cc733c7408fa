"""Measures of scores against scikit-learn, and calibration by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from fairij.fairness import scores
from fairij.fairness.groups import encode_groups
from fairij.fairness.scores import BINS, Scored, scored

ROWS = 700


def drawn(positive: float = 0.3, classes: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Chances of three edits, labels and groups."""
    rng = np.random.default_rng(0)
    groups = rng.choice(["a", "b", "c"], ROWS, p=[0.5, 0.4, 0.1])
    if classes > 2:
        y = rng.integers(classes, size=ROWS)
        z = rng.normal(size=(3, ROWS, classes)) + 1.5 * np.eye(classes)[y]
        return np.exp(z) / np.exp(z).sum(-1, keepdims=True), y, groups
    y = (rng.random(ROWS) < positive).astype(int)
    z = rng.normal(size=(3, ROWS)) + np.array([[1.0], [0.0], [4.0]]) * y - 1
    return 1 / (1 + np.exp(-z)), y, groups


def found(p: np.ndarray, y: np.ndarray, groups: np.ndarray) -> Scored:
    return scored(torch.from_numpy(p), torch.from_numpy(y), encode_groups(groups))


@pytest.mark.parametrize("positive", [0.02, 0.3, 0.95])
def test_two_classes_as_scikit_learn_has_them(positive: float) -> None:
    p, y, groups = drawn(positive)
    got = found(p, y, groups)
    # pairs less than 0.024 apart in log odds count as ties, which shows with few positive rows
    assert got.auc == pytest.approx([roc_auc_score(y, row) for row in p], abs=1e-3)
    assert got.log_loss == pytest.approx([log_loss(y, row) for row in p])
    assert got.brier == pytest.approx([brier_score_loss(y, row) for row in p])


def test_several_classes_as_scikit_learn_has_them() -> None:
    p, y, groups = drawn(classes=4)
    got = found(p, y, groups)
    theirs = [roc_auc_score(y, row, multi_class="ovr") for row in p]
    assert got.auc == pytest.approx(theirs, abs=2e-4)
    assert got.log_loss == pytest.approx([log_loss(y, row) for row in p])
    assert got.brier == pytest.approx(((p - np.eye(4)[y]) ** 2).sum(-1).mean(-1))


def by_hand(p: np.ndarray, hit: np.ndarray) -> float:
    place = np.minimum((p * BINS).astype(int), BINS - 1)
    return sum(abs((p - hit)[place == b].sum()) for b in range(BINS)) / len(p)


def test_calibration_of_all_rows_and_of_each_group() -> None:
    p, y, groups = drawn()
    columns = found(p, y, groups).measures(encode_groups(groups))
    # rows at the edge of a bin may fall into the next one
    assert columns["calibration_error"] == pytest.approx([by_hand(row, y) for row in p], abs=3e-3)
    for group in "abc":
        mine = groups == group
        expected = [by_hand(row[mine], y[mine]) for row in p]
        assert columns[f"calibration_error[{group}]"] == pytest.approx(expected, abs=2e-2)


def test_calibration_of_several_classes_is_that_of_the_predicted_one() -> None:
    p, y, groups = drawn(classes=3)
    right = p.argmax(-1) == y
    columns = found(p, y, groups).measures(encode_groups(groups))
    expected = [by_hand(row.max(-1), hit) for row, hit in zip(p, right, strict=True)]
    assert columns["calibration_error"] == pytest.approx(expected, abs=4e-3)


def test_one_class_alone_has_no_auc() -> None:
    p, _, groups = drawn()
    got = found(p, np.zeros(ROWS, dtype=int), groups)
    assert np.isnan(got.auc).all()
    assert np.isfinite(got.log_loss).all()
    three, y, groups = drawn(classes=3)
    without = found(three, np.minimum(y, 1), groups)  # the third class never occurs
    assert np.isfinite(without.auc).all()


def test_scores_without_any_order_and_sure_ones() -> None:
    _, y, groups = drawn()
    got = found(np.stack([np.full(ROWS, 0.3), y * 1.0, 1.0 - y]), y, groups)
    assert got.auc == pytest.approx([0.5, 1.0, 0.0])
    assert got.log_loss[1] < 1e-6 < 10 < got.log_loss[2] < np.inf


def test_many_edits_are_counted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    given = drawn()
    whole = found(*given)
    monkeypatch.setattr(scores, "AT_ONCE", 1)
    parts = found(*given)
    for name in ("auc", "log_loss", "brier", "bins"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-12)


def test_rows_in_parts_are_pooled() -> None:
    p, y, groups = drawn()
    coded = encode_groups(groups)
    ends = (slice(None, 500), slice(500, None))
    parts = [
        scored(torch.from_numpy(p[:, some]), torch.from_numpy(y[some]), coded.take(np.r_[some]))
        for some in (np.arange(ROWS)[end] for end in ends)
    ]
    every = np.arange(3)
    pooled, whole = Scored.pooled(parts, [every, every]), found(p, y, groups)
    assert pooled.rows == ROWS
    assert pooled.log_loss == pytest.approx(whole.log_loss)
    assert pooled.brier == pytest.approx(whole.brier)
    np.testing.assert_allclose(pooled.bins, whole.bins)
    assert pooled.auc == pytest.approx((5 * parts[0].auc + 2 * parts[1].auc) / 7)


def compared(p: np.ndarray, y: np.ndarray, groups: np.ndarray, **how: np.ndarray) -> Scored:
    return scored(torch.from_numpy(p), torch.from_numpy(y), encode_groups(groups, **how), [])


@pytest.mark.parametrize("classes", [2, 3])
def test_error_of_a_change_of_the_auc_is_that_of_resamples(classes: int) -> None:
    p, y, groups = drawn(classes=classes)
    p[1] = (p[0] + p[1]) / 2  # near the first, so that the change is far surer than each AUC
    got = compared(p, y, groups)
    rng, of = np.random.default_rng(1), {"multi_class": "ovr"} if classes > 2 else {}
    changes = []
    for _ in range(200):
        some = rng.integers(ROWS, size=ROWS)
        areas = [roc_auc_score(y[some], row[some], **of) for row in p]
        changes.append(np.subtract(areas, areas[0]))
    assert got.auc_error[0] == 0
    assert got.auc_error[1:] == pytest.approx(np.std(changes, axis=0)[1:], rel=0.15)


def test_auc_with_every_group_counting_the_same() -> None:
    p, y, groups = drawn()
    got = compared(p, y, groups)
    sizes = {group: (groups == group).sum() for group in "abc"}
    alike = np.array([1 / sizes[group] for group in groups])
    theirs = [roc_auc_score(y, row, sample_weight=alike) for row in p]
    assert got.group_auc == pytest.approx(theirs, abs=1e-3)
    assert got.group_auc_error[1] > 1.2 * got.auc_error[1]  # a tenth of the rows has a third
    whole = compared(p, y, np.full(ROWS, "all"))
    np.testing.assert_allclose(whole.group_auc, whole.auc)
    np.testing.assert_allclose(whole.group_auc_error, whole.auc_error)


@pytest.mark.parametrize("as_chances", [False, True])
def test_rows_without_a_group_are_no_group(as_chances: bool) -> None:
    p, y, groups = drawn()
    known = np.arange(ROWS) >= 5
    coded = encode_groups(np.where(known, groups.astype(object), None), missing="ignore")
    if as_chances:
        coded = replace(coded, chances=np.eye(4)[coded.codes, :3])
    got = scored(torch.from_numpy(p), torch.from_numpy(y), coded, [])
    alone = compared(p[:, known], y[known], groups[known])
    np.testing.assert_allclose(got.group_auc, alone.group_auc)
    np.testing.assert_allclose(got.group_auc_error, alone.group_auc_error)


def test_rows_that_count_twice_are_two_rows_but_one_draw() -> None:
    p, y, groups = drawn()
    twice = np.arange(ROWS) % 3 == 0
    index = np.concatenate([np.arange(ROWS), np.flatnonzero(twice)])
    coded = encode_groups(groups)
    weighted = scored(torch.from_numpy(p), torch.from_numpy(y), coded.weighted(1.0 + twice), [])
    repeated = compared(p[:, index], y[index], groups[index])
    np.testing.assert_allclose(weighted.auc, repeated.auc)
    np.testing.assert_allclose(weighted.group_auc, repeated.group_auc)
    assert (weighted.auc_error[1:] > repeated.auc_error[1:]).all()


def test_errors_of_pooled_rows_and_without_a_comparison() -> None:
    p, y, groups = drawn()
    coded, parts = encode_groups(groups), []
    for some in (np.arange(0, 500), np.arange(500, ROWS)):
        of_some = (torch.from_numpy(p[:, some]), torch.from_numpy(y[some]), coded.take(some))
        parts.append(scored(*of_some, []))
    pooled = Scored.pooled(parts, [np.arange(3)] * 2)
    expected = np.sqrt((5 / 7 * parts[0].auc_error) ** 2 + (2 / 7 * parts[1].auc_error) ** 2)
    assert pooled.auc_error == pytest.approx(expected)
    assert np.isnan(found(p, y, groups).auc_error).all()
