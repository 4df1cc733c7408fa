"""What all readers of files share: checks, optional packages, one clear error for a broken file."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from fairij.data.memory import check_size
from fairij.errors import FairIJError, InvalidInputError


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn any error that a library raises about a broken file into one clear error."""
    try:
        yield
    except (FairIJError, MemoryError):
        raise
    except Exception as error:  # every library has its own kinds of error
        text = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        text = re.sub(r"^\[[\d:]+\] \S+:\d+: ", "", text)  # XGBoost's time and source line
        raise InvalidInputError(f"{path} cannot be read as {kind}: {text}.") from error


def require(is_whole: bool, problem: str) -> None:
    """Raise unless this part of a file is as it must be."""
    if not is_whole:
        raise ValueError(problem)


def check_archive(path: Path) -> None:
    """Raise if the parts of a zip archive say that they are larger, unpacked, than allowed.

    Python's reader gives no more of a part than it says.
    """
    with zipfile.ZipFile(path) as archive:
        check_size(path, sum(part.file_size for part in archive.infolist()))


def strict_json(text: str | bytes) -> Any:
    """JSON in which no name is there twice in a table: other readers may take the other one."""
    try:
        return json.loads(text, object_pairs_hook=distinct)
    except RecursionError:
        raise ValueError("its parts lie too deep inside each other") from None


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A table of names and values. Raises if a name is there twice."""
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it has the name {twice[:30]!r} twice in one table")
    return table


def plain_lists(value: Any) -> bool:
    """Whether this is a list of lists of text, numbers and truth values."""
    plain = (str, int, float, bool, type(None))
    lists = isinstance(value, list) and all(isinstance(one, list) for one in value)
    return lists and all(isinstance(item, plain) for one in value for item in one)


def library(name: str, purpose: str) -> Any:
    """Import an optional package, or say how to install it."""
    try:
        return import_module(name)
    except ImportError:
        package = name.split(".")[0]
        raise InvalidInputError(
            f"{purpose} need the package {package}: pip install {package}."
        ) from None
