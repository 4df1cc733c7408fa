"""What baselines that train share: a penalty on the training loss.

    loss(batch) + strength * penalty(draw)

The batch is an ordinary shuffled batch. The draw has the same number of rows from every group
(given every true label that the constraint asks about).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairij.baselines.base import (
    Baseline,
    Codes,
    Predictor,
    Stratified,
    count_groups,
    positive_scores,
    strata_rows,
)
from fairij.data.checks import number_between, one_of, whole_number
from fairij.datasets.splits import Split
from fairij.errors import InvalidInputError
from fairij.models.torch.training import Tabular, logits, train_epochs

Start = Literal["scratch", "model"]
Checkpoint = Literal["accuracy", "objective", "last"]


@dataclass(frozen=True)
class Recipe:
    """How a network is trained. The defaults are the paper's for all its baselines.

    Parameters
    ----------
    start : {"scratch", "model"}, default="scratch"
        "scratch" draws new parameters. "model" starts from the given ones: the paper's "-IJ"
        variants fine-tune an edited model in this way.
    epochs : int, default=100
        Number of epochs.
    batch_size : int, default=256
        Rows per batch.
    learning_rate : float, default=1e-4
        Adam's step size.
    checkpoint : {"accuracy", "objective", "last"}, default="accuracy"
        Which epoch to keep: the best accuracy on validation rows, the lowest loss plus penalty
        there, or the last one. Accuracy can favour early epochs, where the penalty has no effect.
    balanced_loss : bool, default=False
        Take the loss on the balanced draw too, in place of the ordinary batch, as the code of
        Chuang & Mroueh does. This changes the shares of groups (and, for odds, of labels).

    Examples
    --------
    >>> from fairij.baselines import Recipe
    >>> Recipe(epochs=5).batch_size
    256
    """

    start: Start = "scratch"
    epochs: int = 100
    batch_size: int = 256
    learning_rate: float = 1e-4
    checkpoint: Checkpoint = "accuracy"
    balanced_loss: bool = False

    def __post_init__(self) -> None:
        one_of("start", self.start, get_args(Start))
        one_of("checkpoint", self.checkpoint, get_args(Checkpoint))
        whole_number("epochs", self.epochs, 1)
        whole_number("batch_size", self.batch_size, 1)
        number_between("learning_rate", self.learning_rate, 0)


@dataclass(frozen=True)
class Draw:
    """Rows for the penalty: ``strata[k][g]`` (n, D) of group g given the k-th true label."""

    strata: list[list[Tensor]]
    shares: list[Tensor]  # of the groups in each stratum, each (G,)
    y: Tensor  # of all rows, in order
    generator: torch.Generator

    @property
    def features(self) -> Tensor:
        """All rows, in order."""
        return torch.cat([x for groups in self.strata for x in groups])

    def scores(self, module: nn.Module) -> list[list[Tensor]]:
        """``sigmoid(z)`` of every group in every stratum, by one forward pass."""
        sizes = [len(x) for groups in self.strata for x in groups]
        pieces = iter(torch.sigmoid(logits(module, self.features)).split(sizes))
        return [[next(pieces) for _ in groups] for groups in self.strata]


@dataclass(frozen=True)
class Sampler:
    """Draws rows for the penalty. ``cells[k][g]`` are the rows of group g in stratum k."""

    X: Tensor
    y: Tensor
    cells: list[list[Tensor]]

    @classmethod
    def of(cls, split: Split, constraint: str, n_groups: int) -> Sampler:
        """A sampler of the rows of a split."""
        return cls.of_tensors(*split_tensors(split), split.s, constraint, n_groups)

    @classmethod
    def of_tensors(cls, X: Tensor, y: Tensor, s: Codes, constraint: str, n_groups: int) -> Sampler:
        """A sampler of rows on any device."""
        cells = strata_rows(constraint, y.cpu().numpy(), s, n_groups=n_groups)
        return cls(X, y, [[torch.as_tensor(c, device=y.device) for c in k] for k in cells])

    def draw(self, rows: int | None, generator: torch.Generator) -> Draw:
        """About ``rows`` rows, the same number from every cell, with replacement; all for None."""
        drawn = self.cells
        if rows is not None:
            shape = (max(rows // sum(map(len, drawn)), 2),)
            drawn = [
                [cell[torch.randint(len(cell), shape, generator=generator)] for cell in groups]
                for groups in drawn
            ]
        sizes = [torch.tensor([float(len(cell)) for cell in groups]) for groups in self.cells]
        return Draw(
            [[self.X.index_select(0, cell) for cell in groups] for groups in drawn],
            [size / size.sum() for size in sizes],
            torch.cat([self.y[cell] for groups in drawn for cell in groups]),
            generator,
        )


def split_tensors(split: Split) -> tuple[Tensor, Tensor]:
    """Features and labels as float32 tensors."""
    X, y = (torch.as_tensor(np.asarray(part), dtype=torch.float32) for part in (split.X, split.y))
    return X, y


@dataclass(frozen=True)
class InProcessing(Baseline):
    """A penalty on the training loss. Subclasses define the penalty.

    Parameters
    ----------
    constraint : str, default="demographic_parity"
        The gap that the penalty stands for.
    strength : float, default=1.0
        Weight of the penalty, next to the mean cross-entropy.
    recipe : Recipe, optional
        How the network is trained.
    seed : int, default=0
        Seed of the parameters, the order of rows and the draws.
    """

    constraint: Stratified = "demographic_parity"
    strength: float = 1.0
    recipe: Recipe = field(default_factory=Recipe)
    seed: int = 0

    refits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        number_between("strength", self.strength, 0, including_low=True)

    def penalty(self, module: nn.Module, draw: Draw) -> Tensor:
        """The penalty on a draw of rows."""
        raise NotImplementedError

    def fit(self, model: Any, train: Split, validation: Split) -> Predictor:
        module = train_module(
            model, train, validation, recipe=self.recipe, seed=self.seed, method=self
        )
        return Predictor(lambda X, s: positive_scores(module, X))


@dataclass(frozen=True, kw_only=True)
class Penalised(Tabular):
    """The objective of a network with or without a penalty."""

    recipe: Recipe
    method: InProcessing | None
    samplers: list[Sampler]  # of training and of validation rows
    seed: int
    draws: torch.Generator

    def loss(self, batch: Tensor) -> Tensor:
        if self.method is None or not self.method.strength:
            return super().loss(batch)
        draw = self.samplers[0].draw(self.batch_size, self.draws)
        term = self.method.strength * self.method.penalty(self.module, draw)
        if self.recipe.balanced_loss:
            z = logits(self.module, draw.features)
            return F.binary_cross_entropy_with_logits(z, draw.y) + term
        return super().loss(batch) + term

    def held_out(self) -> float:
        if self.recipe.checkpoint == "accuracy":
            return super().held_out()
        with torch.no_grad():
            z = logits(self.module, self.X_val)
            loss = float(F.binary_cross_entropy_with_logits(z, self.y_val))
        if self.method is None or not self.method.strength:
            return loss
        generator = torch.Generator().manual_seed(self.seed)  # the same draws in every epoch
        gap = self.method.penalty(self.module, self.samplers[1].draw(None, generator))
        return loss + self.method.strength * float(gap.detach())


def train_module(
    model: nn.Module,
    train: Split,
    validation: Split,
    *,
    recipe: Recipe,
    seed: int,
    method: InProcessing | None = None,
    weight: Tensor | None = None,
) -> nn.Module:
    """A trained copy. Without a penalty, it equals that of `train_mlp` up to rounding."""
    samplers = []
    if method is not None:
        n_groups = count_groups(train, validation)
        samplers = [Sampler.of(part, method.constraint, n_groups) for part in (train, validation)]
    if not isinstance(model, nn.Module):
        raise InvalidInputError(
            f"`model` must be a torch.nn.Module to be trained, got {type(model).__name__}: use one "
            "of the post-processing baselines for other kinds of models."
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = copy.deepcopy(model).train()
        if recipe.start == "scratch":
            _reset(module)
        objective = Penalised(
            module,
            *split_tensors(train),
            *split_tensors(validation),
            recipe.batch_size,
            weight,
            recipe=recipe,
            method=method,
            samplers=samplers,
            seed=seed,
            draws=torch.Generator().manual_seed(seed),
        )
        train_epochs(
            module,
            objective,
            torch.optim.Adam(module.parameters(), recipe.learning_rate, fused=True),
            epochs=recipe.epochs,
            keep_last=recipe.checkpoint == "last",
        )
    return module


def _reset(module: nn.Module) -> None:
    """Draw new parameters, as at construction."""
    for part in module.modules():
        reset = getattr(part, "reset_parameters", None)
        if callable(reset):
            reset()
        elif next(part.parameters(recurse=False), None) is not None:
            raise InvalidInputError(
                f"`model` must be made of layers with `reset_parameters` to be trained from "
                f"scratch, but {type(part).__name__} has none: use start='model'."
            )
