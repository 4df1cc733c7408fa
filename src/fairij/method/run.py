"""How a fit is run, and how its progress and time are told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from fairij.data.forked import one_thread_if_forked
from fairij.models.base import Editable

if TYPE_CHECKING:
    from fairij.data.checks import Data
    from fairij.method.preparation import Settings

Progress = Callable[[str, int, int], None]
"""A listener: called with the phase, the steps done, and the steps in all."""


def silent(phase: str, done: int, total: int) -> None:
    """Say nothing."""


@contextmanager
def timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    """Add the time that the block takes to ``seconds[phase]``."""
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - start


T = TypeVar("T")


class Run:
    """One process, rows in memory, no checkpoint. `fairij.scale.run` has the other kind."""

    def together(self, work: Callable[[], T]) -> T:
        """Do the work; if it fails on one process, it fails on all."""
        with one_thread_if_forked():
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
