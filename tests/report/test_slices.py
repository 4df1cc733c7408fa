"""Planted slices are found; chance is not named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from scipy.stats import fisher_exact

from fairij.report import slices
from fairij.report.slices import Concentration, concentration
from fairij.report.training_table import TrainingTable

ROWS = 4000


def look(frame: Any, harmful: np.ndarray, names: tuple[str, ...] | None = None) -> Concentration:
    table = TrainingTable(frame, tuple(frame.columns) if names is None else names, None, None)
    return concentration(table, np.flatnonzero(harmful), np.arange(len(harmful)))


def noise(rng: np.random.Generator, rows: int = ROWS) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "city": rng.choice(list("abcdef"), rows),
            "age": rng.normal(40, 10, rows),
            "member": rng.integers(0, 2, rows),
        }
    )


def test_a_planted_value_is_found_with_its_lift_and_its_p_value() -> None:
    rng = np.random.default_rng(0)
    frame = noise(rng)
    harmful = rng.random(ROWS) < np.where(frame["city"] == "c", 0.2, 0.02)
    found = look(frame, harmful)
    first = found.slices[0]
    mine = (frame["city"] == "c").to_numpy()
    assert first.text == "city: c"
    assert first.columns == ("city",)
    assert first.share_harmful == pytest.approx(mine[harmful].mean())
    assert first.share_all == pytest.approx(mine.mean())
    assert first.lift == pytest.approx(mine[harmful].mean() / mine.mean())
    assert {name for s in found.slices for name in s.columns} == {"city"}
    table = [[(mine & harmful).sum(), (~mine & harmful).sum()],
             [(mine & ~harmful).sum(), (~mine & ~harmful).sum()]]  # fmt: skip
    p = fisher_exact(table, alternative="greater")[1]
    assert 0 < p <= first.p_value < 1e-10


def test_a_planted_range_of_numbers_is_found() -> None:
    rng = np.random.default_rng(1)
    frame = noise(rng)
    oldest = frame["age"] > frame["age"].quantile(0.8)
    first = look(frame, rng.random(ROWS) < np.where(oldest, 0.3, 0.03)).slices[0]
    assert first.columns == ("age",)
    assert first.share_all == pytest.approx(0.2, abs=0.01)
    assert first.lift > 2


def test_a_pair_is_named_where_only_both_together_stand_out() -> None:
    rng = np.random.default_rng(2)
    frame = noise(rng)
    both = (frame["city"] == "c") & (frame["member"] == 1)
    found = look(frame, rng.random(ROWS) < np.where(both, 0.5, 0.02))
    assert "city: c and member: 1" in {s.text for s in found.slices}
    pair = next(s for s in found.slices if len(s.columns) == 2)
    singles = [s.lift for s in found.slices if len(s.columns) == 1]
    assert pair.lift > 1.15 * max(singles)


def test_chance_alone_is_hardly_ever_named() -> None:
    named = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        named += len(look(noise(rng), rng.random(ROWS) < 0.05).slices)
    assert named <= 1


def test_two_columns_of_the_same_rows_are_named_once() -> None:
    rng = np.random.default_rng(3)
    frame = noise(rng)
    frame["code"] = frame["city"].map({name: place for place, name in enumerate("abcdef")})
    harmful = rng.random(ROWS) < np.where(frame["city"] == "c", 0.3, 0.02)
    assert [s.text for s in look(frame, harmful).slices] == ["city: c"]


def test_a_sample_of_many_rows_tells_nearly_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    frame = noise(rng, 20_000)
    harmful = rng.random(20_000) < np.where(frame["city"] == "c", 0.2, 0.02)
    whole = look(frame, harmful).slices[0]
    monkeypatch.setattr(slices, "MOST_ROWS", 4000)
    part = look(frame, harmful).slices[0]
    assert part.text == whole.text
    assert part.lift == pytest.approx(whole.lift, rel=0.1)


def test_missing_values_are_a_value() -> None:
    rng = np.random.default_rng(5)
    frame = noise(rng)
    frame.loc[rng.random(ROWS) < 0.2, "age"] = np.nan
    frame.loc[rng.random(ROWS) < 0.2, "city"] = None
    missing = frame["age"].isna() | frame["city"].isna()
    texts = {s.text for s in look(frame, rng.random(ROWS) < np.where(missing, 0.3, 0.02)).slices}
    assert {"age: missing", "city: missing"} <= texts


def test_a_wide_sparse_table_is_searched_where_it_differs() -> None:
    rng = np.random.default_rng(6)
    X = (rng.random((2000, 300)) < 0.1).astype(float)
    harmful = rng.random(2000) < np.where(X[:, 217] > 0, 0.6, 0.05)
    names = tuple(f"word {place}" for place in range(300))
    found = look(csr_matrix(X), harmful, names)
    assert found.slices[0].text == "word 217: 1"
    assert found.tested > 200 * slices.BINS  # the columns left out count as compared


@pytest.mark.parametrize("harmful", [0, 3, ROWS])
def test_too_few_rows_to_compare_give_nothing(harmful: int) -> None:
    frame = noise(np.random.default_rng(7))
    assert look(frame, np.arange(ROWS) < harmful).slices == []


def test_rows_that_are_no_table_give_nothing() -> None:
    images = np.zeros((50, 3, 4, 4))
    found = look(images, np.arange(50) < 10, ())
    assert found.tested == 0
