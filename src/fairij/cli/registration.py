"""Functions as commands.

A parameter with a text, ``Annotated[int, "Its help."]``, becomes an option. A parameter that is a
dataclass becomes one option per field, also if it is inside another dataclass.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperOption
from typer.models import ArgumentInfo

from fairij.cli.audit_options import AuditPageOptions, GateOptions
from fairij.cli.console import RESULTS
from fairij.cli.errors import EPILOG, guarded
from fairij.cli.former import NOTES, in_todays_words, note
from fairij.cli.options import (
    ColumnOptions,
    EditOptions,
    FitTables,
    MeasureOptions,
    ModelOptions,
    PageOptions,
    SentenceOptions,
    TableOptions,
    with_names,
)
from fairij.cli.trust import GIVEN, RUNNING, check_settings_file
from fairij.data.memory import set_limit
from fairij.errors import FairIJWarning

# what most people set, in this order; the help has it first and the rest in boxes
MOST_SET = (
    *("model", "score", "prediction", "edit", "table", "train", "validation", "test"),
    *("label", "sensitive", "positive", "pos_label", "constraints", "accuracy_budget"),
    *("target_gap", "max_gap", "min_ratio", "page", "out", "random_state", "force"),
    *("as_json", "config"),
)
PANELS: dict[type | None, str] = {
    EditOptions: "The edit: more settings",
    SentenceOptions: "The edit: more settings",
    MeasureOptions: "What is measured",
    GateOptions: "The gate",
    PageOptions: "The page",
    AuditPageOptions: "The page",
    TableOptions: "Tables",
    FitTables: "Tables",
    ColumnOptions: "Columns",
    ModelOptions: "The model",
}


class Command(TyperCommand):
    """A command that ends every expected failure in one line and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args, replaced = in_todays_words(args, {parameter.name for parameter in self.params})
        ctx.meta[GIVEN] = list(args)
        ctx.meta[NOTES] = [note(former, name) for former, name in replaced.items()]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        results, running = RESULTS.set(sys.stdout), RUNNING.set(ctx)
        try:
            with guarded(), redirect_stdout(sys.stderr):
                for text in ctx.meta[NOTES]:
                    warnings.warn(text, FairIJWarning, stacklevel=2)
                check_settings_file(ctx)
                return super().invoke(ctx)
        finally:
            RESULTS.reset(results)
            RUNNING.reset(running)
            set_limit(None)  # --max-memory is for this command only

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for parameter in self.params:  # names that take a moment to load
            if isinstance(parameter, TyperOption) and parameter.help:
                parameter.help = with_names(parameter.help)
        super().format_help(ctx, formatter)


def command(
    app: typer.Typer, *examples: str, name: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function, by its own name or another, with examples for its help."""

    def registered(function: Callable[..., None]) -> Callable[..., None]:
        text = teaching(function)
        if examples:
            text += "\n\nExamples:\n\n" + "\n\n".join(f"$ {example}" for example in examples)
        kept = app.command(name or function.__name__, cls=Command, epilog=EPILOG, help=text)
        kept(_spread(function))
        return function

    return registered


def teaching(function: Callable[..., Any]) -> str:
    """A docstring as help: one line per paragraph, which the screen wraps."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _spread(function: Callable[..., None]) -> Callable[..., None]:
    """The function with one keyword per option in place of its dataclasses."""
    hints = get_type_hints(function, include_extras=True)
    given = inspect.signature(function).parameters.values()
    parameters = sorted(
        (option for p in given for option in _options(p.name, hints[p.name], p.default, None)),
        key=_place,
    )

    def spread(**values: Any) -> None:
        function(
            **{name: _value(name, hint, values) for name, hint in hints.items() if name != "return"}
        )

    spread.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    spread.__annotations__ = {p.name: p.annotation for p in parameters}
    return spread


def _place(option: inspect.Parameter) -> int:
    """Arguments and what most people set come first; the rest by boxes."""
    text = option.annotation.__metadata__[0]
    if option.name in MOST_SET:
        return MOST_SET.index(option.name)
    if isinstance(text, ArgumentInfo):
        return -1
    panels = list(dict.fromkeys(PANELS.values()))
    panel = text.rich_help_panel
    return len(MOST_SET) + (1 + panels.index(panel) if panel in panels else 0)


def _options(name: str, hint: Any, default: Any, group: Any) -> Iterator[inspect.Parameter]:
    """One parameter, or those of all fields if it is a dataclass."""
    if dataclasses.is_dataclass(hint):
        inside = get_type_hints(hint, include_extras=True)
        for field in dataclasses.fields(hint):
            yield from _options(field.name, inside[field.name], field.default, hint)
        return
    kind, text = hint.__origin__, hint.__metadata__[0]
    panel = None if name in MOST_SET else PANELS.get(group)
    if isinstance(text, str):
        flag = [f"--{name.replace('_', '-')}"] if kind is bool else []  # without a --no- form
        text = typer.Option(*flag, help=text, rich_help_panel=panel)
    elif panel is not None:
        text = copy.copy(text)
        text.rich_help_panel = panel
    default = inspect.Parameter.empty if default is dataclasses.MISSING else default
    yield inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, text]
    )


def _value(name: str, hint: Any, values: dict[str, Any]) -> Any:
    """The value of a parameter, put together if it is a dataclass."""
    if not dataclasses.is_dataclass(hint):
        return values[name]
    inside = get_type_hints(hint, include_extras=True)
    kind: Any = hint
    return kind(
        **{f.name: _value(f.name, inside[f.name], values) for f in dataclasses.fields(hint)}
    )
