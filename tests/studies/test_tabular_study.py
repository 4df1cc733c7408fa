"""The quick form of the Adult study, from units to README, on the real files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from fairij_studies import adult, coverage, get_study, load_records, redraw, reproduce, run_study
from fairij_studies.driver import Study, Unit
from fairij_studies.records import JOURNAL, RESULTS, append_unit, read_records
from fairij_studies.tabular import trial as trial_module
from fairij_studies.tabular.claims import verdicts
from fairij_studies.tabular.config import QUICK, Effort, Story, Table
from fairij_studies.tabular.editing import BUDGETS, DAMPINGS, Pick, edited_models, fitted, search
from fairij_studies.tabular.methods import COMPARED, EDITED
from fairij_studies.tabular.readme import _methods, _results, readme
from fairij_studies.tabular.runs import (
    baseline_records,
    editing_records,
    further_on_edit_records,
    further_records,
)
from fairij_studies.tabular.summary import ON_EDIT
from fairij_studies.tabular.trial import CONSTRAINTS, MEASURES, base_model, load_trial
from fairij_studies.tabular.units import study_units

from fairij.datasets import Split, Splits, acs
from fairij.errors import InvalidInputError
from fairij.fairness.metrics import demographic_parity_difference
from fairij.solvers import ConjugateGradient

FACTS = {
    "study", "version", "seed", "method", "constraint", "parameter", "value", "data",
    "data_source", "n_train", "n_validation", "n_test", "group_is_feature", "seconds",
    "unit_cpu_seconds",
}  # fmt: skip


RECORDED = Path(__file__).parents[2] / "studies"
TRAINING = [method for method in COMPARED.values() if method.trains]


@pytest.mark.parametrize(
    ("name", "story"),
    [
        pytest.param("adult", adult.STORY, marks=pytest.mark.slow),
        pytest.param("coverage", coverage.STORY, marks=pytest.mark.slow),
    ],
)
def test_the_committed_page_is_that_of_the_committed_records(name: str, story: Story) -> None:
    records = load_records(RECORDED / name)
    assert readme(story, records) == (RECORDED / name / "README.md").read_text()
    settings = records[records["kind"] == "trade_off"]
    setting = ["method", "constraint", "value"]
    assert settings.groupby(setting, dropna=False)["seed"].nunique().eq(10).all()
    expected = {len(m.sweeps[c]) + len(m.further[c]) + 1 for m in TRAINING for c in CONSTRAINTS}
    found = settings[settings["method"].isin([m.label for m in TRAINING])]
    counts = found.groupby(["method", "constraint"])["value"].nunique()
    assert expected == {7}
    assert counts.ge(7).all()  # Coverage has some beyond these


def test_tables_of_the_committed_page_are_those_of_the_committed_records() -> None:
    """The quick part of the test above: the methods, the results on one gap, and one claim."""
    page, records = (RECORDED / "adult" / "README.md").read_text(), load_records(RECORDED / "adult")
    assert _methods(records) in page
    assert _results(records, "demographic_parity") in page
    assert f"- {next(verdicts(records, adult.STORY))}\n" in page


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("adult") / "study"
    reproduce("adult", folder, quick=True)
    return folder


@pytest.fixture(scope="module")
def records(folder: Path) -> pd.DataFrame:
    return load_records(folder, quick=True)


@pytest.mark.slow
def test_every_method_has_records_for_every_constraint_that_it_supports(
    records: pd.DataFrame,
) -> None:
    expected = {("ERM", None)}
    for method in COMPARED.values():
        names = [method.label, *([method.on_edit] if method.on_edit else [])]
        expected |= {
            (name, c) for name in names for c in method.face.constraints if c in CONSTRAINTS
        }
    expected |= {(form.label, c) for form in EDITED.values() for c in form.surrogates}
    rows = records[records["kind"] == "trade_off"]
    found = set(zip(rows["method"], rows["constraint"].astype(object), strict=True))
    assert {(m, None if pd.isna(c) else c) for m, c in found} == expected
    assert {"GapReg-IJ", "FairMixup-IJ", "HGR-IJ", "FST-IJ", "HPS-IJ"} == set(ON_EDIT.values())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fairij.errors.FairIJWarning")  # four epochs are few
def test_further_strengths_give_records_like_the_first() -> None:
    table = next(iter(get_study("adult").units(True))).arguments["table"]
    given: Any = {"table": table, "effort": QUICK, "seed": 20, "constraint": "equalized_odds"}
    (one,) = further_records(**given, label="GapReg", strengths=(5.0,))
    on_edit = further_on_edit_records(**given)
    first = baseline_records(**given, label="GapReg")
    assert set(one) == set(first[-1])
    assert one["value"] == 5.0
    assert [(r["method"], r["value"]) for r in on_edit] == [
        (m.on_edit, v) for m in TRAINING for v in m.further_on_edit["equalized_odds"]
    ]
    assert all(0 <= r["test_equalized_odds"] <= 2 for r in [one, *on_edit])


@pytest.mark.slow
def test_records_are_complete(records: pd.DataFrame) -> None:
    assert set(records.columns) >= FACTS
    measured = [f"{part}_{name}" for part in ("validation", "test") for name in MEASURES]
    assert records[measured].notna().all(axis=None)
    rows = records[records["kind"] == "trade_off"]
    assert rows[["needs_group", "refits", "randomised"]].notna().all(axis=None)
    assert set(rows.loc[rows["needs_group"].astype(bool), "method"]) == {
        "HPS", "HPS-IJ", "RelaxedThresholds",
    }  # fmt: skip
    assert not records["group_is_feature"].any()
    learners = rows.groupby("method")["learner"].first()
    assert learners["ExponentiatedGradient"] == "logistic regression on the hidden layer"


@pytest.mark.slow
def test_all_methods_of_a_seed_start_from_the_same_model(records: pd.DataFrame) -> None:
    measured = [f"test_{name}" for name in MEASURES]
    base = records.loc[records["method"] == "ERM", measured].iloc[0]
    zero = records[(records["method"].isin(["GapReg", "HGR"])) & (records["value"] == 0)]
    assert len(zero) == 6
    assert (zero[measured] == base).all(axis=None)
    assert len(set(records["split_fingerprint"])) == 1


@pytest.mark.slow
def test_a_torn_study_ends_with_the_same_figures(
    folder: Path, records: pd.DataFrame, tmp_path: Path
) -> None:
    """The last Fair-IJ unit is recorded in part; those before it are in a journal of JSON lines."""
    stored = read_records(folder)
    last = max(i for i, record in enumerate(stored) if record["work"] == "Fair-IJ")
    journal = tmp_path / JOURNAL
    for _, unit in groupby(stored[: last + 1], lambda record: record["unit"]):
        append_unit(journal, list(unit))
    journal.write_bytes(journal.read_bytes()[:-40])
    heard: list[int] = []
    again = run_study(
        get_study("adult"), tmp_path, quick=True, progress=lambda _, done, total: heard.append(done)
    )
    assert len(heard) < 20  # units that were recorded are not done again
    columns = ["method", "constraint", "value", *(f"test_{name}" for name in MEASURES)]
    keys = ["work", "constraint", "method", "value"]
    pd.testing.assert_frame_equal(
        again.sort_values(keys)[columns].reset_index(drop=True),
        records.sort_values(keys)[columns].reset_index(drop=True),
    )


@pytest.mark.slow
def test_readme_and_figures_are_drawn_from_records_alone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        pytest.fail("drawing must not read data")

    monkeypatch.setattr("fairij_studies.adult.adult_splits", refuse)
    shutil.copy(folder / RESULTS, tmp_path)
    redraw("adult", tmp_path, quick=True)
    drawn = {path.name for path in tmp_path.iterdir()}
    stems = ("trade-off", "trade-off-error-bars", "influence", "refits")
    assert drawn == {RESULTS, "README.md", *(f"{stem}.svg" for stem in stems)}
    text = (tmp_path / "README.md").read_text()
    assert text == (folder / "README.md").read_text()
    for name in (*COMPARED, *EDITED, *ON_EDIT.values()):
        assert f"| {name} |" in text or f"| *{name}*" in text
    assert "quick form" in text
    assert "nan" not in text.lower().replace("nance", "")
    svg = (tmp_path / "trade-off.svg").read_text()
    assert "Fair-IJ" in svg


TRAINED = Effort(300, 1, None, None, ())


class Rows:
    """A table that is at hand: the label is easier to tell in one group."""

    def splits(self, seed: int) -> Splits:
        rng = np.random.default_rng(seed)

        def part(n: int) -> Split:
            s = rng.integers(0, 2, n)
            X = rng.standard_normal((n, 6)).astype(np.float32)
            X[:, 0] += 0.8 * s
            y = (X[:, 0] + X[:, 1] + 0.5 * rng.standard_normal(n) > 0.5).astype(np.float32)
            return Split(X, y, s.astype(np.int64))

        names = tuple(f"x{i}" for i in range(6))
        return Splits(part(1200), part(600), part(600), names, ("a", "b"), "s", False, seed)

    def source(self) -> str:
        return "drawn"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """One table for all tests, so that its base model is trained once."""
    return Table("drawn", Rows(), str(tmp_path_factory.mktemp("cache")))


@pytest.mark.slow
def test_a_few_units_of_the_study_run_and_are_recorded(table: Table, tmp_path: Path) -> None:
    """One unit of each kind, on a small table; the whole quick form is run by the slow tests."""
    kinds = {"ERM", "GapReg", "FST", "Fair-IJ path", "influence"}

    def units(quick: bool) -> list[Unit]:
        asked = (None, "demographic_parity")
        return [
            replace(unit, arguments={**unit.arguments, "effort": Effort(1, 1, 300, 2, (20,))})
            for unit in study_units(table, quick)
            if unit.key["constraint"] in asked
            and (unit.key["work"] in kinds or unit.key.get("k") == 50)
        ]

    records = run_study(Study("drawn", units, lambda *_: None), tmp_path / "out", quick=True)
    assert set(records["work"]) == {*kinds, "refit"}
    measured = [f"{part}_{name}" for part in ("validation", "test") for name in MEASURES]
    assert records[measured].notna().all(axis=None)
    assert set(records.columns) >= FACTS
    curve = records[records["kind"] == "influence"].iloc[0]
    assert sorted(curve["scores"]) == curve["scores"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
def test_picked_edits_are_those_that_fairij_itself_returns(table: Table) -> None:
    """The cheap way from one table of candidates against a fit of its own."""
    trial = load_trial(table, TRAINED, 3)
    settings = {
        "constraints": "demographic_parity",
        "solver": ConjugateGradient(tolerance=1e-6, max_steps=2000),
    }
    searched = search(trial, dampings=(1e-2,), **settings)
    own = fitted(trial, damping=1e-2, **settings)
    pick = Pick(1.0, len(own.dropped_), float(own.edit_.settings["scale"]), 1e-2)
    (edited,) = edited_models(trial, searched, [pick])
    assert pick.k > 0
    X = torch.from_numpy(trial.splits.test.X)
    torch.testing.assert_close(edited(X), own.estimator_(X), rtol=2e-3, atol=2e-3)
    assert (edited(X) - trial.model(X)).abs().max() > 0.05


@pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
def test_budgets_are_kept_and_the_gap_falls_with_them(table: Table) -> None:
    trial = load_trial(table, TRAINED, 3)
    searched = search(trial, dampings=(1e-2, 1e-1), constraints="demographic_parity")
    frame, gaps = searched.candidates, []
    for pick in searched.picks((0.0, 0.01, 0.03, 1.0)):
        same = (frame["k"] == pick.k) & (frame["scale"] == pick.scale)
        row = frame[same & (frame["damping"] == pick.damping)].iloc[0]
        assert row["accuracy"] >= frame["accuracy"][0] - pick.budget - 1e-9
        gaps.append(row["gap"])
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] == frame["gap"].min() < gaps[0]


def test_measures_are_those_of_the_metrics(table: Table) -> None:
    trial = load_trial(table, QUICK, 3)
    predictor = trial.as_predictor(trial.model)
    test = trial.splits.test
    expected = demographic_parity_difference(
        test.y, predictor.predict(test.X), sensitive_features=test.s
    )
    assert trial.measured(predictor)["test_demographic_parity"] == pytest.approx(expected)


def test_the_base_model_is_trained_once_and_a_damaged_file_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits, calls = Rows().splits(0), []
    train: Callable[..., Any] = trial_module.train_mlp
    monkeypatch.setattr(
        trial_module, "train_mlp", lambda *a, **k: calls.append(1) or train(*a, **k)
    )
    X = torch.from_numpy(splits.test.X)
    outputs = [base_model(splits, 0, 2, tmp_path)(X) for _ in range(2)]
    assert len(calls) == 1
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    outputs.append(base_model(splits, 0, 2, tmp_path)(X))
    assert len(calls) == 2
    assert all(torch.equal(outputs[0], other) for other in outputs[1:])
    base_model(splits, 1, 2, tmp_path)
    assert len(calls) == 3  # another seed is another model


def test_coverage_needs_a_file_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="parquet file"):
        get_study("coverage", path=tmp_path)


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up table in the form of ACSPublicCoverage: white people are covered more often."""
    rng = np.random.default_rng(0)
    n = 6000
    table = {name: rng.integers(1, 3, n).astype(float) for name in acs.CATEGORICAL}
    numbers = {"AGEP": rng.integers(16, 65, n), "SCHL": 16, "PINCP": rng.integers(0, 30_001, n)}
    race = rng.choice([1, 2, 9], n, p=[0.45, 0.45, 0.1])
    poor = numbers["PINCP"] < 12_000 + 9_000 * (race == 1)
    covered = np.where(rng.random(n) < 0.1, ~poor, poor).astype(int)
    table |= numbers | {"ST": 6.0, "RAC1P": race, "PUBCOV": covered, "DIS": race + 0.0}
    file = tmp_path_factory.mktemp("survey") / "survey.parquet"
    pd.DataFrame(table).to_parquet(file)
    return file


@pytest.mark.slow
def test_the_quick_form_of_coverage_from_a_file(survey: Path, tmp_path: Path) -> None:
    reproduce("coverage", tmp_path / "study", quick=True, path=survey)
    records = load_records(tmp_path / "study", quick=True)
    names = {*COMPARED, *EDITED, *ON_EDIT.values()}
    for constraint in CONSTRAINTS:
        here = records[records["constraint"] == constraint]
        assert names - {n for n, f in EDITED.items() if constraint not in f.surrogates} <= set(
            here["method"]
        )
    assert set(records["data"]) == {coverage.OTHER}
    assert records["data_source"].str.startswith("survey.parquet ").all()
    parity = records.groupby("method")["test_demographic_parity"].min()
    assert parity["ERM"] > 0.1 > parity["Fair-IJ"]
    text = (tmp_path / "study" / "README.md").read_text()
    assert coverage.OTHER in text
    assert "not the paper's table" in text


def test_an_unknown_study_is_named_with_those_that_exist() -> None:
    with pytest.raises(InvalidInputError, match="two-moons"):
        get_study("moons")


NEAR_RELATIVES = ("Fair-IJ path balanced", "Fair-IJ cheapest first")  # of the plain path


@pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form.label, marks=[pytest.mark.slow] * (form.label in NEAR_RELATIVES))
        for form in EDITED.values()
        if form.keeps_moves
    ],
)
def test_a_form_that_keeps_its_moves_is_measured_at_every_budget(table: Table, form: str) -> None:
    (constraint, *_) = EDITED[form].surrogates
    records = editing_records(table, TRAINED, 3, constraint, form)
    assert [record["value"] for record in records] == list(BUDGETS)
    assert {record["damping"] for record in records} <= set(DAMPINGS)
    assert records[-1][f"validation_{constraint}"] < records[0][f"validation_{constraint}"]
