"""What all readers of files share: checks, optional packages, one clear error for a broken file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

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


def library(name: str, purpose: str) -> Any:
    """Import an optional package, or say how to install it."""
    try:
        return import_module(name)
    except ImportError:
        package = name.split(".")[0]
        raise InvalidInputError(
            f"{purpose} need the package {package}: pip install {package}."
        ) from None
