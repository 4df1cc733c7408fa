"""What a model on texts is trained for: cross-entropy and, if there is one, a penalty."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairij.baselines.in_processing import Draw, InProcessing, Sampler
from fairij.data.checks import has_method
from fairij.data.rows import n_rows
from fairij.language.batches import InHalves, TextRows, TrainingPart, run, run_all, shuffled
from fairij.models.text.tokens import lengths

JUDGED = 4096  # number of validation rows for the penalty, the same rows in every epoch


@dataclass
class TextObjective:
    """Mean cross-entropy plus penalty; the measure is the same on validation rows.

    ``history`` collects the losses of each epoch. The training loss is without the penalty.
    """

    module: nn.Module
    train: TrainingPart
    validation: TrainingPart
    method: InProcessing | None  # it defines the penalty, on rows whose group is known
    batch_size: int
    draws: torch.Generator
    seed: int
    history: list[dict[str, float]]

    def __post_init__(self) -> None:
        rows = self.train.rows
        self._lengths = lengths(rows).cpu() if isinstance(rows, dict) else None
        if self.method is not None:
            has_method("penalty", self.method, "penalty", "a baseline such as GapReg(), or None")
            self._sampler, held_out = (
                _sampler(self.method.constraint, part) for part in (self.train, self.validation)
            )
            self._judged = held_out.draw(JUDGED, torch.Generator().manual_seed(self.seed))

    def batches(self) -> Iterable[tuple[TextRows, Tensor]]:
        self._total = torch.zeros((), device=self.train.y.device)
        return shuffled(self.train.rows, self.batch_size, self.draws, self._lengths)

    def loss(self, batch: tuple[TextRows, Tensor]) -> Tensor:
        rows, index = batch
        loss = cross_entropy(run(self.module, rows), self.train.y[index])
        self._total += loss.detach() * len(index)
        if self.method is None:
            return loss
        draw = self._sampler.draw(self.batch_size, self.draws)
        return loss + self._penalty(self.method, draw, self.train.rows)

    def held_out(self) -> float:
        z = run_all(self.module, self.validation.rows)
        value = float(cross_entropy(z, self.validation.y))
        if self.method is not None:
            with torch.no_grad():
                value += float(self._penalty(self.method, self._judged, self.validation.rows))
        train = float(self._total) / n_rows(self.train.rows)
        self.history.append({"train": train, "validation": value})
        return value

    def _penalty(self, method: InProcessing, draw: Draw, rows: TextRows) -> Tensor:
        module = InHalves(self.module, rows) if isinstance(rows, dict) else self.module
        return method.strength * method.penalty(module, draw)


def _sampler(constraint: str, part: TrainingPart) -> Sampler:
    """Draws vectors, or row numbers if the rows are tokens."""
    assert part.groups is not None  # `given_part` asks for them
    rows = part.rows
    if isinstance(rows, dict):
        rows = torch.arange(n_rows(rows), device=part.y.device)
    return Sampler.of_tensors(rows, part.y, part.groups, constraint, 2)


def cross_entropy(z: Tensor, y: Tensor) -> Tensor:
    """The mean loss: of the logit of label 1 (N,), or of one output per class (N, C)."""
    if z.ndim == 1:
        return F.binary_cross_entropy_with_logits(z.float(), y)
    return F.cross_entropy(z.float(), y.long())
