"""The study of frontiers: its choices, verdicts, packed tables, journals, and its quick form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fairij_studies import load_records, redraw, reproduce
from fairij_studies.frontier import SEEDS, make_study
from fairij_studies.frontier.__main__ import merge
from fairij_studies.frontier.equal import at_equal_loss, hardest
from fairij_studies.frontier.measured import AS_TRAINED, MODELS, of_scores, within
from fairij_studies.frontier.methods import AUTO, COMPETING, ELSEWHERE, METHODS
from fairij_studies.frontier.page import page
from fairij_studies.frontier.summary import (
    BEST,
    CLOSE,
    FEW,
    WORSE,
    against,
    counts,
    paired,
    verdicts,
)
from fairij_studies.frontier.tables import Source, load_splits, pack, slug
from fairij_studies.frontier.tune import SEEDS as TUNING_SEEDS
from fairij_studies.records import JOURNAL, append_unit, read_records
from fairij_studies.trees.data import ADULT, COMPAS, LOADERS, Places
from fairij_studies.trees.models import LIGHTGBM
from scipy import stats
from sklearn.utils import Bunch

from fairij.datasets import Split
from fairij.errors import InvalidInputError


def generated(places: Places, include: bool) -> Bunch:
    rng = np.random.default_rng(0)
    n = 2400
    group = pd.Series(pd.Categorical(rng.choice(["a", "b"], n)), name="group")
    data = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("uvwx"))
    data["u"] += 1.2 * (group == "b")
    data["count"] = rng.integers(0, 9, n)
    data["kind"] = pd.Categorical(rng.choice(["p", "q", "r"], n), categories=list("pqrz"))
    return Bunch(
        data=data,
        target=(data["u"] + data["v"] + rng.logistic(size=n) > 0.5).astype("int64"),
        sensitive_features=group,
        split=pd.Series(np.where(np.arange(n) < 1600, "train", "test")),
        includes_sensitive=include,
        sha256={"a file": "0" * 64},
    )


def test_a_packed_table_gives_the_same_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LOADERS, ADULT, generated)
    pack(generated(Places(), False), tmp_path / f"{slug(ADULT)}.npz")
    packed = Source(Places(), str(tmp_path))
    expected, found = (load_splits(ADULT, source, 3) for source in (Source(Places()), packed))
    for name in ("feature_names", "groups", "sensitive"):
        assert getattr(found, name) == getattr(expected, name)
    assert "kind_z" in found.feature_names  # a level without rows stays a column
    for part, other in zip(expected, found, strict=True):
        for name in "Xys":
            np.testing.assert_array_equal(getattr(part, name), getattr(other, name))
    with pytest.raises(InvalidInputError, match=r"must hold compas\.npz"):
        load_splits(COMPAS, packed, 3)


def test_the_lowest_gap_within_the_budget_is_taken() -> None:
    before = {"accuracy": 0.80, "gap": 0.2}
    tried = [
        {"accuracy": a, "gap": g, "place": i}
        for i, (a, g) in enumerate([(0.80, 0.2), (0.79, 0.1), (0.795, 0.1), (0.785, 0.01)])
    ]
    assert within(0.01, before, tried)["place"] == 2  # of equal gaps, the more accurate one
    assert within(0.02, before, tried)["place"] == 3
    assert within(0.001, before, tried)["place"] == 0


def test_measures_of_labels_and_of_random_predictions() -> None:
    part = Split(np.zeros((4, 1)), np.array([1, 0, 1, 0]), np.array([0, 0, 1, 1]))
    scores = np.array([0.9, 0.6, 0.8, 0.1])
    found = of_scores(scores, part, "demographic_parity")
    assert found["accuracy"] == 0.75
    assert found["gap"] == 0.5
    assert found["auc"] == 1.0
    assert found["brier"] == pytest.approx((0.01 + 0.36 + 0.04 + 0.01) / 4)
    drawn = of_scores(scores, part, "demographic_parity", randomised=True)
    assert drawn["accuracy"] == pytest.approx((0.9 + 0.4 + 0.8 + 0.9) / 4)
    assert drawn["gap"] == pytest.approx(0.75 - 0.45)


def test_the_interval_is_students() -> None:
    first = pd.Series([0.10, 0.14, 0.12, 0.11], index=[1, 2, 3, 4])
    second = pd.Series([0.05, 0.08, 0.09, 0.50], index=[1, 2, 3, 9])  # 4 and 9 have no partner
    found = paired(first, second)
    low, high = stats.t.interval(
        0.95, 2, loc=np.mean([0.05, 0.06, 0.03]), scale=stats.sem([0.05, 0.06, 0.03])
    )
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.n == 3


def made(gaps: dict[str, list[float]]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                **{"data": "d", "model": "m", "constraint": "demographic_parity", "seed": seed},
                **{"method": method, "rule": "none" if method == AS_TRAINED else "0.01"},
                **{"test_gap": gap, "test_accuracy": 0.8, "test_auc": 0.9, "test_brier": 0.1},
                "test_gap_error": 0.01,
            }
            for method, values in gaps.items()
            for seed, gap in enumerate(values)
        ]
    )


def test_verdicts_are_paired_over_seeds() -> None:
    seeds = np.array([0.0, 0.1, 0.2, 0.3])  # differences between seeds are large, but shared
    records = made(
        {
            AS_TRAINED: list(0.5 + seeds),
            AUTO: list(0.05 + seeds),
            "LinearPost": list(0.06 + seeds + [0, 0.001, 0, 0.001]),
            ELSEWHERE: list(0.051 + seeds + [0.02, -0.02, 0.02, -0.02]),
            "RelaxedThresholds": list(0.01 + seeds),  # sees the group: it cannot be the best
        }
    )
    found = verdicts(records, "0.01", COMPETING).set_index("method")["verdict"]
    assert found.to_dict() == {
        AS_TRAINED: WORSE,
        AUTO: BEST,
        "LinearPost": WORSE,
        ELSEWHERE: CLOSE,
        "RelaxedThresholds": CLOSE,
    }
    table = counts(verdicts(records, "0.01", COMPETING), COMPETING)
    assert table.loc["LinearPost"].to_dict() == {BEST: 0, CLOSE: 0, WORSE: 1}
    assert against(records, "0.01", AUTO, "LinearPost") == {"smaller": 1, "neither": 0, "larger": 0}
    assert against(records, "0.01", "LinearPost", AUTO)["larger"] == 1


def curve(method: str, rules: dict[str, tuple[float, float]]) -> pd.DataFrame:
    """A method's gap and accuracy at each budget, in three seeds that differ a little."""
    rows = [
        {
            **{"data": "d", "model": "m", "constraint": "demographic_parity", "seed": seed},
            **{"method": method, "rule": rule},
            **{"test_gap": gap + 0.001 * seed, "test_accuracy": accuracy + 0.01 * seed},
        }
        for rule, (gap, accuracy) in rules.items()
        for seed in range(3)
    ]
    return pd.DataFrame(rows)


def test_methods_are_compared_where_they_lose_as_much_on_test_rows() -> None:
    ours = {"0.01": (0.10, 0.79), "0.02": (0.06, 0.78), "0.04": (0.02, 0.76), "default": (0, 0.5)}
    records = pd.concat(
        [
            curve(AS_TRAINED, {"none": (0.2, 0.8)}),
            curve(AUTO, ours),
            curve("LinearPost", {"0.01": (0.05, 0.77)}),  # it spends three times its budget
            curve("OxonFair", {"0.01": (0.07, 0.785)}),
            curve("GapReg", {"0.01": (0.015, 0.70)}),
        ]
    )
    found = at_equal_loss(records, "0.01", AUTO, ("LinearPost", "OxonFair", "GapReg"))
    by_rival = found.set_index("rival")
    assert by_rival["budget"].to_dict() == pytest.approx(
        {"LinearPost": 0.03, "OxonFair": 0.015, "GapReg": 0.04}
    )
    assert by_rival["gap"].to_dict() == pytest.approx(
        {"LinearPost": 0.041, "OxonFair": 0.081, "GapReg": 0.021}
    )
    assert by_rival["verdict"].to_dict() == {
        "LinearPost": CLOSE,  # ahead at its budget, behind at its loss
        "OxonFair": WORSE,
        "GapReg": WORSE,
    }
    assert hardest(found)["rival"].tolist() == ["OxonFair"]
    better = pd.concat([records, curve("free", {"0.01": (0.1, 0.81)})])
    free = at_equal_loss(better, "0.01", AUTO, ("free",)).iloc[0]
    assert (free["budget"], free["gap"]) == pytest.approx((0, 0.201))  # nothing may be lost


def test_a_method_with_few_seeds_is_not_judged() -> None:
    records = made({AUTO: [0.05, 0.06, 0.05], "LinearPost": [0.07, 0.08, 0.06], "GapReg": [0.01]})
    found = verdicts(records, "0.01", COMPETING).set_index("method")["verdict"]
    assert found.to_dict() == {AUTO: BEST, "LinearPost": WORSE, "GapReg": FEW}
    assert counts(verdicts(records, "0.01", COMPETING), COMPETING).loc["GapReg"].sum() == 0
    alone = verdicts(records[records["seed"] == 0], "0.01", COMPETING).set_index("method")
    assert alone["verdict"]["GapReg"] == BEST  # none has more seeds


def test_reported_seeds_chose_nothing() -> None:
    assert not set(SEEDS) & {*TUNING_SEEDS, *range(40, 42)}
    units = make_study().units(False)
    assert {unit.key["seed"] for unit in units} == set(SEEDS)
    assert {unit.key["model"] for unit in units} == set(MODELS)
    assert {unit.key["method"] for unit in units} == set(METHODS)
    first = [unit.key["seed"] for unit in units]
    assert first == sorted(first)  # what is stopped early has whole seeds


def test_journals_are_merged_once(tmp_path: Path) -> None:
    journal, study = tmp_path / "away" / JOURNAL, tmp_path / "study"
    for unit in ("one", "two"):
        append_unit(journal, [{"unit": unit, "quick": False, "line": line} for line in (1, 2)])
    merge(study, [journal])
    append_unit(journal, [{"unit": "three", "quick": False, "line": 1}])
    merge(study, [journal, journal])
    units = [record["unit"] for record in read_records(study)]
    assert units == ["one", "one", "two", "two", "three"]


@pytest.mark.slow
def test_the_quick_form_runs_every_method_and_draws_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for needed in ("lightgbm", "fairlearn"):
        pytest.importorskip(needed)
    for title in LOADERS:
        monkeypatch.setitem(LOADERS, title, generated)
    monkeypatch.setenv("FAIRIJ_DATA", str(tmp_path / "cache"))
    records = reproduce("frontier", tmp_path / "out", quick=True)
    assert set(records["method"]) == set(METHODS)
    own = records[(records["model"] == LIGHTGBM) & (records["method"] == AUTO)]
    assert {"0.01", "0.02", "default"} < set(own["rule"])
    assert list((tmp_path / "cache" / "studies" / "scores").glob("*.npz"))
    trained = records[records["method"] == AS_TRAINED].set_index(["data", "model", "constraint"])
    for row in records[records["rule"] == "0.02"].to_dict("records"):
        before = trained.loc[(row["data"], row["model"], row["constraint"])]
        assert row["validation_gap"] <= before["validation_gap"] + 1e-9
        assert row["validation_accuracy"] >= before["validation_accuracy"] - 0.02 - 1e-6
    text = (tmp_path / "out" / "README.md").read_text()
    assert "(verdicts-0.01.svg)" in text
    assert (tmp_path / "out" / "verdicts-0.02.svg").stat().st_size > 5_000
    redraw("frontier", tmp_path / "out", quick=True)
    assert (tmp_path / "out" / "README.md").read_text() == text


@pytest.mark.slow
def test_the_committed_page_is_that_of_the_committed_records() -> None:
    folder = Path(__file__).parents[2] / "studies" / "frontier"
    if not (folder / "README.md").is_file():
        pytest.skip("no page is kept yet")
    assert page(load_records(folder)) == (folder / "README.md").read_text()
