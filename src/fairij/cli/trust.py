"""Options that can lead to running code, or write elsewhere: from the command line only.

A settings file or result folder that names them is a note of what has to be given again.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from fairij.errors import InvalidInputError

RUNS_CODE = ("model_class", "model_args", "trust", "trust_pickle")
GIVEN = "fairij.given"  # in a context: the words of the command line
NOTED = "fairij.noted"  # in a context: a settings file, its notes, and its paths elsewhere
RUNNING: ContextVar[Any] = ContextVar("running", default=None)  # the context of the command


def notes_of(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """What a settings file notes of these options, as texts; raises if it is none."""
    found = {key: values[key] for key in RUNS_CODE if values.get(key)}
    if isinstance(found.get("model_args"), dict):
        found["model_args"] = json.dumps(found["model_args"], default=str)
    if isinstance(found.get("trust"), str):
        found["trust"] = [found["trust"]]
    for key, value in found.items():
        if not _is_note(key, value):
            raise InvalidInputError(
                f"{path} notes {_option(key)}, but not as a run writes it: correct it there, or "
                "delete the line."
            )
    return found


def _is_note(key: str, value: Any) -> bool:
    """Whether a value can be shown as part of a command, without deceiving who reads it."""
    if key == "trust_pickle":
        return value is True
    texts = value if key == "trust" and isinstance(value, list) else [value]
    return all(isinstance(text, str) and text.isprintable() for text in texts)


def require_given(notes: Mapping[str, Any], given: Mapping[str, Any], path: Path) -> None:
    """Raise unless the command line has all that a settings file notes; say the command."""
    missing = {key: value for key, value in notes.items() if not given.get(key)}
    if not missing:
        return
    words = [word for key, value in missing.items() for word in _words(key, value)]
    raise InvalidInputError(
        f"{path} notes that the model was opened with {' and '.join(map(_option, missing))}. This "
        "can run code, so it is taken from the command line only. If you trust it, give it again: "
        f"{shlex.join([*_command(), *words])}"
    )


def check_settings_file(context: Any) -> None:
    """Raise if a command follows its settings file where it must not; the command line wins."""
    path, notes, outside = context.meta.get(NOTED, (None, {}, {}))
    if _is_from_file(context, "model"):
        require_given(notes, context.params, path)
    for key, value in outside.items():
        if _is_from_file(context, key):
            raise InvalidInputError(
                f"{path} sets {key!r} to {value}, which is outside of its own folder: a settings "
                f"file cannot write there. Give {_option(key)} on the command line.",
            )


def _is_from_file(context: Any, key: str) -> bool:
    source = context.get_parameter_source(key)
    return source is not None and source.name == "DEFAULT_MAP"


def _command() -> list[str]:
    """The words that this command was called with."""
    context = RUNNING.get()
    return ["fairij", *context.command_path.split()[1:], *context.meta.get(GIVEN, [])]


def _words(key: str, value: Any) -> list[str]:
    if value is True:
        return [_option(key)]
    values = value if isinstance(value, list) else [value]
    return [word for one in values for word in (_option(key), one)]


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}"
