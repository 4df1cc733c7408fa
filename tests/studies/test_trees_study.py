"""The study of trees in its quick form, on generated tables: units, records, page and figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from fairij_studies import Unit, load_records, redraw, reproduce, run_study
from fairij_studies.objectives import training_objective
from fairij_studies.records import RESULTS
from fairij_studies.tabular.trial import CONSTRAINTS, MEASURES, PARTS
from fairij_studies.trees import SEEDS, make_study
from fairij_studies.trees.data import LOADERS, Places, load_splits, tuning_splits
from fairij_studies.trees.expected import COPIES, expected_rows
from fairij_studies.trees.models import CHOSEN, GRIDS, LIGHTGBM, MODELS, TUNING_SEEDS
from fairij_studies.trees.page import page
from fairij_studies.trees.refit_comparison import (
    EDIT,
    LEAVES,
    PROXIMAL,
    damped_minimum,
    edit_without,
)
from fairij_studies.trees.runs import BASE, FORMS, RIVALS, Case, fitted
from fairij_studies.trees.summary import chosen, compared, refit_means
from sklearn.linear_model import LogisticRegression
from sklearn.utils import Bunch

from fairij.datasets import Split

pytest.importorskip("lightgbm")
pytest.importorskip("xgboost")
pytest.importorskip("fairlearn")


def generated(places: Places, include: bool) -> Bunch:
    rng = np.random.default_rng(0)
    n = 1600
    group = pd.Series(rng.choice(["a", "b"], n), name="group", dtype="category")
    data = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("uvwx"))
    data["u"] += 1.2 * (group == "b")
    data["kind"] = pd.Categorical(rng.choice(["p", "q", "r"], n))
    y = (data["u"] + data["v"] + rng.logistic(size=n) > 0.5).astype("int64")
    if include:
        data["group"] = group
    return Bunch(
        data=data,
        target=y,
        sensitive_features=group,
        split=None,
        includes_sensitive=include,
        sha256={"generated": "0" * 64},
    )


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, Path]:
    with pytest.MonkeyPatch.context() as patch:
        for title in LOADERS:
            patch.setitem(LOADERS, title, generated)
        folder = tmp_path_factory.mktemp("trees")
        return reproduce("trees", folder, quick=True), folder


@pytest.mark.slow
def test_every_method_has_records_of_every_constraint(
    records: tuple[pd.DataFrame, Path],
) -> None:
    frame = compared(records[0], group_is_feature=False)
    assert set(frame["model"]) == set(MODELS)
    assert set(frame["data"]) == set(Places().titles)
    for method in (*FORMS, *RIVALS):
        asked = FORMS.get(method, CONSTRAINTS)
        assert set(frame.loc[frame["method"] == method, "constraint"]) == set(asked)
    numbers = frame[[f"{part}_{name}" for part in PARTS for name in MEASURES]]
    assert numbers.notna().all().all()
    assert numbers.min().min() >= 0
    assert (frame[["n_train", "n_validation", "n_test"]] == 300).all().all()
    seeing = compared(records[0], group_is_feature=True)
    assert set(seeing["method"]) == {BASE, *FORMS, *RIVALS}


@pytest.mark.slow
def test_edits_lower_the_gap_on_validation_rows(records: tuple[pd.DataFrame, Path]) -> None:
    frame = compared(records[0], group_is_feature=False)
    for constraint in CONSTRAINTS:
        table = frame[(frame["constraint"] == constraint) & (frame["method"] == "Fair-IJ")]
        before = frame[frame["method"] == BASE][f"validation_{constraint}"].mean()
        assert table[f"validation_{constraint}"].mean() < 0.6 * before


@pytest.mark.slow
def test_page_and_figures_come_from_the_records_alone(
    records: tuple[pd.DataFrame, Path],
) -> None:
    _, folder = records
    page = (folder / "README.md").read_text()
    for name in ("uci-adult.svg", "refits.svg"):
        assert f"({name})" in page
        assert (folder / name).stat().st_size > 10_000
    (folder / "README.md").unlink()
    redraw("trees", folder, quick=True)  # the generated tables are out of reach here
    assert (folder / "README.md").read_text() == page


@pytest.mark.slow
def test_the_committed_page_is_that_of_the_committed_records() -> None:
    folder = Path(__file__).parents[2] / "studies" / "trees"
    assert page(load_records(folder)) == (folder / "README.md").read_text()


def test_the_setting_is_chosen_on_validation_rows() -> None:
    row = {"data": "d", "model": "m", "seed": 1, "seconds": 1.0, "train_seconds": 1.0}
    gap = "demographic_parity"

    def made(method: str, asked: str | None, validation: float, test: float) -> dict[str, object]:
        measured = {f"validation_{gap}": validation, f"test_{gap}": test}
        more = {"method": method, "constraint": asked, "validation_accuracy": 0.8}
        return row | more | measured | {"test_accuracy": 0.8}

    rows = [made(BASE, None, 0.3, 0.3), made("x", gap, 0.02, 0.05), made("x", gap, 0.04, 0.01)]
    rows.append(made("x", "equal_opportunity", 0.0, 0.9))
    table = chosen(pd.DataFrame(rows), gap).set_index("method")
    assert table.loc["x", "gap"] == 0.05


def test_the_most_accurate_setting_of_a_gap_asked_for() -> None:
    gap, shared = "demographic_parity", {"data": "d", "model": "m", "method": "x", "seconds": 1.0}

    def made(seed: int, accuracy: float, here: float, test: float) -> dict[str, object]:
        measured = {f"validation_{gap}": here, f"test_{gap}": test, "test_accuracy": accuracy}
        more = {"seed": seed, "constraint": gap, "validation_accuracy": accuracy}
        return shared | {"train_seconds": 1.0} | measured | more

    rows = [made(1, 0.8, 0.01, 0.1), made(1, 0.9, 0.02, 0.2), made(1, 0.95, 0.03, 0.3)]
    assert chosen(pd.DataFrame(rows), gap, gap=0.02)["gap"].tolist() == [0.2]
    assert chosen(pd.DataFrame(rows), gap, accuracy=0.9)["gap"].tolist() == [0.2]
    # a seed without any takes its lowest gap
    rows += [made(2, 0.7, 0.05, 0.4), made(2, 0.9, 0.06, 0.6)]
    assert chosen(pd.DataFrame(rows), gap, gap=0.02)["gap"].tolist() == [pytest.approx(0.3)]


@pytest.mark.slow
def test_forms_of_leaving_rows_out_agree_where_none_is_left_out(
    records: tuple[pd.DataFrame, Path],
) -> None:
    table = refit_means(records[0], "validation_surrogate").set_index(["method", "k"])["mean"]
    for form in (PROXIMAL, LEAVES):
        assert table[(form, 0)] == pytest.approx(table[(EDIT, 0)], abs=1e-6)
        assert table[(form, 60)] < table[(form, 0)] - 0.01


def test_a_few_units_of_the_study_run_and_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One unit of each kind on one table; the whole quick form is run by the slow tests."""
    monkeypatch.setitem(LOADERS, "COMPAS", generated)

    def wanted(unit: Unit) -> bool:
        works = (BASE, "Fair-IJ path", "LinearPost")
        return unit.key["work"] in works and unit.key.get("data") == "COMPAS"

    records = run_study(make_study(), tmp_path, quick=True, only=wanted)
    assert set(records["method"]) == {BASE, "Fair-IJ path", "LinearPost"}
    assert set(records["model"]) == {LIGHTGBM}
    numbers = records[[f"{part}_{name}" for part in PARTS for name in MEASURES]]
    assert numbers.notna().all(axis=None)
    assert (tmp_path / RESULTS).is_file()


def test_the_edit_that_is_compared_with_refits_drops_k_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(LOADERS, "COMPAS", generated)
    base = fitted(Case("COMPAS", LIGHTGBM, False, 99, Places("elsewhere"), 300))
    assert len(edit_without(base, 7).dropped_) == 7


@pytest.mark.parametrize("held", [True, False])
def test_the_damped_minimum_is_one(held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of the damped loss, by autograd, vanishes there; small edits approach it."""
    monkeypatch.setitem(LOADERS, "COMPAS", generated)
    base = fitted(Case("COMPAS", LIGHTGBM, False, 99, Places("elsewhere"), 300))
    objective = training_objective(base.model, base.splits.train.X, base.splits.train.y)
    dropped = np.arange(0, 30)
    d = damped_minimum(objective, dropped, 0.01, held)
    kept = torch.ones(300, dtype=torch.float64)
    kept[:30] = 0
    z = objective.model.outputs + objective.model.jvp(d)
    slope = torch.sigmoid(z) - objective.y
    gradient = objective.model.vjp(kept * slope / 300) + 0.01 * d
    if held:
        gradient = gradient - objective.gradient
    assert gradient.norm() < 1e-6 * objective.theta.norm()
    assert d.norm() > 0.01
    nothing = damped_minimum(objective, dropped[:0], 0.01, held)
    assert (float(nothing.norm()) < 1e-9) == held


def test_reported_seeds_and_test_rows_play_no_part_in_choices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not set(SEEDS) & set(TUNING_SEEDS)
    monkeypatch.setitem(LOADERS, "German credit", generated)
    splits = load_splits("German credit", Places("generated"), False, TUNING_SEEDS[0])
    tuned = tuning_splits(splits)
    assert len(tuned.train) + len(tuned.test) == len(splits.train)
    together = np.concatenate([tuned.train.X, tuned.test.X])
    assert np.array_equal(together, splits.train.X)
    for models in CHOSEN.values():
        assert set(models) <= set(MODELS)
        assert all(settings in GRIDS[name] for name, settings in models.items())


def test_whole_study_has_five_seeds_with_and_without_the_group() -> None:
    units = make_study(path="coverage.parquet").units(False)
    keys = pd.DataFrame([dict(unit.key) for unit in units])
    fair = keys[keys["work"] == "Fair-IJ"]
    assert len(fair) == 4 * 4 * 2 * 5
    assert set(keys["seed"]) == set(SEEDS)
    assert (keys["work"] == "left out").sum() == 5


def test_expected_rows_have_labels_and_groups_by_their_chances() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    s = (X[:, 1] + rng.logistic(size=4000) > 0).astype(np.int64)
    y = (X[:, 0] + 0.8 * s + rng.logistic(size=4000) > 0).astype(np.float32)
    train, validation = (
        Split(X[part], y[part], s[part]) for part in (slice(2000), slice(2000, None))
    )
    model = LogisticRegression().fit(train.X, train.y)
    rows = expected_rows(model, train, validation)
    assert len(rows) == COPIES * len(validation)
    chance = rows.y.reshape(COPIES, -1).mean(0)
    assert np.abs(chance - model.predict_proba(validation.X)[:, 1]).max() < 1 / COPIES
    hidden = Split(validation.X, 1 - validation.y, 1 - validation.s)  # not looked at
    again = expected_rows(model, train, hidden)
    assert np.array_equal(again.y, rows.y)
    assert np.array_equal(again.s, rows.s)
    for label in (0, 1):  # P(s | x, y) is learnt from the training rows
        share, seen = (part.s[part.y == label].mean() for part in (rows, validation))
        assert abs(share - seen) < 0.04
