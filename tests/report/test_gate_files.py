"""Files about a gate: other programs can read them, and names of groups stay text in them."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import numpy as np
import pytest

from fairij import Audit, audit
from fairij.fairness import Gate, gate
from fairij.report.gate_files import escaped, junit, markdown, sarif

HOSTILE = ("@team <img src=x>|`rm`", "[a](http://x)\n# big \x1b[31m\x00 _u_ *b*")


def made() -> tuple[Gate, Audit]:
    """One limit that is kept, one that is broken, one that is not measured, and a lacking group."""
    rng = np.random.default_rng(0)
    groups = np.repeat(HOSTILE, 500)
    y_true = np.where(groups == HOSTILE[0], rng.integers(2, size=1000), 0)
    y_pred = (rng.random(1000) < np.where(groups == HOSTILE[0], 0.6, 0.3)).astype(int)
    found = audit(y_true, y_pred, sensitive_features=groups)
    limits = {"demographic_parity": 0.9, "accuracy_parity": 0.01, "equal_opportunity": 0.5}
    return gate(found, max_gap=limits, require_groups=["nobody & co"]), found


def test_junit_counts_failures_and_errors() -> None:
    outcome, _ = made()
    suite = ElementTree.fromstring(junit(outcome, "a < b & \x00")).find("testsuite")
    assert suite is not None
    counts = [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == ["4", "1", "2", "0"]
    kinds = [case[0].tag for case in suite.findall("testcase")]
    assert kinds == ["system-out", "failure", "error", "error"]
    assert "nobody & co" in (suite[-1][0].text or "")


def test_sarif_has_a_result_for_each_limit() -> None:
    outcome, _ = made()
    log = json.loads(sarif(outcome, "models/model.txt"))
    (run,) = log["runs"]
    assert log["version"] == "2.1.0"
    kinds = [(result["kind"], result["level"]) for result in run["results"]]
    assert kinds == [("pass", "none"), *[("fail", "error")] * 3]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in run["results"]} == rules
    place = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "models/model.txt"}


def test_markdown_shows_names_as_text() -> None:
    outcome, found = made()
    text = markdown(outcome, found, "Loans | 2026")
    assert text.startswith("## ❌ Loans &#124; 2026\n")
    for sign in ("@", "<img", "`rm`", "[a]", "*b*", "_u_", "\x1b", "\x00"):
        assert sign not in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in tables[:5]} == {5}
    assert len({line.count("|") for line in tables[5:]}) == 1
    for words in ("1 of 3 limits is kept", "not be measured", "nobody &#38; co"):
        assert words in text


def test_first_words_name_the_columns_of_groups() -> None:
    rng = np.random.default_rng(0)
    truth, groups = rng.integers(2, size=400), np.repeat([0, 1], 200)
    found = audit(truth, truth, sensitive_features=groups)
    outcome = gate(found, max_gap={"demographic_parity": 0.9})
    assert "married 1" in markdown(outcome, found, "Loans", "paid", ["married"])


@pytest.mark.parametrize("text", ["plain words, 0.05 (95 %)", "Über 30"])
def test_plain_words_stay_as_they_are(text: str) -> None:
    assert escaped(text) == text
