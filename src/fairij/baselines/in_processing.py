"""What the in-processing baselines share: one training loop with a place for a penalty.

    loss(batch) + strength * penalty(draw)

The batch is an ordinary shuffled one; the draw has as many rows of every group (given every truth
that the constraint asks about), so that a small group's mean is not noisier than a large one's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairij.baselines.base import (
    Predictor,
    TradeOff,
    check_constraint,
    count_groups,
    positive_scores,
    strata_rows,
)
from fairij.data.checks import number_between, one_of, whole_number
from fairij.datasets.splits import Split
from fairij.errors import InvalidInputError

Start = Literal["scratch", "model"]
Checkpoint = Literal["accuracy", "objective", "last"]


@dataclass(frozen=True)
class Recipe:
    """How a network is trained; the defaults are Fair-IJ's for all its baselines.

    Parameters
    ----------
    start : "scratch" draws the parameters anew; "model" goes on from those given (the "-IJ"
        variants fine-tune an edited model)
    checkpoint : the epoch kept: the best "accuracy" on validation rows, the lowest "objective"
        there (loss and penalty), or the "last". Accuracy can favour epochs in which the penalty
        has not yet told, above all when fine-tuning.
    balanced_loss : take the loss on the balanced draw as well, as Chuang & Mroueh's code does,
        in place of the ordinary batch; this changes the share of groups (and, for equalized
        odds, of labels) that the network is trained for
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
    """Rows for the penalty: ``strata[k][g]`` (n, D) of group g given the k-th truth."""

    strata: list[list[Tensor]]
    shares: list[Tensor]  # of the groups in each stratum, each (G,)
    y: Tensor  # of all of them, in order
    generator: torch.Generator

    @property
    def features(self) -> Tensor:
        return torch.cat([x for groups in self.strata for x in groups])

    def scores(self, module: nn.Module) -> list[list[Tensor]]:
        """``sigmoid(z)`` of every group given every truth, by one forward pass."""
        sizes = [len(x) for groups in self.strata for x in groups]
        pieces = iter(torch.sigmoid(logits(module, self.features)).split(sizes))
        return [[next(pieces) for _ in groups] for groups in self.strata]


Penalty = Callable[[nn.Module, Draw], Tensor]


@dataclass(frozen=True)
class Sampler:
    """Draws rows of a split for the penalty."""

    X: Tensor
    y: Tensor
    cells: list[list[Tensor]]

    @classmethod
    def of(cls, split: Split, constraint: str, n_groups: int) -> Sampler:
        cells = strata_rows(constraint, split, n_groups=n_groups)
        return cls(
            *_tensors(split), [[torch.as_tensor(rows) for rows in groups] for groups in cells]
        )

    def draw(self, rows: int, generator: torch.Generator) -> Draw:
        """About ``rows`` rows, as many of every cell, with replacement."""
        size = max(rows // sum(map(len, self.cells)), 2)
        return self._take(
            [
                [cell[torch.randint(len(cell), (size,), generator=generator)] for cell in groups]
                for groups in self.cells
            ],
            generator,
        )

    def everything(self, generator: torch.Generator) -> Draw:
        return self._take(self.cells, generator)

    def _take(self, rows: list[list[Tensor]], generator: torch.Generator) -> Draw:
        sizes = [torch.tensor([float(len(cell)) for cell in groups]) for groups in self.cells]
        return Draw(
            [[self.X.index_select(0, cell) for cell in groups] for groups in rows],
            [size / size.sum() for size in sizes],
            torch.cat([self.y[cell] for groups in rows for cell in groups]),
            generator,
        )


@dataclass(frozen=True)
class InProcessing:
    """A penalty on the training loss; a method says which.

    Parameters
    ----------
    constraint : which gap the penalty stands for
    strength : its weight beside the mean cross-entropy
    recipe : how the network is trained
    seed : of the parameters, the order of rows and the draws
    """

    constraint: str = "demographic_parity"
    strength: float = 1.0
    recipe: Recipe = field(default_factory=Recipe)
    seed: int = 0

    name: ClassVar[str]
    needs_group_at_test: ClassVar[bool] = False
    refits: ClassVar[bool] = True
    randomised: ClassVar[bool] = False
    constraints: ClassVar[tuple[str, ...]] = (
        "demographic_parity",
        "equalized_odds",
        "equal_opportunity",
    )
    trade_off: ClassVar[TradeOff | None]

    def __post_init__(self) -> None:
        check_constraint(self.constraint, self.constraints, self.name)
        number_between("strength", self.strength, 0, including_low=True)

    def penalty(self, module: nn.Module, draw: Draw) -> Tensor:
        raise NotImplementedError

    def fit(self, model: Any, train: Split, validation: Split) -> Predictor:
        n_groups = count_groups(train, validation)
        parts = {
            part: Sampler.of(split, self.constraint, n_groups)
            for part, split in (("train", train), ("validation", validation))
        }
        module = train_module(
            model,
            train,
            validation,
            recipe=self.recipe,
            seed=self.seed,
            penalty=Regulariser(self.penalty, self.strength, parts["train"], parts["validation"]),
        )
        return Predictor(lambda X, s: positive_scores(module, X))


@dataclass(frozen=True)
class Regulariser:
    """A penalty with its weight and the rows that it is drawn from."""

    penalty: Penalty
    strength: float
    train: Sampler
    validation: Sampler


def train_module(
    model: nn.Module,
    train: Split,
    validation: Split,
    *,
    recipe: Recipe,
    seed: int,
    penalty: Regulariser | None = None,
    weight: Tensor | None = None,
) -> nn.Module:
    """A trained copy; without a penalty, what `train_mlp` gives, up to rounding."""
    if not isinstance(model, nn.Module):
        raise InvalidInputError(
            f"`model` must be a torch.nn.Module to be trained, got {type(model).__name__}: of a "
            "model of another kind, only the post-processing baselines can be had."
        )
    X, y = _tensors(train)
    draws = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = copy.deepcopy(model).train()
        if recipe.start == "scratch":
            _reset(module)
        optimiser = torch.optim.Adam(module.parameters(), recipe.learning_rate, fused=True)
        best, best_state = -np.inf, module.state_dict()
        for _ in range(recipe.epochs):
            for batch in torch.randperm(len(X)).split(recipe.batch_size):
                optimiser.zero_grad()
                _objective(module, X, y, batch, weight, recipe, penalty, draws).backward()
                optimiser.step()
            quality = _quality(module.eval(), validation, recipe.checkpoint, penalty, seed)
            module.train()
            if quality > best or recipe.checkpoint == "last":
                best, best_state = quality, copy.deepcopy(module.state_dict())
    module.load_state_dict(best_state)
    return module.eval()


def logits(module: nn.Module, X: Tensor) -> Tensor:
    """``z`` (N,) of a module with one output a row."""
    z: Tensor = module(X)
    if z.ndim == 2 and z.shape[1] == 1:
        z = z[:, 0]
    if z.ndim != 1:
        raise InvalidInputError(
            f"`model` must have one logit a row to be trained, got outputs of shape "
            f"{tuple(z.shape)}."
        )
    return z


def _objective(
    module: nn.Module,
    X: Tensor,
    y: Tensor,
    batch: Tensor,
    weight: Tensor | None,
    recipe: Recipe,
    penalty: Regulariser | None,
    draws: torch.Generator,
) -> Tensor:
    if penalty is None or penalty.strength == 0:
        return _loss(module, X, y, batch, weight)
    draw = penalty.train.draw(recipe.batch_size, draws)
    term = penalty.strength * penalty.penalty(module, draw)
    if recipe.balanced_loss:
        return F.binary_cross_entropy_with_logits(logits(module, draw.features), draw.y) + term
    return _loss(module, X, y, batch, weight) + term


def _loss(module: nn.Module, X: Tensor, y: Tensor, batch: Tensor, weight: Tensor | None) -> Tensor:
    z = logits(module, X.index_select(0, batch))  # much faster than X[batch] on a CPU
    part = None if weight is None else weight[batch]
    return F.binary_cross_entropy_with_logits(z, y[batch], part)


def _quality(
    module: nn.Module,
    validation: Split,
    checkpoint: Checkpoint,
    penalty: Regulariser | None,
    seed: int,
) -> float:
    """What the kept epoch is highest in."""
    if checkpoint == "last":
        return 0.0
    X, y = _tensors(validation)
    with torch.no_grad():
        z = logits(module, X)
        if checkpoint == "accuracy":
            return float(((z > 0) == (y > 0.5)).float().mean())
        loss = float(F.binary_cross_entropy_with_logits(z, y))
    if penalty is None or penalty.strength == 0:
        return -loss
    generator = torch.Generator().manual_seed(seed)  # the same draws for every epoch
    gap = penalty.penalty(module, penalty.validation.everything(generator))
    return -loss - penalty.strength * float(gap.detach())


def _reset(module: nn.Module) -> None:
    """Draw all parameters anew, as at construction."""
    for part in module.modules():
        reset = getattr(part, "reset_parameters", None)
        if callable(reset):
            reset()
        elif next(part.parameters(recurse=False), None) is not None:
            raise InvalidInputError(
                f"`model` must be made of layers with `reset_parameters` to be trained from "
                f"scratch, but {type(part).__name__} has none: use start='model'."
            )


def _tensors(split: Split) -> tuple[Tensor, Tensor]:
    return (
        torch.as_tensor(np.asarray(split.X), dtype=torch.float32),
        torch.as_tensor(np.asarray(split.y), dtype=torch.float32),
    )
