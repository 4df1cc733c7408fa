"""What a model file is once it is open: the model, its columns, and how to write it back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from fairij.errors import FairIJError, InvalidInputError


@dataclass(frozen=True)
class Opening:
    """What the user says about a model file, so that it can be opened."""

    trust_pickle: bool = False  # whether code that a file carries may run
    trusted_types: tuple[str, ...] = ()  # of a skops file, beyond those known to be safe
    model_class: str | None = None  # of a torch state file: "module:Class" or "file.py:Class"
    model_args: Mapping[str, Any] = field(default_factory=dict)  # for the class's constructor


@dataclass(frozen=True)
class ModelFile:
    """An opened model."""

    kind: str
    model: Any
    suffix: str  # of a file in its own format; "" for a folder
    columns: tuple[str, ...] | None  # the features' names, where the model knows them
    prepare: Callable[[pd.DataFrame], Any]  # feature columns -> rows as the model takes them
    save: Callable[[Any, Path], None]  # a model of this kind -> a new file
    takes_text: bool = False  # one column of text instead of features
    labels: Mapping[str, int] = field(default_factory=dict)  # names that the model has for classes

    def saved_name(self) -> str:
        return f"model{self.suffix}"


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Let whatever a library says of a broken file become one clear error."""
    try:
        yield
    except (FairIJError, MemoryError):
        raise
    except Exception as error:  # every library has its own kinds of error
        text = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        text = re.sub(r"^\[[\d:]+\] \S+:\d+: ", "", text)  # where XGBoost was built
        raise InvalidInputError(f"{path} cannot be read as {kind}: {text}.") from error


def library(name: str, purpose: str, package: str | None = None) -> Any:
    """Import an optional package, or say how to get it."""
    try:
        return import_module(name)
    except ImportError:
        package = package or name.split(".")[0]
        raise InvalidInputError(
            f"{purpose} need the package {package}: pip install {package}."
        ) from None


def needs_trust(path: Path, what: str) -> InvalidInputError:
    return InvalidInputError(
        f"{path} is {what}, and opening it runs code that the file carries. If you know where it "
        "comes from, say --trust-pickle on the command line; better, save the model in a format "
        "without code (LightGBM text, XGBoost JSON, skops, safetensors)."
    )
