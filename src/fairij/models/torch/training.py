"""The one training loop, and the paper's tabular network that is trained with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional as F

from fairij.errors import InvalidInputError


class Objective(Protocol):
    """What is trained for: batches, the loss of one batch, and a measure to choose the epoch by."""

    def batches(self) -> Iterable[Any]:
        """The batches of one epoch."""

    def loss(self, batch: Any) -> Tensor:
        """The loss of one batch, with any penalty."""

    def held_out(self) -> float:
        """A measure on validation rows; the epoch with the lowest value is kept."""


@dataclass
class TrainingState:
    """How far a training has come. A checkpoint stores it."""

    epoch: int = 0
    best: float = math.inf
    best_epoch: int = 0
    best_state: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)


def train_epochs(
    module: nn.Module,
    objective: Objective,
    optimiser: torch.optim.Optimizer,
    *,
    epochs: int,
    patience: float = math.inf,
    keep_last: bool = False,
    seeds: Callable[[int], int] | None = None,
    state: TrainingState | None = None,
    after_epoch: Callable[[TrainingState], None] = lambda state: None,
) -> TrainingState:
    """Train ``module`` in place, and leave it in the state of its best epoch.

    Training stops after ``epochs`` epochs, or after ``patience`` epochs without a better measure.
    With ``keep_last``, or if the measure is never finite, the last state is kept. ``seeds`` gives
    an epoch's seed of dropout, so that a training that continues from ``state`` is the same.
    """
    state = TrainingState() if state is None else state
    while state.epoch < epochs and state.epoch - state.best_epoch < patience:
        module.train()
        with nullcontext() if seeds is None else _seeded(module, seeds(state.epoch)):
            for batch in objective.batches():
                optimiser.zero_grad()
                objective.loss(batch).backward()
                optimiser.step()
        state.epoch += 1
        module.eval()
        if not keep_last and (value := objective.held_out()) < state.best:
            state.best, state.best_epoch = value, state.epoch
            state.best_state = {n: t.detach().cpu().clone() for n, t in changing(module).items()}
        after_epoch(state)
    if state.best_state:
        put(state.best_state, changing(module))
    module.eval()
    return state


@contextmanager
def _seeded(module: nn.Module, seed: int) -> Iterator[None]:
    device = next(p for p in module.parameters() if p.requires_grad).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def changing(module: nn.Module) -> dict[str, Tensor]:
    """What training may change: trainable parameters and saved buffers, such as running means."""
    saved = module.state_dict()
    parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
    return parameters | {n: b for n, b in module.named_buffers() if n in saved}


def put(values: Mapping[str, Tensor], into: Mapping[str, Tensor]) -> None:
    """Copy values into the tensors of the same names."""
    with torch.no_grad():
        for name, tensor in into.items():
            tensor.copy_(values[name])


@dataclass(frozen=True)
class Tabular:
    """Binary cross-entropy on rows of numbers. The measure is minus the validation accuracy."""

    module: nn.Module
    X: Tensor  # (N, D)
    y: Tensor  # (N,) of 0 and 1
    X_val: Tensor
    y_val: Tensor
    batch_size: int
    weight: Tensor | None = None

    def batches(self) -> Iterable[Tensor]:
        return torch.randperm(len(self.X)).split(self.batch_size)

    def loss(self, batch: Tensor) -> Tensor:
        z = logits(self.module, self.X.index_select(0, batch))  # much faster than X[batch] on a CPU
        weight = None if self.weight is None else self.weight[batch]
        return F.binary_cross_entropy_with_logits(z, self.y[batch], weight)

    def held_out(self) -> float:
        with torch.no_grad():
            z = logits(self.module, self.X_val)
            return -float(((z > 0) == (self.y_val > 0.5)).float().mean())


def logits(module: nn.Module, X: Tensor) -> Tensor:
    """``z`` (N,) of a module with one output per row."""
    z: Tensor = module(X)
    if z.ndim == 2 and z.shape[1] == 1:
        z = z[:, 0]
    if z.ndim != 1:
        raise InvalidInputError(
            f"`model` must have one logit per row to be trained, got shape {tuple(z.shape)}."
        )
    return z


def mlp(inputs: int, hidden: int = 100, outputs: int = 1) -> nn.Sequential:
    """One hidden layer of SELU units."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.SELU(), nn.Linear(hidden, outputs))


def train_mlp(
    X: ArrayLike,
    y: ArrayLike,
    X_val: ArrayLike,
    y_val: ArrayLike,
    *,
    hidden: int = 100,
    epochs: int = 100,
    batch_size: int = 256,
    learning_rate: float = 1e-4,
    seed: int = 0,
    on_epoch: Callable[[int, int], None] | None = None,
) -> nn.Sequential:
    """Train `mlp` with Adam and keep the epoch with the best validation accuracy.

    X are rows (N, D) and y labels, 0 or 1. The defaults are the paper's. `seed` is for the first
    parameters and the order of rows. `on_epoch` gets each epoch's number and that of all epochs.
    """
    features, labels, features_val, labels_val = (
        torch.as_tensor(np.asarray(part), dtype=torch.float32) for part in (X, y, X_val, y_val)
    )
    with torch.random.fork_rng(devices=[]), _one_thread():
        torch.manual_seed(seed)
        module = mlp(features.shape[1], hidden)
        train_epochs(
            module,
            Tabular(module, features, labels, features_val, labels_val, batch_size),
            torch.optim.Adam(module.parameters(), learning_rate),
            epochs=epochs,
            after_epoch=lambda state: on_epoch(state.epoch, epochs) if on_epoch else None,
        )
    return module


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread: small batches gain nothing from more, and lose much on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
