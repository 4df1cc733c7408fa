"""Black boxes on the command line: a column of scores, an ONNX file, any classifier."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import demographic_parity_difference
from sklearn.neighbors import KNeighborsClassifier

from fairij import BlackBox
from plain_files import NUMBERS, Run

COLUMNS = ("--label", "repaid", "--sensitive", "sex")
TABLES = ("--train", "train.csv", "--validation", "validation.csv", "--test", "test.csv")
SEARCH = ("--search", "constrained", "--slack", "0")
FEATURES = tuple(part for name in NUMBERS for part in ("--features", name))


@pytest.fixture
def model(files: Path) -> KNeighborsClassifier:
    """Writes its scores into all tables."""
    train = pd.read_csv(files / "train.csv")
    made = KNeighborsClassifier(15, algorithm="brute").fit(train[NUMBERS], train["repaid"])
    for name in ("train", "validation", "test"):
        table = pd.read_csv(files / f"{name}.csv")
        table["p"] = made.predict_proba(table[NUMBERS])[:, 1].round(6)
        table.to_csv(files / f"{name}.csv", index=False)
    return made


def gap(table: pd.DataFrame, score: str) -> float:
    labels = (table[score] > 0.5).astype(int)
    return float(
        demographic_parity_difference(table["repaid"], labels, sensitive_features=table["sex"])
    )


def test_the_whole_way_of_a_column_of_scores(
    run: Run, files: Path, model: KNeighborsClassifier
) -> None:
    asked = ("mitigate", "--score", "p", *TABLES, *COLUMNS, *SEARCH, "--weights", "w")
    summary = json.loads(run(*asked, "--out", "result", "--json").stdout)
    assert summary["model"] == "black_box.safetensors"
    apply = ("apply", "--score", "p", "--table", "test.csv", "--edit")
    run(*apply, "result/black_box.safetensors", "--out", "scored.csv")
    scored = pd.read_csv("scored.csv")
    assert list(scored.columns[-2:]) == ["fair_score", "fair_prediction"]
    name = "demographic_parity_difference"
    for when, column in (("before", "p"), ("after", "fair_score")):
        told = summary["test"][when]["metrics"][name]["value"]
        assert told == pytest.approx(gap(scored, column), abs=1e-12)
    assert gap(scored, "fair_score") < 0.6 * gap(scored, "p")
    assert scored["fair_prediction"].equals((scored["fair_score"] > 0.5).astype(int))
    box = BlackBox.load("result", lambda rows: rows["p"])
    assert np.allclose(box.predict_proba(scored)[:, 1], scored["fair_score"], atol=1e-12)
    columns = [column.name for column in box.correction_.table.columns]
    assert columns == [*NUMBERS, "job", "race", "note"]

    run("undo", "--model", "result/black_box.safetensors", "--edit", "result/edit.safetensors",
        "--out", "undone.safetensors")  # fmt: skip
    run(*apply, "undone.safetensors", "--out", "again.csv")
    inside = scored["p"].clip(1e-6, 1 - 1e-6)
    assert np.allclose(pd.read_csv("again.csv")["fair_score"], inside, atol=1e-12)

    audit = ("audit", "--model", "result", "--score", "p", "--table", "test.csv", *COLUMNS)
    audited = json.loads(run(*audit, "--json").stdout)
    assert audited["metrics"] == summary["test"]["after"]["metrics"]
    run("report", "result", "--out", "again.html")
    assert Path("again.html").read_text() == Path("result/report.html").read_text()
    run("mitigate", "--config", "result/settings.toml", "--out", "repeated")
    for file in ("edit.safetensors", "black_box.safetensors"):
        assert Path("repeated", file).read_bytes() == Path("result", file).read_bytes()


@pytest.mark.usefixtures("undrawn")
def test_an_onnx_file(run: Run, files: Path, model: KNeighborsClassifier) -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    pytest.importorskip("onnxruntime")
    from sklearn.naive_bayes import GaussianNB

    train = pd.read_csv("train.csv")
    made = GaussianNB().fit(train[NUMBERS].to_numpy("f4"), train["repaid"])
    graph = skl2onnx.to_onnx(made, np.zeros((1, 3), "f4"))
    Path("model.onnx").write_bytes(graph.SerializeToString())
    asked = ("--model", "model.onnx", *COLUMNS, *FEATURES)
    before = json.loads(run("audit", *asked, "--table", "test.csv", "--json").stdout)
    summary = json.loads(
        run("mitigate", *asked, *TABLES, *SEARCH, "--out", "result", "--json").stdout
    )
    assert summary["test"]["before"]["metrics"] == before["metrics"]
    compared = json.loads(
        run(
            "compare", "model.onnx", "result", *COLUMNS, *FEATURES, "--table", "test.csv", "--json"
        ).stdout
    )["models"]
    assert compared["result"]["metrics"] == summary["test"]["after"]["metrics"]
    name = "demographic_parity_difference"
    after = compared["result"]["metrics"][name]["value"]
    assert after < before["metrics"][name]["value"]


@pytest.mark.usefixtures("undrawn")
def test_any_classifier_of_a_skops_file(run: Run, files: Path, model: KNeighborsClassifier) -> None:
    import skops.io

    skops.io.dump(model, "knn.skops")
    asked = ("--model", "knn.skops", *FEATURES, *COLUMNS)
    audited = json.loads(run("audit", *asked, "--table", "test.csv", "--json").stdout)
    table = pd.read_csv("test.csv")
    name = "demographic_parity_difference"
    assert audited["metrics"][name]["value"] == pytest.approx(gap(table, "p"))
    said = run("mitigate", *asked, *TABLES, "--out", "no", code=2).stderr
    assert "--black-box" in said
    run("mitigate", *asked, *TABLES, *SEARCH, "--black-box", "--correction", "trees",
        "--out", "result")  # fmt: skip
    run("apply", "--model", "knn.skops", "--edit", "result/black_box.safetensors", "--table",
        "test.csv", "--out", "scored.parquet", *FEATURES)  # fmt: skip
    assert gap(pd.read_parquet("scored.parquet"), "fair_score") < gap(table, "p")


@pytest.mark.usefixtures("undrawn")
def test_scores_of_an_edited_model_of_another_kind(run: Run, files: Path) -> None:
    run("mitigate", "--model", "model.txt", *TABLES, *COLUMNS, "--slack", "0", "--max-k", "20",
        "--out", "result")  # fmt: skip
    run("apply", "--model", "model.txt", "--edit", "result/edit.safetensors", "--table",
        "test.csv", "--out", "scored.csv")  # fmt: skip
    scored = pd.read_csv("scored.csv")
    summary = json.loads(Path("result/summary.json").read_text())
    told = summary["test"]["after"]["metrics"]["demographic_parity_difference"]["value"]
    assert gap(scored, "fair_score") == pytest.approx(told)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("mitigate", *TABLES, *COLUMNS, "--out", "r"), "A model is needed: name its file"),
        (("mitigate", "--score", "q", *TABLES, *COLUMNS, "--out", "r"), "'q'"),
        (("mitigate", "--score", "income", *TABLES, *COLUMNS, "--out", "r"), "chances from 0 to 1"),
        (
            ("mitigate", "--score", "p", "--model", "model.txt", *TABLES, *COLUMNS, "--out", "r"),
            "leave one of the two out",
        ),
        (
            ("mitigate", "--score", "p", "--correction", "net", *TABLES, *COLUMNS, "--out", "r"),
            "--correction must be one of",
        ),
        (("audit", "--model", "made.onnx", "--table", "test.csv", *COLUMNS), "as an ONNX model"),
        (("audit", "--model", "gone.onnx", "--table", "test.csv", *COLUMNS), "none at gone.onnx"),
        (
            ("apply", "--score", "p", "--edit", "net.safetensors", "--table", "test.csv", "--out",
             "s.csv"),
            "valid edit",
        ),
        (
            ("apply", "--score", "p", "--edit", "net.safetensors", "--out", "s.safetensors"),
            "name the table by --table",
        ),
    ],
)  # fmt: skip
def test_bad_black_boxes(
    run: Run, files: Path, model: KNeighborsClassifier, command: tuple[str, ...], said: str
) -> None:
    (files / "made.onnx").write_bytes(b"no model")
    assert said in " ".join(run(*command, code=2).stderr.split())
