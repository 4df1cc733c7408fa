"""How a fit is run: in one process with rows in memory, or otherwise (`fairij.scale.run`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from fairij.data.fit_data import Data
from fairij.method.settings import Settings
from fairij.models.base import Editable

T = TypeVar("T")


class Run(Protocol):
    """What differs between a plain fit, and one of many rows, many processes or long duration."""

    def together(self, work: Callable[[], T]) -> T:
        """Do the work; if it fails on one process, it fails on all."""
        ...

    def seed(self, seed: int) -> int:
        """The seed that all processes use."""
        ...

    def column(self, X: Any, values: Any) -> Any:
        """Labels, weights or groups of all rows of ``X``."""
        ...

    def editable(self, model: Editable, memory_limit: int) -> Editable:
        """The model, able to take the rows of this run."""
        ...

    def recorded(
        self, model: Editable, data: Data, settings: Settings, asked: Mapping[str, Any]
    ) -> tuple[Editable, Settings]:
        """Model and settings of this run, once it is known that all processes agree on it.

        With a checkpoint the model writes down its passes over the rows. ``asked`` are the
        parameters of `FairIJ` as the user gave them.
        """
        ...

    def finish(self) -> None:
        """Write what is not written yet."""
        ...


class PlainRun:
    """One process, rows in memory, no checkpoint: nothing to do."""

    def together(self, work: Callable[[], T]) -> T:
        return work()

    def seed(self, seed: int) -> int:
        return seed

    def column(self, X: Any, values: Any) -> Any:
        return values

    def editable(self, model: Editable, memory_limit: int) -> Editable:
        return model

    def recorded(
        self, model: Editable, data: Data, settings: Settings, asked: Mapping[str, Any]
    ) -> tuple[Editable, Settings]:
        return model, settings

    def finish(self) -> None:
        return
