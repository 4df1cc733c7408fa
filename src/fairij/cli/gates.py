"""The gate of `fairij audit`: limits from the command line, and files about what came of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.text import Text

from fairij.cli.audit_options import GateOptions
from fairij.cli.console import show, table_of
from fairij.cli.options import ColumnOptions, check_choice, constraints
from fairij.cli.outputs import whole_file
from fairij.errors import InvalidInputError
from fairij.fairness import Audit, Gate, gate
from fairij.fairness.gates import USUAL
from fairij.fairness.names import read_as
from fairij.report.gate_files import junit, markdown, sarif
from fairij.report.wording import measured


def check_limits(asked: GateOptions) -> None:
    """Raise, before the work, unless limits can be read and a gate has at least one."""
    for option, texts in (("max-gap", asked.max_gap), ("min-ratio", asked.min_ratio)):
        for name in _limits(option, texts) or {}:
            if read_as(name) is None:
                check_choice(option, name, constraints())
    if not asked.limits:
        given = [option for option, value in asked.others().items() if value]
        if given:
            raise InvalidInputError(
                f"--{given[0]} is about a gate, and there is no limit to keep: add one, as in "
                "--max-gap equal_opportunity=0.05 or --min-ratio 0.8."
            )


def judged(audit: Audit, asked: GateOptions) -> Gate | None:
    """The audit judged by the limits that are given; None if there are none."""
    if not asked.limits:
        return None
    return gate(
        audit,
        max_gap=_limits("max-gap", asked.max_gap),
        min_ratio=_limits("min-ratio", asked.min_ratio),
        certain=asked.certain,
        min_rows=asked.min_rows,
        require_groups=asked.require_group or (),
    )


def _limits(option: str, texts: list[str] | None) -> Any:
    """Limits by constraint, from texts such as "equal_opportunity=0.05" or "0.8"."""
    if not texts:
        return None
    found: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        name = name.strip() if equals else USUAL
        value = None
        with suppress(ValueError):
            value = float(number)
        if value is None:
            raise InvalidInputError(
                f"--{option} must be a constraint and a number, as in equal_opportunity=0.05, or a "
                f"number alone for {USUAL}; got {text!r}.",
                parameter=option,
            )
        if name in found:
            raise InvalidInputError(
                f"--{option} names {name} twice: give one limit for each constraint.",
                parameter=option,
            )
        found[name] = value
    return found


def write_files(
    made: Gate,
    audit: Audit,
    asked: GateOptions,
    columns: ColumnOptions,
    title: str,
    about: Path,
    *,
    force: bool,
) -> None:
    """The files that were asked for; ``about`` is the file that was measured."""
    texts = {
        "junit": lambda: junit(made, title),
        "markdown": lambda: markdown(made, audit, title, columns.label, columns.sensitive),
        "sarif": lambda: sarif(made, about.as_posix()),
    }
    for name, path in asked.files().items():
        with whole_file(path, force=force) as target:
            target.write_text(texts[name](), encoding="utf-8")


def show_gate(made: Gate) -> None:
    """Every limit with what came of it."""
    table = table_of("the gate", ["limit", "value", "outcome"], numbers={"value"})
    for one in made.judged:
        table.add_row(Text(one.limit.words), measured(one.value), Text(one.outcome))
    show(table)


def told(made: Gate) -> Iterator[str]:
    """The result in sentences: each limit that is not kept, and the whole."""
    for one in made.judged:
        if one.outcome != "kept":
            yield f"Not kept: {one.limit.words}. {one.text}"
    yield made.text
