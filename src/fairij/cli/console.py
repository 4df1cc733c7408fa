"""What commands print: results go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

# Standard output, while a command runs. What libraries print meanwhile goes to standard error.
RESULTS: ContextVar[TextIO | None] = ContextVar("results", default=None)
WIDE = 200  # columns of text where there is no screen, as in a file


def show(*things: Any) -> None:
    """Print tables. They fit the screen; in a file they are wide."""
    console = Console(file=RESULTS.get())
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(file=RESULTS.get(), width=WIDE)
    for thing in things:
        console.print(thing)


def say(text: str) -> None:
    """Print a sentence."""
    console = Console(file=RESULTS.get())
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def print_json(result: Mapping[str, Any]) -> None:
    text = json.dumps(plain(result), indent=2, ensure_ascii=False)
    typer.echo(text, file=RESULTS.get())


def plain(value: Any) -> Any:
    """Convert a value to what JSON has: arrays become lists, NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # an array or a number of numpy, which is not imported here
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def table_of(title: str, columns: Sequence[str], *, numbers: Collection[str] = ()) -> Table:
    """An empty table. Names from files and data are shown as they are, in full."""
    table = Table(title=Text(title), title_justify="left")
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in numbers else "left"
        table.add_column(Text(name), justify=justify, overflow="fold")
    return table
