"""`fairij audit --page`: of a model, and of predictions."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from plain_files import Run

OF_MODEL = ("audit", "--model", "model.txt", "--table", "test.csv", "--label", "repaid",
            "--sensitive", "sex")  # fmt: skip


def test_a_model_has_a_page_with_what_was_measured(run: Run, files: Path) -> None:
    shown = run(*OF_MODEL, "--explore", "job", "--page", "audit.html", "--title", "Loans").stdout
    text = (files / "audit.html").read_text(encoding="utf-8")
    for words in (
        "<h1>Loans</h1>",
        "model.txt",
        "test.csv",
        "calibration",
        "Where attributes meet",
    ):
        assert words in text
    assert "Written: audit.html" in shown
    assert "groups were searched, of sex and job" in shown
    assert run(*OF_MODEL, "--page", "audit.html", code=2).stderr.count("--force") == 1
    run(*OF_MODEL, "--page", "audit.html", "--force")
    assert "No further attributes were given" in (files / "audit.html").read_text(encoding="utf-8")


def test_a_table_of_predictions_has_one_too(run: Run, files: Path) -> None:
    frame = pd.read_csv(files / "test.csv")
    frame.assign(said=(frame["income"] > frame["income"].median()).astype(int)).to_csv(
        files / "said.csv", index=False
    )
    asked = ("audit", "--table", "said.csv", "--label", "repaid", "--prediction", "said")
    groups = ("--sensitive", "sex", "--sensitive", "job")
    found = json.loads(run(*asked, *groups, "--page", "audit.html", "--json").stdout)
    assert found["subgroups"]["attributes"] == ["sex", "job"]
    assert (files / "audit.html").stat().st_size > 100_000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--explore", "height"), "height"),
        (("--page", "test.csv", "--force"), "--page must not be"),
        (("--page", "."), "is a folder"),
    ],
)
def test_bad_options_are_refused(run: Run, options: tuple[str, ...], says: str) -> None:
    assert says in run(*OF_MODEL, *options, code=2).stderr
