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


def test_of_many_groups_the_screen_shows_the_ends(run: Run, files: Path) -> None:
    frame = pd.read_csv(files / "test.csv")
    towns = [f"town {row % 20:02d}" for row in range(len(frame))]
    big = pd.concat([frame.assign(town=towns)] * 3)
    big.iloc[:-1].assign(town=[*big["town"][:-2], "hamlet"]).to_csv("towns.csv", index=False)
    asked = ("--table", "towns.csv", "--label", "repaid", "--sensitive", "town")
    asked = ("audit", "--model", "model.txt", *asked)
    shown = run(*asked).stdout
    rates = {
        name: one["selection_rate"]
        for name, one in json.loads(run(*asked, "--json").stdout)["by_group"].items()
    }
    assert "hamlet" in rates
    del rates["hamlet"]  # of one row
    by_rate = sorted(rates, key=lambda name: (rates[name], name))
    shown = shown[shown.index("by group") : shown.index("All groups, with intervals")]
    found = [name for name in rates if name in shown]
    assert set(found) == {*by_rate[:6], *by_rate[-6:]}
    said = " ".join(shown.split())  # the terminal may break the line
    assert "the lowest and the highest selection rate of 20 groups of at least 30 rows" in said
    assert "hamlet" not in shown


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
