"""The outcome of a gate for people and machines: Markdown, JUnit XML and SARIF."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from fairij._version import __version__
from fairij.errors import printable
from fairij.fairness import Audit
from fairij.fairness.gates import Gate, Judged
from fairij.report.audit_readings import share
from fairij.report.audit_words import first_words
from fairij.report.wording import measured, plain

MARKS = {"kept": "✅", "broken": "❌", "not measured": "⚠️"}
MOST_GROUPS = 20  # in a comment on a pull request
MEANING = re.compile(r"[^\w\s.,:;%()/“”–−✅❌⚠️-]")  # noqa: RUF001 - what Markdown or HTML may read
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


def markdown(
    gate: Gate, audit: Audit, title: str, column: str = "", columns: Sequence[str] = ()
) -> str:
    """A comment for a pull request: the outcome, the limits, the rates of the groups.

    ``column`` and ``columns`` are the names of the labels and of the groups.
    """
    mark = "✅" if gate.passed else "❌"
    table = audit.by_group.head(MOST_GROUPS)
    rates = [str(name) for name in table if name != "count"]
    values = [[_shown(name, rate) for rate in table[name]] for name in rates]
    sizes = [f"{count:,.0f}" for count in table["count"]]
    groups = list(zip(map(str, table.index), sizes, *values, strict=True))
    limits = [
        [MARKS[one.outcome], one.limit.words, measured(one.value), one.text] for one in gate.judged
    ]
    more = len(audit.by_group) - len(groups)
    parts = [
        f"## {mark} {escaped(title)}",
        escaped(gate.text),
        *map(escaped, first_words(audit, column, columns)),
        _table(["", "limit", "measured", "what that means"], limits),
        "<details><summary>Rates by group</summary>\n\n"
        + _table(["group", "rows", *map(plain, rates)], groups)
        + (f"\n\n{more} more groups are not shown." if more else "")
        + "\n\n</details>",
        *map(escaped, (*audit.undefined, *audit.notes)),
        f"{escaped(_rule(gate))} Written by fairij {__version__}.",
    ]
    return "\n\n".join(parts) + "\n"


def _rule(gate: Gate) -> str:
    by = "its whole interval is beyond it" if gate.certain else "the measured value is beyond it"
    return (
        f"A limit is broken if {by} ({100 * gate.confidence:g} % intervals). What could not be "
        f"measured, or rests on groups of fewer than {gate.min_rows} rows, is not kept."
    )


def _shown(name: str, value: float) -> str:
    return measured(value) if name.startswith("mean") else share(value)


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    texts = [[cell if cell == "---" else escaped(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in texts)


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: no link, no mention, no HTML, no new cell or line."""
    one_line = " ".join(printable(str(text)).split())
    return MEANING.sub(lambda found: f"&#{ord(found[0])};", one_line.replace("_", "&#95;"))


def junit(gate: Gate, title: str) -> str:
    """JUnit XML: a test for each limit; broken ones have failed, unmeasured ones have errors."""
    bad = {kind: sum(one.outcome == kind for one in gate.judged) for kind in MARKS}
    suite = ElementTree.Element(
        "testsuite",
        name=_xml(title),
        tests=str(len(gate.judged) + bool(gate.lacking)),
        failures=str(bad["broken"]),
        errors=str(bad["not measured"] + bool(gate.lacking)),
        skipped="0",
    )
    for one in gate.judged:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"fairij.{one.limit.kind}", name=one.limit.words
        )
        _fault(case, one)
    if gate.lacking:
        case = ElementTree.SubElement(
            suite, "testcase", classname="fairij.groups", name="required groups have rows"
        )
        text = _xml(f"Groups without rows: {', '.join(gate.lacking)}.")
        ElementTree.SubElement(case, "error", type="not measured", message=text).text = text
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _fault(case: Any, one: Judged) -> None:
    if one.outcome == "kept":
        ElementTree.SubElement(case, "system-out").text = _xml(one.text)
        return
    tag = "failure" if one.outcome == "broken" else "error"
    text = _xml(one.text)
    ElementTree.SubElement(case, tag, type=one.outcome, message=text).text = text


def _xml(text: str) -> str:
    """Text of characters that XML allows."""
    safe = printable(str(text))
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", safe)


def sarif(gate: Gate, artifact: str) -> str:
    """SARIF 2.1.0, as code scanning reads it: a result for each limit, about one file."""
    place = {"physicalLocation": {"artifactLocation": {"uri": artifact}}}
    rules = [
        {"id": _rule_id(one), "shortDescription": {"text": one.limit.words}} for one in gate.judged
    ]
    results = [
        _result(_rule_id(one), one.outcome == "kept", f"{one.limit.words}: {one.text}", place)
        for one in gate.judged
    ]
    if gate.lacking:
        rules.append(
            {"id": "required-groups", "shortDescription": {"text": "required groups have rows"}}
        )
        text = f"Groups without rows: {', '.join(gate.lacking)}."
        results.append(_result("required-groups", False, text, place))
    driver = {"name": "fairij", "version": __version__, "rules": rules}
    log = {
        "$schema": SARIF,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=2) + "\n"


def _result(rule: str, kept: bool, text: str, place: Any) -> dict[str, Any]:
    """What was not measured is a failure too: readers show nothing else."""
    return {
        "ruleId": rule,
        "kind": "pass" if kept else "fail",
        "level": "none" if kept else "error",
        "message": {"text": printable(text)},
        "locations": [place],
    }


def _rule_id(one: Judged) -> str:
    return f"{one.limit.kind}/{one.limit.constraint}"
