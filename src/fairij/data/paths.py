"""Paths that users give: text that every system can take."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fairij.errors import InvalidInputError


def path_of(name: str, value: Any, example: str) -> Path:
    """A path as given, or an error that names the parameter; ``example`` is what to write."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(path, str) and path and "\0" not in path:
        try:
            os.fsencode(path)  # it takes names in other encodings, as the system gives them
            return Path(path)
        except UnicodeEncodeError:  # half of a character
            pass
    raise InvalidInputError(
        f"`{name}` must be a path, of text without NUL and without halves of characters, got "
        f"{value!r}: {example}."
    )
