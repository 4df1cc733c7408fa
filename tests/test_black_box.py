"""Any model as a black box: fits, files, forms of scores, and bad ones."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import demographic_parity_difference
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import StackingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import TunedThresholdClassifierCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from biased import problem
from fairij import AccuracyBudget, BlackBox, FairIJ, Grid
from fairij.errors import FairIJWarning, InvalidInputError, WrongModelError
from fairij.storage.black_boxes import FILE

DATA = problem(n=400, n_val=600)
FRAME, FRAME_VAL = (pd.DataFrame(X, columns=list("abcd")) for X in (DATA.X, DATA.X_val))
MODEL = KNeighborsClassifier(15).fit(DATA.X, DATA.y)
GROUPS = {"y_val": DATA.y_val, "sensitive_features_val": DATA.sex_val}


def fit(
    box: Any, X: Any = DATA.X, X_val: Any = DATA.X_val, y: Any = DATA.y, **settings: Any
) -> FairIJ:
    settings = {"search": "constrained", "selection": AccuracyBudget(0.05), **settings}
    given = {**GROUPS, "X_val": X_val}
    if "y_val" in settings:
        given["y_val"] = settings.pop("y_val")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairIJWarning)
        return FairIJ(box, **settings).fit(X, y, **given)


def gap(labels: Any) -> float:
    found = demographic_parity_difference(DATA.y_val, labels, sensitive_features=DATA.sex_val)
    return float(found)


@cache
def estimators() -> dict[str, Any]:
    svc = CalibratedClassifierCV(SVC(), ensemble=False, cv=2)
    stacked = StackingClassifier(
        [("nb", GaussianNB().fit(DATA.X, DATA.y)), ("knn", MODEL)], cv="prefit"
    )
    tuned = TunedThresholdClassifierCV(LogisticRegression(), cv=2)
    models = {"knn": MODEL, "calibrated svm": svc, "stacking": stacked, "tuned": tuned}
    return {name: model.fit(DATA.X, DATA.y) for name, model in models.items()}


ANY = ("knn", "calibrated svm", "stacking", "tuned")


@pytest.mark.parametrize(
    ("correction", "name"),
    [
        *(("linear", name) for name in ANY),
        ("trees", "knn"),
        *(pytest.param("trees", name, marks=pytest.mark.slow) for name in ANY[1:]),
    ],
)
def test_the_gap_of_any_estimator_shrinks_and_the_model_stays(name: str, correction: str) -> None:
    model = estimators()[name]
    before = model.predict_proba(DATA.X_val)
    fair = fit(BlackBox(model, correction=correction), selection="lowest_gap")
    labels = (before[:, 1] > 0.5).astype(int)
    assert fair.candidates_["gap"][0] == pytest.approx(gap(labels), abs=1e-12)
    edited = fair.estimator_
    assert gap(edited.predict(DATA.X_val)) < 0.5 * gap(labels)
    assert np.array_equal(edited.predict(DATA.X_val), fair.predict(DATA.X_val))
    assert np.array_equal(model.predict_proba(DATA.X_val), before)
    undone = fair.edit_.undo(edited)
    assert not undone.theta_.any()
    inside = np.clip(before, 1e-6, 1 - 1e-6)
    assert np.allclose(undone.predict_proba(DATA.X_val), inside, atol=1e-12)
    assert np.array_equal(fair.edit_.apply(undone).theta_, edited.theta_)


@pytest.mark.parametrize("search", ["auto", "reweight", "path", Grid(points=3)])
def test_every_search_edits_a_black_box(search: Any) -> None:
    fair = fit(BlackBox(MODEL.predict_proba), search=search)
    assert fair.candidates_["gap"][fair.chosen_] <= fair.candidates_["gap"][0]
    assert fair.estimator_.theta_.any()


def test_a_function_a_column_and_an_estimator_are_the_same() -> None:
    scores, scores_val = (MODEL.predict_proba(X) for X in (DATA.X, DATA.X_val))
    table, table_val = FRAME.assign(p=scores[:, 1]), FRAME_VAL.assign(p=scores_val[:, 1])
    ways = [
        fit(BlackBox(MODEL)),
        fit(BlackBox(MODEL.predict_proba)),
        fit(BlackBox(lambda X: MODEL.predict_proba(X)[:, 1], batch_size=150)),
        fit(BlackBox("p"), table, table_val),
    ]
    rows = [DATA.X_val] * 3 + [table_val]
    found = [fair.predict_proba(X) for fair, X in zip(ways, rows, strict=True)]
    for one in found[1:]:
        assert np.allclose(one, found[0], atol=1e-9)
    assert [c.name for c in ways[3].estimator_.correction_.table.columns] == list(FRAME)


def test_an_onnx_file_is_asked_as_the_model_it_came_from(tmp_path: Path) -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    pytest.importorskip("onnxruntime")
    model = GaussianNB().fit(DATA.X.astype("f4"), DATA.y)
    for zipmap in (True, False):
        made = skl2onnx.to_onnx(model, DATA.X[:1].astype("f4"), options={"zipmap": zipmap})
        target = tmp_path / f"{zipmap}.onnx"
        target.write_bytes(made.SerializeToString())
        own = BlackBox(model).predict_proba(DATA.X_val.astype("f4"))
        assert np.allclose(BlackBox(str(target)).predict_proba(DATA.X_val), own, atol=1e-5)
    fair = fit(BlackBox(target))
    assert gap(fair.predict(DATA.X_val)) < 0.6 * gap(model.predict(DATA.X_val))


@pytest.mark.parametrize("correction", ["linear", "trees"])
def test_a_saved_correction_is_the_same(correction: str, tmp_path: Path) -> None:
    fair = fit(BlackBox(MODEL, correction=correction))
    fair.estimator_.save(tmp_path)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        fair.estimator_.save(tmp_path)
    again = BlackBox.load(tmp_path, MODEL.predict_proba)
    assert np.array_equal(
        again.predict_proba(DATA.X_val), fair.estimator_.predict_proba(DATA.X_val)
    )
    assert again.correction == correction
    assert not fair.edit_.undo(again).theta_.any()
    with pytest.raises(InvalidInputError, match="no correction to save"):
        BlackBox(MODEL).save(tmp_path / "other")


def test_words_missing_values_and_constant_columns_of_raw_tables() -> None:
    rng = np.random.default_rng(0)

    def table(X: Any, sex: Any) -> pd.DataFrame:
        jobs = np.where(rng.random(len(X)) < 0.8, np.where(sex == 1, "clerk", "nurse"), "cook")
        jobs = jobs.astype(object)
        jobs[:3] = None, "pilot", np.nan
        frame = pd.DataFrame({"a": X[:, 0], "job": jobs, "one": 1.0, "ok": X[:, 0] > 0})
        frame.loc[5, "a"] = np.nan
        return frame.astype({"job": "category"} if len(X) > 500 else {})

    sex = rng.integers(0, 2, len(DATA.X))
    X, X_val = (
        table(DATA.X, sex),
        table(DATA.X_val, np.unique(DATA.sex_val, return_inverse=True)[1]),
    )
    fair = fit(BlackBox(lambda rows: 1 / (1 + np.exp(-rows["a"].fillna(0).to_numpy()))), X, X_val)
    table_of = fair.estimator_.correction_.table
    assert table_of.columns[1].words == ("clerk", "nurse", "cook") or set(
        table_of.columns[1].words
    ) == {"clerk", "nurse", "cook"}
    assert table_of.columns[2].scale == 0
    strange = X_val.iloc[:4].assign(job=["pilot", None, "nurse", "x"], one=7.0, a=np.inf)
    assert np.isfinite(fair.predict_proba(strange)).all()


def test_labels_may_be_words_and_classes_three() -> None:
    words = np.array(["no", "yes"])
    model = KNeighborsClassifier(9).fit(DATA.X, words[DATA.y])
    fair = fit(BlackBox(model.predict_proba), y=words[DATA.y], y_val=words[DATA.y_val])
    assert set(fair.estimator_.predict(DATA.X_val)) <= {"no", "yes"}
    three = problem("three")
    model = KNeighborsClassifier(9).fit(three.X, three.y)
    fair = FairIJ(BlackBox(model), search="constrained", selection="lowest_gap")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairIJWarning)
        three.fit(fair)
    assert fair.candidates_["gap"][fair.chosen_] < fair.candidates_["gap"][0]
    assert fair.estimator_.predict_proba(three.X_val).shape[1] == 3


def answers(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda X: change(MODEL.predict_proba(X)[:, 1])


RNG = np.random.default_rng(1)
BAD_ANSWERS: dict[str, tuple[Any, str]] = {
    "labels": (MODEL.predict, "only 0 and 1, which are labels"),
    "words": (lambda X: np.full(len(X), "yes"), "not the one that gives labels"),
    "log-odds": (answers(lambda p: 8 * p - 4), "turn log-odds s into chances"),
    "missing": (answers(lambda p: np.where(p > 0.9, np.nan, p)), "gives nan for row"),
    "too few": (answers(lambda p: p[:-1]), "for 32 rows .* shape \\(31,\\)"),
    "one for all": (answers(lambda p: p.mean()), "array of shape \\(\\)"),
    "not summing": (answers(lambda p: np.c_[p, p]), "sum to one in every row"),
    "by chance": (answers(lambda p: np.clip(p + RNG.normal(0, 0.1, len(p)), 0, 1)), "asked twice"),
    "by the table": (answers(lambda p: p / p.max() if len(p) > 40 else p / 3), "asked twice"),
    "down": (answers(lambda p: 1 / 0), "failed: ZeroDivisionError: division by zero. Give it"),
    "no model": (3, "must be a function of rows, a model that has `predict_proba`"),
    "a class": (GaussianNB, "got GaussianNB"),
    "no scores": (SVC().fit(DATA.X, DATA.y), "nothing that can be corrected: calibrate it"),
    "no file": ("nowhere.onnx", "there is none at nowhere.onnx"),
    "no column": ("score", "a frame with the column of scores 'score'"),
    "unfitted": (KNeighborsClassifier(), "failed: NotFittedError"),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_answers_that_are_no_chances(name: str) -> None:
    model, said = BAD_ANSWERS[name]
    with pytest.raises(InvalidInputError, match=said):
        fit(BlackBox(model))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"correction": "network"}, "`correction` must be one of"),
        ({"columns": ["z"]}, "`columns` must be some of the columns"),
        ({"columns": []}, "`columns` must be some of the columns"),
        ({"batch_size": 0}, "`batch_size` must be a whole number"),
        ({"clip": 0.7}, "`clip` must be a number, above 0 and below 0.5"),
        ({"classes": ["a", "b", "c"]}, "has 3 labels"),
    ],
)
def test_bad_settings_of_a_black_box(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        fit(BlackBox(MODEL, **settings))


def test_bad_rows_of_a_black_box() -> None:
    fair = fit(BlackBox(lambda X: 1 / (1 + np.exp(-X["b"]))), FRAME, FRAME_VAL).estimator_
    with pytest.raises(InvalidInputError, match="'a' is missing"):
        fair.predict_proba(FRAME_VAL.rename(columns={"a": "z"}))
    with pytest.raises(InvalidInputError, match="must have numbers in the column 'a'"):
        fair.predict_proba(FRAME_VAL.assign(a="many"))
    with pytest.raises(WrongModelError, match="another model"):
        fit(BlackBox(MODEL)).edit_.undo(fair)
    with pytest.raises(InvalidInputError, match="Of texts or images"):
        fit(BlackBox(lambda X: np.full(len(X), 0.5)), list("ab" * 200), list("ab" * 300))
    text = CalibratedClassifierCV(LogisticRegression(), cv=2).fit(DATA.X, DATA.y)
    with pytest.raises(InvalidInputError, match=r"FairIJ\(BlackBox\(model\)\)"):
        fit(text)


DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a circle": lambda made: made["trees"][0]["left"].__setitem__(1, 0),
    "outside": lambda made: made["trees"][0]["right"].__setitem__(0, 99),
    "a feature": lambda made: made["trees"][0]["feature"].__setitem__(0, 7),
    "lengths": lambda made: made["trees"][0]["threshold"].pop(),
    "no number": lambda made: made["trees"][0]["threshold"].__setitem__(0, float("nan")),
    "a column": lambda made: made["table"]["columns"][0].__setitem__("name", 12),
    "twice": lambda made: made["table"]["columns"][1].__setitem__("name", 0),
    "outputs": lambda made: made.__setitem__("outputs", 3),
    "scale": lambda made: made["table"]["columns"][0].__setitem__("scale", -1.0),
    "nothing": lambda made: made.clear(),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a black box that is corrected by trees."""
    folder = tmp_path_factory.mktemp("saved")
    fit(BlackBox(MODEL, correction="trees")).estimator_.save(folder)
    return folder


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files_are_refused(name: str, saved: Path, tmp_path: Path) -> None:
    from fairij.storage.checksummed import read_sealed, write_sealed

    header, tensors = read_sealed(saved / FILE, "fairij.black_box/1")
    made = json.loads(header["correction"])
    DAMAGE[name](made)
    write_sealed(tmp_path / FILE, tensors, {**header, "correction": json.dumps(made)})
    with pytest.raises(InvalidInputError, match="does not hold the correction of a black box"):
        BlackBox.load(tmp_path, MODEL)


def test_files_of_other_bytes_are_refused(tmp_path: Path) -> None:
    fit(BlackBox(MODEL)).estimator_.save(tmp_path)
    content = bytearray((tmp_path / FILE).read_bytes())
    for place in (3, 40, len(content) // 2, len(content) - 2):
        changed = content.copy()
        changed[place] ^= 1
        (tmp_path / FILE).write_bytes(changed)
        with pytest.raises(InvalidInputError, match="does not hold"):
            BlackBox.load(tmp_path, MODEL)
