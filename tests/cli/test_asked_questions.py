"""Questions and decisions on the command line: strata, attributes one by one, labels, cut-offs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import (
    MetricFrame,
    demographic_parity_difference,
    equal_opportunity_difference,
    selection_rate,
)

from plain_files import Run, as_categories

TABLES = ("--train", "train.csv", "--validation", "validation.csv", "--test", "test.csv")
MODEL = ("--model", "model.txt", *TABLES, "--label", "repaid")
QUICK = ("--search", "grid", "--max-k", "40", "--slack", "0", "--json")
PAGE = "result/report.html"
GAP = "demographic_parity_difference"


def mitigate(run: Run, *more: str, code: int = 0) -> Any:
    result = run("mitigate", *MODEL, *more, *QUICK, "--out", "result", "--force", code=code)
    return json.loads(result.stdout) if code in (0, 3) else result.stderr


def chances(name: str = "test", model: str = "result/model.txt") -> tuple[pd.DataFrame, Any]:
    """A table, and the library's own chances of its rows."""
    table = pd.read_csv(f"{name}.csv")
    rows = as_categories(table).rename(columns=lambda c: c.replace(" ", "_"))
    return table, lightgbm.Booster(model_file=model).predict(rows)


def facts() -> str:
    """What the page says that it is about."""
    about = Path(PAGE).read_text().partition("What this page is about")[2]
    return about.partition("</table>")[0].partition("</dl>")[0]


def test_strata_and_an_identifier(run: Run, files: Path) -> None:
    found = mitigate(run, "--sensitive", "sex", "--control", "race", "--identifier", "note")
    table, p = chances()
    each = MetricFrame(
        metrics=selection_rate,
        y_true=table["repaid"],
        y_pred=p > 0.5,
        sensitive_features=table["sex"],
        control_features=table["race"],
    ).difference()
    after = {
        line["view"]: line["value"]
        for line in found["test"]["after"]["views"]
        if line["metric"] == GAP
    }
    assert after == pytest.approx(each.to_dict())
    whole = np.average(each, weights=table["race"].value_counts()[each.index])
    assert found["test"]["after"]["metrics"][f"{GAP}_within_strata"]["value"] == pytest.approx(
        whole
    )
    scores = pd.read_csv("result/influence.csv")
    assert scores["id"].tolist() == pd.read_csv("train.csv")["note"].tolist()
    page = Path(PAGE).read_text()
    assert "The gap of each stratum" in page
    run("report", "result", "--force")
    assert "The gap of each stratum" in Path(PAGE).read_text()


def test_attributes_one_by_one(run: Run, files: Path) -> None:
    both = ("--sensitive", "sex", "--sensitive", "race", "--marginals")
    found = mitigate(run, *both)
    table, p = chances()
    for name in ("sex", "race"):
        gap = demographic_parity_difference(
            table["repaid"], p > 0.5, sensitive_features=table[name]
        )
        (line,) = (
            one
            for one in found["test"]["after"]["views"]
            if (one["view"], one["metric"]) == (name, GAP)
        )
        assert line["value"] == pytest.approx(gap)
    top = Path(PAGE).read_text().partition("What this page is about")[0]
    assert "(sex 0." in top
    assert "; race 0." in top
    table.assign(p=p).to_csv("scored.csv", index=False)
    asked = ("audit", "--table", "scored.csv", "--score", "p", "--label", "repaid", *both)
    plain = run(*asked, "--page", "audit.html").stdout
    assert "each stratum, or sensitive column" in plain
    assert "of each sensitive column" in Path("audit.html").read_text()


def test_the_favourable_label_is_not_the_models_own(run: Run, files: Path) -> None:
    asked = ("--sensitive", "sex", "--pos-label", "0", "--threshold", "0.4")
    found = mitigate(run, *asked, "--constraints", "equal_opportunity")
    table, p = chances()
    late, refused = 1 - table["repaid"], (1 - p >= 0.4).astype(int)
    gap = equal_opportunity_difference(late, refused, sensitive_features=table["sex"])
    after = found["test"]["after"]
    assert after["metrics"]["equal_opportunity_difference"]["value"] == pytest.approx(gap)
    assert after["positive_label"] == 0
    run(
        *("apply", "--model", "model.txt", "--edit", "result/edit.safetensors"),
        *("--table", "test.csv", "--out", "scored.csv"),
    )
    scored = pd.read_csv("scored.csv")
    assert (scored["fair_prediction"] == 0).astype(int).tolist() == refused.tolist()
    asked = ("audit", "--model", "result/model.txt", "--table", "test.csv", "--label", "repaid")
    told = json.loads(run(*asked, "--sensitive", "sex", "--pos-label", "0", "--json").stdout)
    assert told["metrics"]["equal_opportunity_difference"]["value"] == pytest.approx(
        equal_opportunity_difference(late, (p <= 0.5), sensitive_features=table["sex"])
    )


def test_both_words_of_a_model_without_words(run: Run, files: Path) -> None:
    for name in ("train", "validation", "test"):
        table = pd.read_csv(f"{name}.csv")
        words = np.where(table["repaid"] == 1, "paid", "late")
        table.assign(repaid=words).to_csv(f"{name}.csv", index=False)
    classes = ("--sensitive", "sex", "--classes", "late", "--classes", "paid")
    asked = ("audit", "--model", "model.txt", "--table", "test.csv", "--label", "repaid", *classes)
    usual = json.loads(run(*asked, "--json").stdout)
    turned = json.loads(run(*asked, "--pos-label", "late", "--json").stdout)
    assert (usual["positive_label"], turned["positive_label"]) == ("paid", "late")
    first, other = (one["by_group"]["f"]["selection_rate"] for one in (usual, turned))
    assert first == pytest.approx(1 - other)
    said = run(*asked, "--pos-label", "never", code=2).stderr
    assert "--pos-label never is no value of 'repaid'" in said


def test_groups_that_are_missing_weights_of_a_survey_and_chances(run: Run, files: Path) -> None:
    for name in ("train", "validation", "test"):
        table = pd.read_csv(f"{name}.csv")
        table["known"] = table["sex"].where(np.arange(len(table)) % 3 > 0)
        table["p f"] = np.where(table["sex"] == "f", 0.9, 0.1)
        table["p m"] = 1 - table["p f"]
        table.to_csv(f"{name}.csv", index=False)
    said = mitigate(run, "--sensitive", "known", code=2)
    assert "missing value(s) in 'known'" in said
    found = mitigate(
        *(run, "--sensitive", "known", "--missing-groups", "ignore", "--validation-weights", "w")
    )
    table, p = chances()
    own = table["known"].notna()
    gap = demographic_parity_difference(
        table["repaid"][own],
        p[own] > 0.5,
        sensitive_features=table["known"][own],
        sample_weight=table["w"][own],
    )
    after = found["test"]["after"]
    assert after["metrics"][GAP]["value"] == pytest.approx(gap)
    assert "rows have no group. They count" in facts()
    right = np.average((p > 0.5) == table["repaid"], weights=table["w"])
    assert after["metrics"]["accuracy"]["value"] == pytest.approx(right)
    found = mitigate(run, "--sensitive", "p f", "--sensitive", "p m", "--group-chances")
    p = chances()[1] > 0.5
    rates = [np.average(p, weights=table[name]) for name in ("p f", "p m")]
    assert found["test"]["after"]["metrics"][GAP]["value"] == pytest.approx(
        abs(np.subtract(*rates))
    )
    assert "chances only" in " ".join(found["test"]["after"]["notes"])
    assert "Groups are known as chances only" in facts()


def test_the_page_names_the_cut_off(run: Run, files: Path) -> None:
    mitigate(run, "--sensitive", "sex", "--threshold", "0.3")
    assert "at a cut-off of 0.3, as was asked for" in facts()
    mitigate(run, "--sensitive", "sex", "--threshold", "top=0.1")
    assert "the 10% of the rows with the highest scores" in facts()
    mitigate(run, "--sensitive", "sex")
    assert "cut-off" not in facts()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--control", "nothing"), "'nothing'"),
        (("--control", "income"), "--control must make at most 100 strata"),
        (("--marginals",), "two or more sensitive columns"),
        (("--marginals", "--group-chances"), "leave one of the two out"),
        (("--group-chances",), "at least two columns"),
        (("--missing-groups", "drop"), "must be one of error, ignore"),
        (("--threshold", "2"), "--threshold must be a chance above 0 and below 1"),
        (("--pos-label", "7"), "--pos-label 7 is no value of 'repaid'"),
        (("--identifier", "nobody"), "'nobody'"),
        (("--validation-weights", "job"), "must be numbers"),
    ],
)
def test_what_cannot_be_asked(run: Run, files: Path, more: tuple[str, ...], said: str) -> None:
    assert said in mitigate(run, "--sensitive", "sex", *more, code=2)


def test_strata_need_a_table_of_validation_rows(run: Run, files: Path) -> None:
    asked = ("mitigate", "--model", "model.txt", "--train", "train.csv", "--label", "repaid")
    more = ("--sensitive", "sex", "--control", "race", "--out", "result")
    assert "--control must go with --validation" in run(*asked, *more, code=2).stderr
