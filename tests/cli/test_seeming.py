"""Models and tables that are not what they seem, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from plain_files import NUMBERS, Run

SIGMOID = """
import torch
from net import Net

class Probable(Net):
    def forward(self, x):
        return torch.sigmoid(super().forward(x))
"""
COLUMNS = ("--label", "repaid", "--sensitive", "sex")
FEATURES = tuple(part for name in NUMBERS for part in ("--features", name))
NET = ("--model-class", "net.py:Net", "--model-args", '{"inputs": 3}')
PROBABLE = ("--model-class", "probable.py:Probable", "--model-args", '{"inputs": 3}')
SMALL = ("--max-k", "60", "--scale", "1")
AUDIT = ("audit", "--table", "test.csv", "--json")


def test_a_net_that_ends_in_a_sigmoid_is_audited_as_the_net(run: Run, files: Path) -> None:
    (files / "probable.py").write_text(SIGMOID)
    given = (*AUDIT, "--model", "net.safetensors", *COLUMNS, *FEATURES)
    plain, found = (json.loads(run(*given, *net).stdout) for net in (NET, PROBABLE))
    assert found["metrics"] == plain["metrics"]
    assert found["metrics"]["demographic_parity_difference"]["value"] > 0
    stated = json.loads(run(*given, *PROBABLE, "--outputs", "logits").stdout)
    assert stated["metrics"]["accuracy"]["value"] < plain["metrics"]["accuracy"]["value"]


def test_a_wrong_positive_label_is_an_error(run: Run, files: Path) -> None:
    asked = (*AUDIT, "--model", "model.txt", *COLUMNS)
    failed = run(*asked, "--positive", "0", code=2)
    assert "ranks '1' above '0'" in failed.stderr
    assert "in the other order, ('0', '1')" in failed.stderr
    right = json.loads(run(*asked, "--classes", "0", "--classes", "1").stdout)
    assert right["metrics"] == json.loads(run(*asked).stdout)["metrics"]
    confirmed = run(*asked, "--classes", "1", "--classes", "0")
    assert "note: " in confirmed.stderr
    assert "ranks '1' above '0'" in confirmed.stderr
    mitigate = ("mitigate", "--model", "model.txt", "--train", "train.csv", "--out", "out")
    failed = run(
        *(*mitigate, "--validation", "validation.csv", *COLUMNS, "--positive", "0"), code=2
    )
    assert "Here 0 stands for '1', and 1 for '0'." in failed.stderr
    assert not (files / "out").exists()


def test_rates_can_be_about_the_other_label(run: Run, files: Path) -> None:
    table = pd.read_csv("test.csv")
    table.assign(repaid=np.where(table["repaid"] == 1, "paid", "late")).to_csv(
        "words.csv", index=False
    )
    own, other, words = (
        json.loads(run(*AUDIT[:2], *asked, "--json", "--model", "model.txt", *COLUMNS).stdout)
        for asked in (
            ("test.csv",),
            ("test.csv", "--pos-label", "0"),
            ("words.csv", "--positive", "paid", "--pos-label", "late"),
        )
    )
    assert (other["positive_label"], words["positive_label"]) == (0, "late")
    for name, rates in own["by_group"].items():
        for found in (other, words):
            turned = found["by_group"][name]
            assert turned["selection_rate"] == pytest.approx(1 - rates["selection_rate"])
            assert turned["precision"] == pytest.approx(rates["negative_predictive_value"])
            assert turned["accuracy"] == rates["accuracy"]
    assert other["metrics"]["equal_opportunity_difference"] == pytest.approx(
        own["more"]["predictive_equality_difference"], abs=1e-12
    )


def test_an_edit_can_be_about_the_other_label(run: Run, files: Path) -> None:
    asked = ("mitigate", "--model", "model.txt", "--train", "train.csv", *COLUMNS)
    asked = (*asked, "--validation", "validation.csv", "--test", "test.csv", *SMALL)
    said = run(*asked, "--pos-label", "0", "--model-card", "--out", "other").stdout
    assert "Positive label: 0." in said
    assert "“repaid = 0”" in said
    assert "“repaid = 0”" in (files / "other" / "README.md").read_text(encoding="utf-8")
    assert "“repaid = 0”, as was asked for." in (files / "other" / "report.html").read_text("utf-8")
    run("report", "other", "--out", "again.html")
    assert "Positive label: <b>0</b>" in (files / "again.html").read_text("utf-8")
    failed = run(*asked, "--pos-label", "2", "--out", "none", code=2)
    assert "--pos-label 2 is no value of 'repaid'" in failed.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--classes", "0"), "at least two labels"),
        (("--classes", "0", "--classes", "0"), "all different"),
        (("--classes", "0", "--classes", "2"), "but '1' is missing"),
        (("--classes", "0", "--classes", "1", "--positive", "1"), "leave --positive out"),
    ],
)
def test_wrong_classes_are_refused(run: Run, given: tuple[str, ...], said: str) -> None:
    assert said in run(*AUDIT, "--model", "model.txt", *COLUMNS, *given, code=2).stderr


def test_a_group_without_positive_rows_is_not_defined_in_an_audit(run: Run, files: Path) -> None:
    table = pd.read_csv(files / "test.csv")
    table.loc[table["sex"] == table["sex"].iloc[0], "repaid"] = 0
    table.to_csv(files / "test.csv", index=False)
    asked = ("audit", "--table", "test.csv", "--model", "model.txt", *COLUMNS)
    shown = run(*asked).stdout
    assert "equal opportunity gap" in shown
    assert "not defined" in shown
    assert f"{table['sex'].iloc[0]!r} has no rows with label 1 (of " in shown
    found = json.loads(run(*asked, "--json").stdout)
    assert found["metrics"]["equal_opportunity_difference"]["value"] is None
    assert any("has no rows with label 1" in text for text in found["undefined"])
