"""Rows that two tables share are found, and chance twins of coarse tables are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from biased import fair, problem
from fairij.data.overlap import Overlap, overlap
from fairij.errors import SeenRowsWarning

RNG = np.random.default_rng(0)
FINE, OTHER = RNG.normal(size=(300, 4)), RNG.normal(size=(200, 4))
LABELS = RNG.integers(0, 2, 500)


def test_the_same_rows_are_noticed_in_the_same_order_or_another() -> None:
    y = LABELS[:300]
    assert overlap((FINE, y), (FINE.copy(), y)) == Overlap(300, 300, True)
    assert overlap((FINE, y), (FINE[::-1], y[::-1])) == Overlap(300, 300, False)
    source = object()
    assert overlap((source, y), (source, y)) == Overlap(300, 300, True)  # of any form


@pytest.mark.parametrize("form", [np.asarray, pd.DataFrame, torch.tensor])
def test_a_part_of_the_rows_is_noticed_in_every_form(form: Any) -> None:
    mixed, labels = np.concatenate([OTHER, FINE[:50]]), np.concatenate([LABELS[300:], LABELS[:50]])
    assert overlap((form(FINE), LABELS[:300]), (form(mixed), labels)) == Overlap(50, 250, False)
    assert overlap((form(FINE), LABELS[:300]), (form(OTHER), LABELS[300:])) is None
    other = np.concatenate([LABELS[300:], 1 - LABELS[:50]])  # another label: another person
    assert overlap((form(FINE), LABELS[:300]), (form(mixed), other)) is None


def test_people_with_the_same_coarse_row_are_no_mistake() -> None:
    first, second = RNG.integers(0, 3, (2000, 4)), RNG.integers(0, 3, (1000, 4))
    assert np.isin(second @ 3 ** np.arange(4), first @ 3 ** np.arange(4)).mean() > 0.9
    assert overlap((first, first[:, 0]), (second, second[:, 0])) is None
    texts = [f"text {row}" for row in range(300)]
    assert overlap((texts, LABELS[:300]), (texts[250:], LABELS[250:300])) == Overlap(50, 50, False)


def test_twins_by_chance_are_no_mistake_in_any_split() -> None:
    """As in COMPAS: an age, a count of earlier arrests and a charge make many twins."""
    rng = np.random.default_rng(0)
    age, priors = rng.gamma(2, 7, 4000).astype(int), rng.geometric(0.3, 4000)
    X, y = np.stack([age, priors, rng.integers(0, 8, 4000)], 1), rng.integers(0, 2, 4000)
    for _ in range(100):
        order = rng.permutation(4000)
        train, validation, held = order[:2000], order[2000:3000], order[3000:]
        assert overlap((X[train], y[train]), (X[validation], y[validation])) is None
        mixed = np.concatenate([held, train[:500]])
    found = overlap((X[train], y[train]), (X[mixed], y[mixed]))
    assert found is not None
    assert found.rows > 900


@pytest.mark.parametrize("rows", [{"a": FINE}, (FINE, FINE), FINE[:, :, None], [[1], [2, 3]]])
def test_other_forms_are_passed_over(rows: Any) -> None:
    y = LABELS[: len(rows) if isinstance(rows, list) else 300]
    assert overlap((rows, y), (FINE, LABELS[:300])) is None


def test_a_fit_says_so() -> None:
    data = problem()
    seen = {"X_val": data.X, "y_val": data.y, "sensitive_features_val": data.sex}
    with pytest.warns(SeenRowsWarning, match="Of 240 validation rows, 240 are the very rows of"):
        fair().fit(data.X, data.y, **seen)
