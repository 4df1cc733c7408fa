"""`write_audit`: one page about how a model, or a table of predictions, treats groups."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fairij._version import __version__
from fairij.data.paths import path_of
from fairij.errors import InvalidInputError, printable
from fairij.fairness import Audit
from fairij.report.audit_readings import SAID, Reading, readings, worst
from fairij.report.audit_sections import (
    all_measures,
    found_groups,
    groups_table,
    rate_charts,
    scores_section,
    views_table,
)
from fairij.report.audit_steps import next_steps
from fairij.report.audit_words import GROUP_COLUMNS, LABEL_COLUMN, first_words
from fairij.report.render import assets, render
from fairij.storage.checksummed import write_whole

SECTIONS = (
    ("differences", "Differences"),
    ("rates", "Rates by group"),
    ("scores", "Scores"),
    ("meeting", "Where attributes meet"),
    ("next", "What to do next"),
    ("facts", "What was measured"),
    ("limits", "Limits"),
)


def write_audit(
    audit: Audit,
    path: str | os.PathLike[str],
    *,
    title: str = "Fairness audit",
    facts: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write one self-contained HTML page about an audit.

    The page has figures of groups, and no row of the data.

    Parameters
    ----------
    audit : Audit
        What `audit` or `audit_regression` found. With ``y_score`` the page also shows AUC, Brier
        scores and calibration, with ``attributes`` the groups where attributes meet.
    path : path-like
        The file to write. It appears whole or not at all.
    title : str, default="Fairness audit"
        The heading of the page.
    facts : mapping, default=None
        What was measured, as in ``{"model file": "model.txt"}``; it is listed on the page. The
        first words take the names of labels and groups from "column of true labels" and "columns
        of groups".
    overwrite : bool, default=False
        Whether an existing file may be replaced.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> from fairij import audit
    >>> from fairij.report import write_audit
    >>> found = audit([0, 1, 1, 0], [0, 1, 0, 0], sensitive_features=["a", "a", "b", "b"])
    >>> write_audit(found, "audit.html").name  # doctest: +SKIP
    'audit.html'
    """
    if not isinstance(audit, Audit):
        raise InvalidInputError(
            f"`audit` must be what fairij.audit returns, got {type(audit).__name__}: write "
            "write_audit(audit(y_true, y_pred, sensitive_features=groups), path)."
        )
    target = path_of("path", path, "name a file, as in 'audit.html'")
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists already; pass overwrite=True to replace it.")
    if facts is not None and not isinstance(facts, Mapping):
        raise InvalidInputError(
            "`facts` must be a mapping of names to values, as in {'model file': 'model.txt'}; got "
            f"{type(facts).__name__}."
        )
    text = _page(audit, printable(str(title)), facts or {})
    write_whole(target, text.encode("utf-8", errors="replace"))
    return target


def _page(audit: Audit, title: str, facts: Mapping[str, Any]) -> str:
    found = readings(audit)
    verdict = worst(found)
    return render(
        "audit.html",
        title=title,
        version=__version__,
        date=datetime.now(UTC).date().isoformat(),
        sections=SECTIONS,
        words=first_words(audit, str(facts.get(LABEL_COLUMN, "")), _columns(facts)),
        what=_what(facts),
        overall=verdict,
        meaning=SAID[verdict],
        reasons=_reasons(found, verdict),
        readings=found,
        percent=f"{100 * audit.confidence:g}",
        positive_label=audit.positive_label,
        charts=rate_charts(audit),
        table=groups_table(audit),
        measures=all_measures(audit),
        said=[*audit.undefined, *audit.notes],
        scores=scores_section(audit),
        meeting=found_groups(audit),
        views=views_table(audit),
        steps=next_steps(audit),
        facts=_facts(audit, facts),
        **assets(),
    )


def _columns(facts: Mapping[str, Any]) -> list[str]:
    return [name for name in str(facts.get(GROUP_COLUMNS, "")).split(", ") if name]


def _what(facts: Mapping[str, Any]) -> str:
    """What was audited, in a line, as far as it is known."""
    names = ("model file", "predictions", "table", LABEL_COLUMN, GROUP_COLUMNS)
    words = ("Model", "Predictions", "Table", "Label", "Groups")
    told = [f"{w}: {facts[name]}" for w, name in zip(words, names, strict=True) if name in facts]
    return ". ".join(told) + "." if told else ""


def _reasons(found: list[Reading], verdict: str) -> str:
    named = [reading.rate for reading in found if reading.verdict == verdict]
    return "" if verdict == "green" else f"In: {', '.join(named)}."


def _facts(audit: Audit, given: Mapping[str, Any]) -> list[tuple[str, str]]:
    own = {
        "positive label": audit.positive_label,
        "groups": f"{len(audit.by_group):,}",
        "rows in groups": f"{audit.by_group['count'].sum():,.0f}",
        "intervals": f"{100 * audit.confidence:g} %",
        "written by": f"fairij {__version__}",
    }
    both = {**{name: value for name, value in own.items() if value is not None}, **given}
    return [(str(name), str(value)) for name, value in both.items()]
