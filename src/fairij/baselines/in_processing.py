"""What baselines that train share: a penalty on the training loss.

    loss(batch) + strength * penalty(draw)

The batch is an ordinary shuffled batch. The draw has the same number of rows from every group
(given every true label that the constraint asks about).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairij.baselines.base import (
    Baseline,
    Predictor,
    check_constraint,
    count_groups,
    positive_scores,
)
from fairij.baselines.draws import Draw, Sampler, split_tensors
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
        there, or the last one. Accuracy can favour early epochs, before the penalty has had an
        effect, most of all when fine-tuning.
    balanced_loss : bool, default=False
        Take the loss on the balanced draw too, in place of the ordinary batch, as the code of
        Chuang & Mroueh does. This changes the shares of groups that the network is trained for
        (and, for equalized odds, of labels).
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
class Regulariser:
    """A penalty with its weight and the rows that it is drawn from."""

    penalty: Callable[[nn.Module, Draw], Tensor]
    strength: float
    train: Sampler
    validation: Sampler


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

    constraint: str = "demographic_parity"
    strength: float = 1.0
    recipe: Recipe = field(default_factory=Recipe)
    seed: int = 0

    refits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_constraint(self)
        number_between("strength", self.strength, 0, including_low=True)

    def penalty(self, module: nn.Module, draw: Draw) -> Tensor:
        """The penalty on a draw of rows."""
        raise NotImplementedError

    def fit(self, model: Any, train: Split, validation: Split) -> Predictor:
        n_groups = count_groups(train, validation)
        samplers = [Sampler.of(part, self.constraint, n_groups) for part in (train, validation)]
        penalty = Regulariser(self.penalty, self.strength, *samplers) if self.strength else None
        module = train_module(
            model, train, validation, recipe=self.recipe, seed=self.seed, penalty=penalty
        )
        return Predictor(lambda X, s: positive_scores(module, X))


@dataclass(frozen=True, kw_only=True)
class Penalised(Tabular):
    """The objective of a network with or without a penalty."""

    recipe: Recipe
    penalty: Regulariser | None
    seed: int
    draws: torch.Generator

    def loss(self, batch: Tensor) -> Tensor:
        if self.penalty is None:
            return super().loss(batch)
        draw = self.penalty.train.draw(self.batch_size, self.draws)
        term = self.penalty.strength * self.penalty.penalty(self.module, draw)
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
        if self.penalty is None:
            return loss
        generator = torch.Generator().manual_seed(self.seed)  # the same draws in every epoch
        draw = self.penalty.validation.everything(generator)
        gap = self.penalty.penalty(self.module, draw)
        return loss + self.penalty.strength * float(gap.detach())


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
    """A trained copy. Without a penalty, it equals that of `train_mlp` up to rounding."""
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
            penalty=penalty,
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
