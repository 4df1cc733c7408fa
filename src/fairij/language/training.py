"""Train the trainable parameters of a model on texts, and save and continue such a training."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from fairij.baselines.in_processing import InProcessing
from fairij.data.checks import number_between, one_of, whole_number
from fairij.data.hashing import tensors_fingerprint
from fairij.data.memory import TooLargeError
from fairij.datasets._files import PathLike
from fairij.errors import CheckpointError, InvalidInputError
from fairij.language.batches import TrainingPart, given_part
from fairij.language.objective import TextObjective
from fairij.method.run import Progress, silent
from fairij.models.torch.training import TrainingState, changing, put, train_epochs
from fairij.storage.checksummed import UNREADABLE, read_sealed, write_sealed

Optimiser = Literal["adamw", "sgd"]
FORMAT = "fairij.training/1"


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

    Examples
    --------
    >>> from fairij.language import TrainingRecipe
    >>> TrainingRecipe(epochs=3).optimiser
    'adamw'
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
    """A trained copy of the model, and the losses of each epoch.

    Examples
    --------
    >>> from fairij.language import TrainingRecipe, linear_head, train
    >>> trained = train(linear_head(3), X.astype("float32"), y, X_val=X_val.astype("float32"),
    ...     y_val=y_val, recipe=TrainingRecipe(epochs=2))
    >>> len(trained.history)
    2
    """

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

    Examples
    --------
    >>> from fairij.language import TrainingRecipe, linear_head, train
    >>> trained = train(linear_head(3), X.astype("float32"), y, X_val=X_val.astype("float32"),
    ...     y_val=y_val, recipe=TrainingRecipe(epochs=2))
    >>> trained.model(torch.zeros(1, 3)).shape
    torch.Size([1, 1])
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
        facts = training_facts(model, recipe, seed, penalty, [part, part_val])
        kept = TrainingCheckpoint(Path(checkpoint), facts, module, optimiser, draws)
        state = kept.resume()
    size = recipe.batch_size

    def after_epoch(state: TrainingState) -> None:
        if kept is not None:
            kept.save(state)
        progress("training", state.epoch, recipe.epochs)

    train_epochs(
        module,
        TextObjective(module, part, part_val, penalty, size, draws, seed, state.history),
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


def training_facts(
    model: nn.Module, recipe: Any, seed: int, penalty: Any, parts: list[TrainingPart]
) -> dict[str, Any]:
    """All that a training depends on, with models and data as hashes."""
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    facts = {**asdict(recipe), "seed": seed, "penalty": _described(penalty)}
    facts["model"] = tensors_fingerprint(model.state_dict().items(), about=_described(model))[:32]
    facts["trained parameters"] = tensors_fingerprint([], about=repr(trained))[:32]
    for prefix, given in zip(("", "validation "), parts, strict=True):
        data: dict[str, Any] = {"rows": given.rows, "labels": given.y}
        if given.groups is not None:
            data["groups"] = torch.as_tensor(given.groups)
        for name, values in data.items():
            tensors = values if isinstance(values, dict) else {"": values}
            facts[f"{prefix}{name}"] = tensors_fingerprint(tensors.items())[:32]
    return facts


def _described(thing: Any) -> str:
    """The representation of an object without memory addresses, which change."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(thing))


@dataclass(frozen=True)
class TrainingCheckpoint:
    """A file that holds a training: what it depends on, and how far it has come."""

    file: Path
    facts: Mapping[str, Any]
    module: nn.Module
    optimiser: torch.optim.Optimizer
    draws: torch.Generator

    def save(self, state: TrainingState) -> None:
        """Replace the file by the present state."""
        tensors = {f"parameters {n}": t for n, t in changing(self.module).items()}
        tensors |= {f"best {n}": value for n, value in state.best_state.items()}
        for place, values in self.optimiser.state_dict()["state"].items():
            of_place = {n: v for n, v in values.items() if isinstance(v, Tensor)}
            tensors |= {f"optimiser {place} {n}": v for n, v in of_place.items()}
        tensors["draws"] = self.draws.get_state()
        numbers = {name: value for name, value in vars(state).items() if name != "best_state"}
        header = {"format": FORMAT, "facts": _json(self.facts), "now": _json(numbers)}
        copies = {n: value.detach().cpu().clone().contiguous() for n, value in tensors.items()}
        try:
            write_sealed(self.file, copies, header)
        except OSError as error:
            raise CheckpointError(
                f"`checkpoint` {self.file} must be writable: {error.strerror or error}. The file "
                "written before is intact: free some space or give another file, and run again."
            ) from error

    def resume(self) -> TrainingState:
        """The state in the file, put into module, optimiser and draws; new without a file."""
        if not self.file.exists():
            return TrainingState()
        try:
            header, tensors = read_sealed(self.file, FORMAT)
            found, numbers = json.loads(header["facts"]), json.loads(header["now"])
            if not isinstance(found, dict):
                raise ValueError("its facts are not a table")
            _check_numbers(numbers)
            names = sorted(found.keys() | self.facts.keys())
            names.remove("epochs")  # a finished training can be continued with more
            if other := [n for n in names if found.get(n) != self.facts.get(n)]:
                raise CheckpointError(
                    f"`checkpoint` {self.file} must come from the same training; it differs in "
                    f"{', '.join(other)}. Give another file, or remove this one."
                )
            state = TrainingState(**numbers, best_state=_under("best ", tensors))
            parameters = _under("parameters ", tensors)
            for name, tensor in changing(self.module).items():
                for kept in (parameters, state.best_state or parameters):
                    if kept[name].shape != tensor.shape:
                        raise ValueError(f"its {name!r} has another shape")
            of_optimiser: dict[int, dict[str, Tensor]] = {}
            for key, value in _under("optimiser ", tensors).items():
                place, _, name = key.partition(" ")
                of_optimiser.setdefault(int(place), {})[name] = value
            self.draws.set_state(tensors["draws"])
            self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": of_optimiser})
        except (CheckpointError, TooLargeError):
            raise
        except (*UNREADABLE, AttributeError, RuntimeError) as error:
            raise CheckpointError(
                f"`checkpoint` {self.file} must be a whole file as this training writes it, but "
                f"it cannot be read: {error}. Remove it to start over, or give another file."
            ) from None
        put(parameters, changing(self.module))
        return state


def _check_numbers(numbers: Any) -> None:
    """Raise unless this is a `TrainingState` without its tensors."""
    counts = ("epoch", "best_epoch")
    if not (
        isinstance(numbers, dict)
        and numbers.keys() == {*counts, "best", "history"}
        and all(type(numbers[name]) is int and numbers[name] >= 0 for name in counts)
        and type(numbers["best"]) in (int, float)
        and isinstance(numbers["history"], list)
        and len(numbers["history"]) == numbers["epoch"]
        and all(isinstance(losses, dict) for losses in numbers["history"])
    ):
        raise ValueError("it does not say how far the training has come")


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, default=lambda value: value.item())  # numpy's numbers as Python's


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names have this prefix, without the prefix."""
    return {n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)}
