"""How a fit is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fairij.data.fit_data import Data
from fairij.method.settings import Settings
from fairij.models.base import Editable

T = TypeVar("T")


class Run:
    """One process, rows in memory, no checkpoint. `fairij.scale.run` has the other kind."""

    def together(self, work: Callable[[], T]) -> T:
        """Do the work; if it fails on one process, it fails on all."""
        return work()

    def seed(self, seed: int) -> int:
        """The seed that all processes use."""
        return seed

    def column(self, X: Any, values: Any) -> Any:
        """Labels, weights or groups of all rows of ``X``."""
        return values

    def editable(self, model: Editable, memory_limit: int) -> Editable:
        """The model, able to take the rows of this run."""
        return model

    def recorded(
        self, model: Editable, data: Data, settings: Settings, asked: Mapping[str, Any]
    ) -> tuple[Editable, Settings]:
        """Model and settings, once all processes, and the checkpoint, are known to agree.

        With a checkpoint the model writes down its passes over the rows. ``asked`` are the
        parameters of `FairIJ` as the user gave them.
        """
        return model, settings

    def finish(self) -> None:
        """Write what is not written yet."""
