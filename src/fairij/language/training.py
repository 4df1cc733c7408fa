"""Train the trainable parameters of a model on texts."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from fairij.baselines.in_processing import InProcessing
from fairij.data.checks import number_between, one_of, whole_number
from fairij.datasets._files import PathLike
from fairij.errors import InvalidInputError
from fairij.language.objective import TextObjective
from fairij.language.training_checkpoints import TrainingCheckpoint, training_facts
from fairij.language.training_inputs import given_part
from fairij.method.run import Progress, silent
from fairij.models.torch.training import TrainingState, train_epochs

Optimiser = Literal["adamw", "sgd"]


@dataclass(frozen=True)
class TrainingRecipe:
    """How the trainable parameters are trained.

    Parameters
    ----------
    optimiser : {"adamw", "sgd"}, default="adamw"
        AdamW, or SGD with momentum 0.9.
    learning_rate : float, default=1e-3
        Step size.
    epochs : int, default=20
        The largest number of epochs. The epoch with the best validation loss is kept.
    batch_size : int, default=256
        Rows per batch.
    weight_decay : float, default=0.0
        Weight decay of the optimiser.
    patience : int, default=5
        Stop after this many epochs without a better validation loss.
    """

    optimiser: Optimiser = "adamw"
    learning_rate: float = 1e-3
    epochs: int = 20
    batch_size: int = 256
    weight_decay: float = 0.0
    patience: int = 5

    def __post_init__(self) -> None:
        one_of("optimiser", self.optimiser, get_args(Optimiser))
        number_between("learning_rate", self.learning_rate, 0)
        number_between("weight_decay", self.weight_decay, 0, including_low=True)
        for name in ("epochs", "batch_size", "patience"):
            whole_number(name, getattr(self, name), 1)

    def make(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimiser of these parameters."""
        options: dict[str, Any] = {"lr": self.learning_rate, "weight_decay": self.weight_decay}
        if self.optimiser == "sgd":
            return torch.optim.SGD(parameters, momentum=0.9, **options)
        return torch.optim.AdamW(parameters, **options)


@dataclass(frozen=True)
class Trained:
    """A trained copy of the model, and the losses of each epoch."""

    model: Any
    history: list[dict[str, float]]
    best_epoch: int


def train(
    model: nn.Module,
    X: Any,
    y: Any,
    *,
    X_val: Any,
    y_val: Any,
    recipe: TrainingRecipe = TrainingRecipe(),  # noqa: B008 - a frozen value
    penalty: InProcessing | None = None,
    groups: Any = None,
    groups_val: Any = None,
    seed: int = 0,
    checkpoint: PathLike | None = None,
    progress: Progress = silent,
) -> Trained:
    """A copy of ``model`` with its trainable parameters trained. The given model is left alone.

    Parameters
    ----------
    model : nn.Module
        Parameters that require a gradient are trained.
    X, X_val : array-like of shape (N, D), tokenised rows, or list of str
        Vectors, tokens, or texts for a `TextClassifier`. They are moved to the model's device,
        vectors in its precision.
    y, y_val : array-like of shape (N,)
        Labels 0 and 1 for a model with one output, class numbers otherwise.
    recipe : TrainingRecipe, optional
        Optimiser, rate and number of epochs.
    penalty : InProcessing, optional
        A baseline such as `GapReg`, added to the loss.
    groups, groups_val : array-like of shape (N,), optional
        The rows' groups, 0 or 1, for the penalty.
    seed : int, default=0
        Seed of the order of rows, of dropout and of the penalty's draws.
    checkpoint : path, optional
        A file that is written after each epoch. If it exists, training continues from it.
    progress : callable, optional
        Called after each epoch with "training", its number, and the number of all epochs.
    """
    module = copy.deepcopy(model)
    if not any(p.requires_grad for p in module.parameters()):
        raise InvalidInputError("`model` must have parameters that require a gradient, got none.")
    grouped = penalty is not None
    part = given_part(module, "", X, y, groups, grouped)
    part_val = given_part(module, "_val", X_val, y_val, groups_val, grouped)
    draws = torch.Generator().manual_seed(seed)
    optimiser = recipe.make([p for p in module.parameters() if p.requires_grad])
    kept, state = None, TrainingState()
    if checkpoint is not None:
        facts = training_facts(model, recipe, seed, penalty, part, part_val)
        kept = TrainingCheckpoint(Path(checkpoint), facts, module, optimiser, draws)
        state = kept.resume()
    size, history = recipe.batch_size, state.history

    def after_epoch(state: TrainingState) -> None:
        if kept is not None:
            kept.save(state)
        progress("training", state.epoch, recipe.epochs)

    train_epochs(
        module,
        TextObjective(module, part, part_val, penalty, size, draws, seed, history),
        optimiser,
        epochs=recipe.epochs,
        patience=recipe.patience,
        seeds=lambda epoch: seed * 10_007 + epoch,  # so that a continued training is the same
        state=state,
        after_epoch=after_epoch,
    )
    if not state.best_state:
        raise InvalidInputError(
            "The validation loss must be finite in some epoch, but it is not in any of "
            f"{state.epoch}: lower the recipe's `learning_rate` of {recipe.learning_rate:g}, or "
            "scale `X`."
        )
    return Trained(module, state.history, state.best_epoch)
