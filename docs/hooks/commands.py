"""The reference of the command line, from the commands themselves.

Each command with its options is put in when the site is built; the two short tables stand in the
page itself, so that it can be read without the site, and a test holds them to these functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

import typer.main

from fairij.cli import app
from fairij.cli.errors import EXIT_CODES
from fairij.cli.options import with_names

MARK = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    if MARK in markdown:
        markdown = markdown.replace(MARK, "\n".join(_reference()))
    return markdown


def exit_codes() -> str:
    return _table(("code", "meaning"), EXIT_CODES.items())


def overview() -> str:
    """Every command with the first line of its help."""
    found = _commands(typer.main.get_command(app), "fairij")
    first = ((f"`{name}`", command.help.partition("\n")[0]) for name, command in found)
    return _table(("command", "what it does"), first)


def _table(heads: Sequence[str], rows: Iterable[tuple[Any, str]]) -> str:
    lines = [f"| {name} | {_cell(text)} |" for name, text in rows]
    return "\n".join([f"| {' | '.join(heads)} |", "|---|---|", *lines])


def _commands(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    for command in group.commands.values():
        full = f"{name} {command.name}"
        if hasattr(command, "commands"):
            yield from _commands(command, full)
        else:
            yield full, command


def _reference() -> Iterator[str]:
    for name, command in _commands(typer.main.get_command(app), "fairij"):
        yield from _command(name, command)


def _command(name: str, command: Any) -> Iterator[str]:
    text, _, examples = command.help.partition("\n\nExamples:\n\n")
    yield from (f"## {name}", "", text, "")
    if examples:
        shown = [example.removeprefix("$ ") for example in examples.split("\n\n")]
        yield from ("```bash", *shown, "```", "")
    panels: dict[str, list[str]] = {}
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        is_argument = parameter.param_type_name == "argument"
        panel = getattr(parameter, "rich_help_panel", None)
        panels.setdefault(panel or ("Arguments" if is_argument else "Options"), []).append(
            _row(parameter, is_argument)
        )
    for panel, rows in panels.items():
        yield from (f"**{panel}**", "", "| | | default |", "|---|---|---|", *rows, "")


def _row(parameter: Any, is_argument: bool) -> str:
    names = parameter.name.upper() if is_argument else ", ".join(parameter.opts)
    shown = "required" if parameter.required else _default(parameter.default)
    return f"| `{names}` | {_cell(with_names(parameter.help or ''))} | {shown} |"


def _default(value: Any) -> str:
    if value is None or value is False or value in ((), []) or isinstance(value, Enum):
        return ""  # an Enum stands for "not given"
    return f"`{value}`"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;")
