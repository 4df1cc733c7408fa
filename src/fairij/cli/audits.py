"""The work of `fairij audit`: measure a model or predictions, show the result, write its page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import typer

from fairij.cli.audit_options import AuditOptions
from fairij.cli.black_boxes import opened
from fairij.cli.config import file_hash
from fairij.cli.console import audit_dict, print_json, say, show_audits, show_subgroups
from fairij.cli.errors import LIMIT_BROKEN
from fairij.cli.gates import check_limits, judged, show_gate, told, write_files
from fairij.cli.measure import asked_at_least, measured
from fairij.cli.outputs import check_file, check_inputs_apart, whole_file
from fairij.cli.predictions import audit_table, read_predictions
from fairij.cli.rows import check_two_groups, features_said, read_part
from fairij.errors import InvalidInputError
from fairij.fairness import Audit, Gate


@dataclass(frozen=True)
class Measured:
    """An audit, and what is said of the model or the predictions."""

    audit: Audit
    name: str  # of the model file, or of the columns of predictions
    rows: int
    about: dict[str, Any]  # for JSON
    told: str = ""


def run_audit(asked: AuditOptions) -> None:
    """Audit a model on a table, or the predictions that stand in it."""
    written = {**asked.page.files(), **asked.gate.files()}
    _check_files(written, asked)
    check_limits(asked.gate)
    found = _of_predictions(asked) if asked.model is None else _of_model(asked, asked.model)
    outcome = judged(found.audit, asked.gate)
    if asked.page.page is not None:
        _write_page(asked.page.page, found, asked)
    if outcome is not None:
        about = asked.model or asked.table.table
        title = f"{asked.page.title}: {found.name}"
        write_files(
            outcome, found.audit, asked.gate, asked.columns, title, about, force=asked.force
        )
    _show(asked, found, outcome, written)
    if outcome is not None and not outcome.passed:
        raise typer.Exit(LIMIT_BROKEN)


def _check_files(written: Mapping[str, Path], asked: AuditOptions) -> None:
    """Raise unless all outputs may be written, each to a place of its own."""
    for option, path in written.items():
        check_file(path, force=asked.force)
        check_inputs_apart(path, {"table": asked.table.table, "model": asked.model}, option)
        others = {name: other.resolve() for name, other in written.items() if name != option}
        for name, other in others.items():
            if other == path.resolve():
                raise InvalidInputError(
                    f"--{option} and --{name} must be two files, but both are {path}: name "
                    "another one.",
                    parameter=option,
                )


def _show(
    asked: AuditOptions, found: Measured, outcome: Gate | None, written: Mapping[str, Path]
) -> None:
    if asked.as_json:
        about = {**found.about, "rows": found.rows, "sensitive": asked.columns.sensitive}
        judged = {"gate": None if outcome is None else outcome.to_dict()}
        print_json({**audit_dict(found.audit), **about, **judged})
        return
    title = f"{found.name} on {found.rows} rows of {asked.table.table.name}"
    show_audits(title, {"value": found.audit})
    if found.audit.subgroups is not None:
        show_subgroups(found.audit.subgroups)
    if found.told:
        say(found.told)
    for path in written.values():
        say(f"Written: {path}")
    if outcome is not None:
        show_gate(outcome)
        for text in told(outcome):
            say(text)


def _of_model(asked: AuditOptions, path: Path) -> Measured:
    explored, columns = asked.page.columns, asked.columns
    if asked.predictions.prediction is not None:
        raise InvalidInputError(
            "--prediction names what a model said, and --model asks the model: leave one of the "
            "two out."
        )
    file, table = asked_at_least(opened(asked.opening, path, columns.score)), asked.table
    part = read_part(table.table, table.query, asked.columns, file, others=explored)
    check_two_groups(part, table.table)
    attributes = _attributes(asked, part.groups, part.others)
    found = measured(file.model, part, asked.how, attributes=attributes)
    about = {"model": {"path": str(path), "kind": file.kind}, "features": part.feature_names}
    told = f"The model has {features_said(part, asked.columns)}"
    return Measured(found, path.name, len(part), about, told)


def _of_predictions(asked: AuditOptions) -> Measured:
    given = read_predictions(asked)
    found = audit_table(asked, given, _attributes(asked, given.groups, given.others))
    columns = (asked.columns.score, asked.predictions.prediction)
    source = ", ".join(name for name in columns if name is not None)
    return Measured(found, source, len(given), {"predictions": source})


def _attributes(
    asked: AuditOptions, groups: pd.DataFrame | None, others: pd.DataFrame | None
) -> pd.DataFrame | None:
    """The columns in which groups are searched; None if there is only one."""
    groups = None if asked.columns.group_chances else groups
    frames = [frame for frame in (groups, others) if frame is not None]
    if not frames:
        return None
    together = pd.concat(frames, axis=1)
    together = together.loc[:, ~together.columns.duplicated()]
    return together if together.shape[1] > 1 else None


def _write_page(path: Path, found: Measured, asked: AuditOptions) -> None:
    from fairij.report import write_audit
    from fairij.report.audit_words import GROUP_COLUMNS, LABEL_COLUMN

    table, model, columns = asked.table.table, asked.model, asked.columns
    facts = {
        "model file": None if model is None else model.name,
        "SHA-256 of the model": None if model is None else file_hash(model),
        "predictions": found.about.get("predictions"),
        "table": f"{table.name}, {found.rows:,} rows",
        "SHA-256 of the table": file_hash(table),
        "query": asked.table.query,
        LABEL_COLUMN: columns.label,
        GROUP_COLUMNS: ", ".join(columns.sensitive),
        "columns of strata": ", ".join(columns.control or ()) or None,
        "further columns that were searched": ", ".join(asked.page.columns) or None,
        "column of weights": columns.weights,
        "cut-off": asked.how.threshold,
        "features": found.told.removeprefix("The model has ") or None,
    }
    known = {name: value for name, value in facts.items() if value is not None}
    with whole_file(path, force=asked.force) as target:
        write_audit(found.audit, target, title=asked.page.title, facts=known)
