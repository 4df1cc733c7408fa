"""Black boxes of four forms on two tables: what a correction closes, and what it costs in AUC.

``python -m benchmarks.black_boxes`` runs every case, ``python -m benchmarks.black_boxes KNN`` those
whose names have a word. A model is trained; then it is only asked: as an estimator, as an ONNX
file, as a column of scores. The edit is for demographic parity between women and men. Groups are
known for validation rows only, and sex is not a feature. Each black box is edited with
``FairIJ(BlackBox(...))`` as it is, and with a target of 0.4 of the gap of validation rows. Models
that can be edited themselves are edited too, with the same target. Figures are of test rows: the
gap by fairlearn, the AUC by scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from fairij_studies.provenance import code_hash
from fairlearn.metrics import demographic_parity_difference
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    StackingClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits

from fairij import BlackBox, Budget, FairIJ, __version__
from fairij.datasets import adult_splits, encode, fetch_university_admissions, three_way_split

RESULTS = Path(__file__).parent / "results" / "black_boxes.json"
SEED = 0
SCORE = "score"  # the column of scores
TARGET = 0.4  # of the gap of the validation rows


@dataclass(frozen=True)
class Part:
    """Rows as a frame of numbers."""

    X: pd.DataFrame
    y: Any
    s: Any

    def with_scores(self, model: Any) -> Part:
        """The same rows with a further column of the model's scores."""
        p = model.predict_proba(self.X.to_numpy())[:, 1]
        return Part(self.X.assign(**{SCORE: p}), self.y, self.s)


Parts = tuple[Part, Part, Part]


def adult() -> Parts:
    """Training and validation rows, and UCI's test rows."""
    splits = adult_splits(SEED)
    names = list(splits.feature_names)
    train, validation, test = (
        Part(pd.DataFrame(part.X, columns=names), part.y.astype(int), part.s) for part in splits
    )
    return train, validation, test


def admissions() -> Parts:
    """Exams and grades of Brazilian students, without their gender."""
    found = fetch_university_admissions(include_sensitive=False)
    y, s = np.asarray(found.target), np.asarray(found.sensitive_features).ravel()
    rows = three_way_split(len(y), SEED)
    made = encode(*(found.data.iloc[some] for some in rows))
    train, validation, test = (
        Part(pd.DataFrame(X, columns=list(made.feature_names)), y[some], s[some])
        for X, some in zip(made.arrays, rows, strict=True)
    )
    return train, validation, test


TABLES: dict[str, Callable[[], Parts]] = {"Adult": adult, "university admissions": admissions}


def stacking() -> StackingClassifier:
    """A logistic regression on a naive Bayes, neighbours and trees."""
    parts = [
        ("bayes", GaussianNB()),
        ("neighbours", KNeighborsClassifier(50)),
        ("trees", HistGradientBoostingClassifier(early_stopping=False, random_state=0)),
    ]
    return StackingClassifier(parts, LogisticRegression(), cv=3, passthrough=True)


@dataclass(frozen=True)
class Case:
    """A model, the form in which it is asked, and whether it can be edited itself."""

    make: Callable[[], Any]
    form: str
    editable: bool


CASES = {
    "KNeighborsClassifier": Case(lambda: KNeighborsClassifier(50), "estimator", editable=False),
    "StackingClassifier": Case(stacking, "estimator", editable=True),
    "GradientBoostingClassifier, ONNX file": Case(
        lambda: GradientBoostingClassifier(random_state=0), "ONNX file", editable=True
    ),
    "HistGradientBoostingClassifier, column of scores": Case(
        lambda: HistGradientBoostingClassifier(early_stopping=False, random_state=0),
        "column of scores",
        editable=True,
    ),
}


def asked(case: Case, model: Any, parts: Parts, folder: Path) -> tuple[Any, Parts]:
    """The model in its form, and the rows that this form takes."""
    if case.form == "column of scores":
        train, validation, test = (part.with_scores(model) for part in parts)
        return SCORE, (train, validation, test)
    train, validation, test = (Part(p.X.to_numpy(np.float32), p.y, p.s) for p in parts)
    if case.form == "estimator":
        return model, (train, validation, test)
    from skl2onnx import to_onnx

    file = folder / "model.onnx"
    made = to_onnx(model, train.X[:1], options={"zipmap": False})
    file.write_bytes(made.SerializeToString())
    return file, (train, validation, test)


def edited(model: Any, parts: Parts, **settings: Any) -> dict[str, float]:
    """A fit with groups of validation rows; measures of the edited model on test rows."""
    train, validation, test = parts
    start = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fair = FairIJ(model, verbose=False, **settings).fit(
            train.X, train.y,
            X_val=validation.X, y_val=validation.y, sensitive_features_val=validation.s,
        )  # fmt: skip
    return measured(fair.estimator_, test) | {"seconds": round(process_time() - start, 1)}


def measured(model: Any, test: Part) -> dict[str, float]:
    labels = np.asarray(model.predict(test.X)).astype(int)
    gap = demographic_parity_difference(test.y, labels, sensitive_features=test.s)
    return {
        "accuracy": float(accuracy_score(test.y, labels)),
        "gap": float(gap),
        "auc": float(roc_auc_score(test.y, model.predict_proba(test.X)[:, 1])),
    }


def run(table: str, name: str) -> dict[str, Any]:
    case, parts = CASES[name], TABLES[table]()
    start = process_time()
    rows = parts[0].X.to_numpy(np.float32)
    model = case.make().fit(rows, parts[0].y)
    trained = process_time() - start
    with tempfile.TemporaryDirectory() as folder:
        box, taken = asked(case, model, parts, Path(folder))
        _, validation, test = taken
        found: dict[str, Any] = {"before": measured(BlackBox(box), test)}
        target = Budget(target=TARGET * measured(BlackBox(box), validation)["gap"])
        found["default"] = edited(BlackBox(box), taken)
        found["target"] = edited(BlackBox(box), taken, selection=target)
    if case.editable:
        plain = [Part(p.X.to_numpy(np.float32), p.y, p.s) for p in parts]
        found["itself"] = edited(model, (plain[0], plain[1], plain[2]), selection=target)
    return found | {
        "training": round(trained, 1),
        "form": case.form,
        "fairij": __version__,
        "code": code_hash(),
        "machine": platform.machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="run only cases or tables with one of these words")
    words = parser.parse_args().words
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for table in TABLES:
        for name in CASES:
            key = f"{table}: {name}"
            if words and not any(word.lower() in key.lower() for word in words):
                continue
            with threadpool_limits(1):
                kept[key] = run(table, name)
            print(key, json.dumps(kept[key]), flush=True)
            RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
