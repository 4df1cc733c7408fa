"""What a model on texts is trained for: cross-entropy and, if there is one, a penalty."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairij.baselines.in_processing import Draw, InProcessing, Sampler
from fairij.data.checks import has_method
from fairij.language.batches import InHalves, TextRows, count, run, run_all, shuffled, sizes
from fairij.language.training_inputs import TrainingPart

JUDGED = 4096  # number of validation rows for the penalty, the same rows in every epoch


@dataclass(frozen=True)
class Penalty:
    """A baseline's penalty on rows whose group is known."""

    method: InProcessing
    train: Sampler
    validation: Draw
    rows: TextRows
    rows_val: TextRows

    @classmethod
    def of(
        cls, method: InProcessing, train: TrainingPart, validation: TrainingPart, seed: int
    ) -> Penalty:
        """A penalty with its training rows and a fixed draw of validation rows."""
        has_method("penalty", method, "penalty", "a baseline such as GapReg(), or None")
        samplers = [_sampler(method.constraint, part) for part in (train, validation)]
        judged = samplers[1].draw(JUDGED, torch.Generator().manual_seed(seed))
        return cls(method, samplers[0], judged, train.rows, validation.rows)

    def in_training(self, module: nn.Module, rows: int, draws: torch.Generator) -> Tensor:
        """The weighted penalty on a new draw of training rows."""
        return self._on(module, self.train.draw(rows, draws), self.rows)

    def held_out(self, module: nn.Module) -> Tensor:
        """The weighted penalty on validation rows."""
        return self._on(module, self.validation, self.rows_val)

    def _on(self, module: nn.Module, draw: Draw, rows: TextRows) -> Tensor:
        runs = InHalves(module, rows) if isinstance(rows, dict) else module
        return self.method.strength * self.method.penalty(runs, draw)


def _sampler(constraint: str, part: TrainingPart) -> Sampler:
    """Draws vectors, or row numbers if the rows are tokens."""
    assert part.groups is not None  # `given_part` asks for them
    rows = part.rows
    if isinstance(rows, dict):
        rows = torch.arange(count(rows), device=part.y.device)
    return Sampler.of_tensors(rows, part.y, part.groups, constraint, 2)


@dataclass
class TextObjective:
    """Mean cross-entropy plus penalty; the measure is the same on validation rows.

    ``history`` collects the losses of each epoch. The training loss is without the penalty.
    """

    module: nn.Module
    train: TrainingPart
    validation: TrainingPart
    penalty: Penalty | None
    batch_size: int
    draws: torch.Generator
    history: list[dict[str, float]]
    _lengths: Tensor | None = field(init=False)
    _total: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self._lengths = sizes(self.train.rows)

    def batches(self) -> Iterable[tuple[TextRows, Tensor]]:
        self._total = torch.zeros((), device=self.train.y.device)
        return shuffled(self.train.rows, self.batch_size, self.draws, self._lengths)

    def loss(self, batch: tuple[TextRows, Tensor]) -> Tensor:
        rows, index = batch
        loss = cross_entropy(run(self.module, rows), self.train.y[index])
        self._total += loss.detach() * len(index)
        if self.penalty is None:
            return loss
        return loss + self.penalty.in_training(self.module, self.batch_size, self.draws)

    def held_out(self) -> float:
        z = run_all(self.module, self.validation.rows)
        value = float(cross_entropy(z, self.validation.y))
        if self.penalty is not None:
            with torch.no_grad():
                value += float(self.penalty.held_out(self.module))
        train = float(self._total) / count(self.train.rows)
        self.history.append({"train": train, "validation": value})
        return value


def cross_entropy(z: Tensor, y: Tensor) -> Tensor:
    """The mean loss: of the logit of label 1 (N,), or of one output per class (N, C)."""
    if z.ndim == 1:
        return F.binary_cross_entropy_with_logits(z.float(), y)
    return F.cross_entropy(z.float(), y.long())
