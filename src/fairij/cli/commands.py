"""Functions as commands. A parameter that is a dataclass becomes one option per field."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any, get_type_hints

import typer

from fairij.cli.errors import EPILOG, Command

_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def register(
    app: typer.Typer, name: str, function: Callable[..., Any], examples: Sequence[str] = ()
) -> None:
    """Make a function a command, with its examples in the help."""
    text = teaching(function)
    if examples:
        text += "\n\nExamples:\n\n" + "\n\n".join(f"$ {example}" for example in examples)
    app.command(name, cls=Command, epilog=EPILOG, help=text)(_spread(function))


def teaching(function: Callable[..., Any]) -> str:
    """A docstring as help: one line per paragraph, which the screen wraps."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, tuple[Any, list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if not dataclasses.is_dataclass(hints[name]):
            parameters.append(parameter.replace(annotation=hints[name], kind=_KEYWORD))
            continue
        fields = [_parameter(field, hints[name]) for field in dataclasses.fields(hints[name])]
        groups[name] = (hints[name], [field.name for field in fields])
        parameters += fields

    def command(**given: Any) -> Any:
        grouped = {
            name: kind(**{key: given.pop(key) for key in keys})
            for name, (kind, keys) in groups.items()
        }
        return function(**grouped, **given)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _parameter(field: dataclasses.Field[Any], kind: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
    hint = get_type_hints(kind, include_extras=True)[field.name]
    return inspect.Parameter(field.name, _KEYWORD, default=default, annotation=hint)
