"""A fit of streamed rows, of several processes, or with a checkpoint."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import torch

from fairij.data.checks import Data
from fairij.data.hashing import data_fingerprint, tensor_fingerprint
from fairij.errors import CheckpointError, InvalidInputError
from fairij.fairness.groups import Groups
from fairij.method.preparation import Settings
from fairij.method.run import Run
from fairij.models.base import Editable
from fairij.scale.checkpoints import Journal, facts_of
from fairij.scale.collectives import check_agreement, fail_together, values_of_all
from fairij.scale.journaled_model import JournaledEditable
from fairij.scale.sharded_model import ShardedEditable
from fairij.scale.sharding import whole_column
from fairij.scale.streaming import StreamedEditable

T = TypeVar("T")
# parameters of `FairIJ` that may differ between two runs of the same work
NOT_FACTS = ("estimator", "checkpoint", "verbose", "confidence", "constraints")
CHOSEN = ("solver", "dampings", "search", "selection", "temperature")  # in place of what was asked


class ScaledRun(Run):
    """Streams rows, joins processes, and keeps a journal if there is a checkpoint."""

    def __init__(self, checkpoint: Any = None) -> None:
        self._checkpoint = checkpoint
        self._journal: Journal | None = None

    def together(self, work: Callable[[], T]) -> T:
        try:
            return super().together(lambda: fail_together(work))
        except KeyboardInterrupt:  # Ctrl-C, or a signal to end: what was done is kept
            with suppress(CheckpointError):
                self.finish()
            raise

    def seed(self, seed: int) -> int:
        return values_of_all(seed, step="a fit")[0]  # that of process 0

    def column(self, X: Any, values: Any) -> Any:
        return whole_column(X, values)

    def editable(self, model: Editable, memory_limit: int) -> Editable:
        return ShardedEditable(StreamedEditable(model, memory_limit))

    def recorded(
        self, model: Editable, data: Data, settings: Settings, asked: Mapping[str, Any]
    ) -> tuple[Editable, Settings]:
        keeps = self._checkpoint is not None
        if len(set(values_of_all(keeps))) > 1:
            raise InvalidInputError(
                "`checkpoint` must be given on all processes or on none, but some have one and "
                "others have none: pass the same folder on each."
            )
        if keeps and asked["random_state"] is None:
            raise InvalidInputError(
                "`random_state` must be a whole number if there is a `checkpoint`, got None: each "
                "run would draw its own seed, and none could continue the work of another. Pass "
                "random_state=0, or any other."
            )
        # called at most once, as all rows may be read for the facts
        facts = cache(lambda: _facts(model, data, settings, asked, every_row=keeps))
        check_agreement(facts)
        if not keeps:
            return model, settings
        self._journal = Journal.open(self._checkpoint, facts())
        # a copy of the solver, without what it kept of other fits
        alone = replace(settings, solver=copy.deepcopy(settings.solver))
        return JournaledEditable(model, self._journal), alone

    def finish(self) -> None:
        if self._journal is not None:
            self._journal.write()


def _facts(
    model: Editable, data: Data, settings: Settings, asked: Mapping[str, Any], *, every_row: bool
) -> dict[str, str]:
    """What a fit depends on, by name, as short texts."""
    given = {name: value for name, value in asked.items() if name not in NOT_FACTS}
    chosen = {name: getattr(settings, name) for name in CHOSEN}
    weights = torch.ones(1) if data.weight is None else data.weight
    known = data.train_groups
    elsewhere = {
        f"rows of {one.name!r}": data_fingerprint(one.X, one.values.codes, every_row=every_row)[:16]
        + "".join(_fingerprint(side.groups) for side in one.sides)
        for one in settings.constraint.elsewhere
    }
    return facts_of(model, given | chosen | {"constraints": settings.constraint.name}) | {
        "training rows": data_fingerprint(data.X, data.y, every_row=every_row)[:16],
        "sample weights": tensor_fingerprint(weights),
        "validation rows": data_fingerprint(data.X_val, data.y_val, every_row=every_row)[:16],
        "groups": _fingerprint(data.groups),
        "training groups": tensor_fingerprint(torch.zeros(1))
        if known is None
        else _fingerprint(known),
        **elsewhere,
    }


def _fingerprint(groups: Groups) -> str:
    """Of the groups of rows, of how likely they are, and of what rows count."""
    parts = [groups.codes, groups.chances, groups.weight]
    return "".join(tensor_fingerprint(torch.as_tensor(p)) for p in parts if p is not None)
