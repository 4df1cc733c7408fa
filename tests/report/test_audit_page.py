"""The page of an audit: what it says, what it escapes, what it refuses."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from audit_cases import MAKERS, made
from report_cases import HOSTILE

from fairij import Audit, audit
from fairij.errors import InvalidInputError
from fairij.report import write_audit
from fairij.report.audit_readings import readings
from fairij.report.audit_steps import next_steps
from fairij.report.audit_words import first_words, of_hundred


def text_of(found: Audit, folder: Path, **settings: Any) -> str:
    path = write_audit(found, folder / "audit.html", overwrite=True, **settings)
    body = re.sub(r"<(script|style).*?</\1>", " ", path.read_text(encoding="utf-8"), flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


@pytest.mark.parametrize("name", MAKERS)
def test_every_kind_has_a_page(name: str, tmp_path: Path) -> None:
    found = made(name)
    text = text_of(found, tmp_path, title="Loans & co", facts={"model file": "m<b>.txt"})
    assert "Loans & co" in text
    assert "m<b>.txt" in text
    for group in found.by_group.index:
        assert " ".join(str(group).split()) in text
    assert "nan" not in text.lower().replace("finance", "")


def test_the_figures_are_those_of_the_audit(tmp_path: Path) -> None:
    found, text = made("two"), text_of(made("two"), tmp_path)
    for metric in ("demographic_parity_difference", "equal_opportunity_ratio", "auc"):
        assert f"{found[metric]:.3f}" in text
    for group in ("f", "m"):
        for rate in ("selection_rate", "precision", "negative_predictive_value"):
            assert f"{100 * found.by_group[rate][group]:.1f} %" in text
        assert f"{found.group_scores['value'][(group, 'auc')]:.3f}" in text
        assert f"{found.group_scores['value'][(group, 'brier')]:.3f}" in text
    assert found.subgroups is not None
    assert "sex: f, town: north" in text
    assert f"It compared {found.subgroups.compared} rates" in text
    assert "Holm" in text


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (0.0, "0 of 100"),
        (1.0, "100 of 100"),
        (0.264, "26 of 100"),
        (0.004, "4 of 1,000"),
        (0.996, "996 of 1,000"),
        (0.0001, "fewer than 1 of 1,000"),
        (0.99999, "more than 999 of 1,000"),
        (np.nan, "not defined"),
    ],
)
def test_shares_can_be_read_aloud(rate: float, said: str) -> None:
    assert of_hundred(rate) == said


def of_rates(first: int, second: int, size: int = 1000) -> Audit:
    """Two groups of which so many rows are selected."""
    y_pred = np.concatenate([np.arange(size) < first, np.arange(size) < second]).astype(int)
    y_true = np.tile([0, 1], size)
    return audit(y_true, y_pred, sensitive_features=np.repeat(["a", "b"], size))


@pytest.mark.parametrize(
    ("found", "said", "verdict"),
    [
        (of_rates(300, 500), "60 % of the highest, which is too little", "red"),
        (of_rates(300, 290), "chance alone could make this difference", "green"),
        (of_rates(900, 800), "89 % of the highest, which is enough", "red"),
        (of_rates(48, 75), "but it may be up to", "amber"),  # three points, but half as many
        (of_rates(20, 26, 50), "chance alone could make this difference", "amber"),
        (of_rates(500, 500), "50 of 100 rows in every group", "green"),
    ],
)
def test_the_first_words_say_how_sure_it_is(found: Audit, said: str, verdict: str) -> None:
    assert said in " ".join(first_words(found))
    parity = next(line for line in readings(found) if line.constraint == "demographic_parity")
    assert parity.verdict == verdict


def test_a_bad_label_is_thought_of() -> None:
    said = " ".join(first_words(of_rates(300, 500)))
    assert "If this label is bad for people, the other one counts: there it is 71 %." in said


def test_the_first_words_know_columns_and_several_labels() -> None:
    groups = np.repeat(["22", "53"], 1000)
    truth = np.tile([0, 1], 1000)
    found = audit(truth, np.where(groups == "22", truth, 0), sensitive_features=groups)
    said = " ".join(first_words(found, "default", ["AGE"]))
    assert "“default = 1” to 50 of 100 rows in the group AGE 22 and" in said
    several = " ".join(first_words(made("three")))
    assert re.match(r"The model is right for \d+ of 100 rows in", several)
    assert re.search(r"how often it says “.”: for \d+ of 100 rows .* and for \d+ of 100", several)


def test_the_page_says_on_top_what_was_audited(tmp_path: Path) -> None:
    facts = {"table": "loans.csv, 3,000 rows", "column of true labels": "repaid"}
    text = text_of(made("two"), tmp_path, facts=facts)
    assert "Table: loans.csv, 3,000 rows. Label: repaid." in text[: text.index("The model gives")]


def test_undefined_rates_are_not_green() -> None:
    found = made("undefined")
    lacking = [line for line in readings(found) if line.gap == "not defined"]
    assert lacking
    assert {line.verdict for line in lacking} == {"amber"}
    steps = " ".join(text for _, text, _ in next_steps(found))
    assert "'a' has no rows with label 1" in steps


def test_of_many_groups_only_sure_ones_are_spoken_of() -> None:
    rng = np.random.default_rng(0)
    groups = np.array(["big", "large", *["tiny"] * 3] + ["big", "large"] * 500)
    y_pred = np.concatenate([[1, 1, 1, 1, 1], rng.integers(2, size=1000)])
    words = first_words(audit(y_pred, y_pred, sensitive_features=groups))[0]
    assert "the group tiny" not in words
    assert "of 3 groups, without 1 group with too few such rows" in words


def test_an_audit_is_printed_as_two_tables() -> None:
    found = audit([0, 1, 1, 0], [0.1, 0.9, 0.4, 0.2], sensitive_features=["f", "m", "f", "m"])
    first, second = repr(found).split("\n\n")
    assert "demographic_parity_ratio" in first
    assert "auc " in first
    assert [line.split()[0] for line in second.splitlines()[2:]] == ["f", "m"]


def test_steps_name_commands_that_exist() -> None:
    steps = {name: command for name, _, command in next_steps(made("two"))}
    assert steps["Make it smaller"] == "fairij mitigate … --constraints demographic_parity"
    assert "--sensitive sex --sensitive town" in steps["Look where attributes meet"]
    assert "--score" in {n: c for n, _, c in next_steps(made("many"))}["Give scores too"]


def test_a_notebook_shows_a_table_and_no_code_of_the_data() -> None:
    shown = made("hostile")._repr_html_()
    assert "<script>window" not in shown
    assert "<img src=x" not in shown
    assert html.escape(HOSTILE[1], quote=False).replace("'", "&#39;") in shown
    many = made("many")._repr_html_()
    assert "75 more groups are in" in many
    assert made("real")._repr_html_().count("<table") == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"audit": 3}, "`audit` must be what fairij.audit returns, got int"),
        ({"path": ""}, "`path`"),
        ({"facts": ["model.txt"]}, "`facts` must be a mapping of names to values"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    given = {"audit": made("undefined"), "path": tmp_path / "audit.html"} | change
    with pytest.raises(InvalidInputError, match=re.escape(says)):
        write_audit(given.pop("audit"), **given)


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "audit.html"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_audit(made("undefined"), path)
    assert path.read_text() == "mine"
    assert write_audit(made("undefined"), path, overwrite=True) == path
