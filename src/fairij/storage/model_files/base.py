"""An opened model file: the model, its columns, and how to write it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fairij.errors import InvalidInputError


@dataclass(frozen=True)
class Opening:
    """What the user says about a model file."""

    trust_pickle: bool = False  # whether code in a file may run
    trusted_types: tuple[str, ...] = ()  # in a skops file, next to those known to be safe
    model_class: str | None = None  # of a torch state file: "module:Class" or "file.py:Class"
    model_args: Mapping[str, Any] = field(default_factory=dict)  # for the class's constructor

    def require_trust(self, path: Path, what: str) -> None:
        if not self.trust_pickle:
            raise InvalidInputError(
                f"{path} is {what}, and opening it runs code from the file. If you trust its "
                "source, pass --trust-pickle on the command line. Better: save the model in a "
                "format without code (LightGBM text, XGBoost JSON, skops, safetensors)."
            )


@dataclass(frozen=True)
class ModelFile:
    """An opened model."""

    kind: str
    model: Any
    suffix: str  # of a file in its own format; "" for a folder
    columns: tuple[str, ...] | None  # names of the features, if the model knows them
    prepare: Callable[[pd.DataFrame], Any]  # feature columns -> rows for the model
    save: Callable[[Any, Path], Any]  # write a model of this kind to a new file
    takes_text: bool = False  # one column of text instead of features
    labels: Mapping[str, int] = field(default_factory=dict)  # the model's names of the classes

    def saved_name(self) -> str:
        return f"model{self.suffix}"
