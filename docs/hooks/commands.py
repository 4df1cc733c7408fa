"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import typer.main

from fairij.cli import app
from fairij.cli.exits import EXIT_CODES

MARK, CODES = "<!-- commands -->", "<!-- exit codes -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    if MARK in markdown:
        markdown = markdown.replace(MARK, "\n".join(_group(typer.main.get_command(app), "fairij")))
    if CODES in markdown:
        rows = "\n".join(f"| {code} | {_cell(text)} |" for code, text in EXIT_CODES.items())
        markdown = markdown.replace(CODES, f"| code | meaning |\n|---|---|\n{rows}")
    return markdown


def _group(group: Any, name: str) -> Iterator[str]:
    for command in group.commands.values():
        full = f"{name} {command.name}"
        if hasattr(command, "commands"):
            yield from _group(command, full)
        else:
            yield from _command(command, full)


def _command(command: Any, name: str) -> Iterator[str]:
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
    return f"| `{names}` | {_cell(parameter.help or '')} | {shown} |"


def _default(value: Any) -> str:
    if value is None or value is False or value in ((), []) or isinstance(value, Enum):
        return ""  # an Enum stands for "not given"
    return f"`{value}`"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;")
