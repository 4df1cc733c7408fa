"""Train what is trainable of a model on texts: AdamW or SGD, the epoch of best validation loss."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairij.baselines.base import STRATA
from fairij.baselines.in_processing import Draw, InProcessing, Sampler
from fairij.datasets._files import PathLike
from fairij.errors import CheckpointError, InvalidInputError
from fairij.inputs import number_between, one_of, whole_number
from fairij.language.batches import (
    InHalves,
    Rows,
    count,
    on_device,
    run,
    run_all,
    shuffled,
    sizes,
)
from fairij.progress import silent
from fairij.sealed import UNREADABLE, hash_of, read_sealed, write_sealed
from fairij.search import Progress

Optimiser = Literal["adamw", "sgd"]
FORMAT = "fairij.training/1"
MAY_DIFFER = "epochs"  # a finished training may be asked for more of them
JUDGED = 4096  # validation rows on which a penalty is judged, the same in every epoch


@dataclass(frozen=True)
class Recipe:
    """How the trainable parameters are trained.

    Parameters
    ----------
    optimiser : "adamw" (without decay unless given) or "sgd" with momentum 0.9
    epochs : the most; the one of best validation loss is kept
    patience : stop after this many epochs without a better validation loss
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
        options: dict[str, Any] = {"lr": self.learning_rate, "weight_decay": self.weight_decay}
        if self.optimiser == "sgd":
            return torch.optim.SGD(parameters, momentum=0.9, **options)
        return torch.optim.AdamW(parameters, **options)


@dataclass
class Progressed:
    """Where a training stands; what a checkpoint holds."""

    epoch: int = 0
    best: float = float("inf")
    best_epoch: int = 0
    best_state: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Trained:
    """A trained copy of the model, and the losses of each epoch."""

    model: Any
    history: list[dict[str, float]]
    best_epoch: int


@dataclass(frozen=True)
class Penalty:
    """A baseline's penalty on rows whose group is known."""

    method: InProcessing
    train: Sampler
    validation: Draw
    pad: int | None  # of tokens; vectors have none

    @classmethod
    def of(
        cls, method: InProcessing, parts: list[tuple[Rows, Tensor, Any]], pad: int, seed: int
    ) -> Penalty:
        """``parts`` are rows, labels and groups for training and for validation."""
        samplers = [_sampler(method.constraint, *part) for part in parts]
        judged = samplers[1].draw(JUDGED, torch.Generator().manual_seed(seed))
        return cls(method, samplers[0], judged, pad if isinstance(parts[0][0], dict) else None)

    def on(self, module: nn.Module, draw: Draw) -> Tensor:
        runs = module if self.pad is None else InHalves(module, self.pad)
        return self.method.strength * self.method.penalty(runs, draw)


def _sampler(constraint: str, rows: Rows, y: Tensor, groups: Any) -> Sampler:
    ids = rows["input_ids"] if isinstance(rows, dict) else rows
    codes = torch.as_tensor(np.asarray(groups, dtype=np.int64), device=ids.device)
    cells = []
    for truth in STRATA[constraint]:
        inside = torch.ones_like(codes, dtype=torch.bool) if truth is None else y == truth
        cells.append([torch.nonzero(inside & (codes == g))[:, 0] for g in range(2)])
    if any(len(cell) == 0 for cells_of in cells for cell in cells_of):
        raise InvalidInputError(f"Every group must have rows for {constraint!r} in training.")
    return Sampler(ids, y, cells)


def train(
    model: nn.Module,
    X: Any,
    y: Any,
    *,
    X_val: Any,
    y_val: Any,
    recipe: Recipe = Recipe(),  # noqa: B008 - a frozen value
    penalty: InProcessing | None = None,
    groups: Any = None,
    groups_val: Any = None,
    seed: int = 0,
    checkpoint: PathLike | None = None,
    progress: Progress = silent,
) -> Trained:
    """A copy of ``model`` with its trainable parameters trained; the given one is left alone.

    Parameters
    ----------
    X, X_val : vectors (N, D), or tokenised rows; they go where the model is
    y, y_val : labels 0 and 1 for a model with one output, class numbers otherwise
    penalty, groups, groups_val : a baseline such as `GapReg`, and the rows' groups, 0 or 1
    checkpoint : a file; written after each epoch, and gone on from where there is one
    """
    module = copy.deepcopy(model)
    trainable = {n: p for n, p in module.named_parameters() if p.requires_grad}
    if not trainable:
        raise InvalidInputError("`model` must have parameters that require a gradient, got none.")
    device = next(iter(trainable.values())).device
    pad = getattr(getattr(model, "config", None), "pad_token_id", None) or 0
    rows, rows_val = (on_device(part, device, pad=pad) for part in (X, X_val))
    truth, truth_val = (
        torch.as_tensor(np.asarray(part), device=device).float() for part in (y, y_val)
    )
    extra = None
    if penalty is not None:
        parts = [(rows, truth, groups), (rows_val, truth_val, groups_val)]
        extra = Penalty.of(penalty, parts, pad, seed)
    optimiser = recipe.make(list(trainable.values()))
    draws = torch.Generator().manual_seed(seed)
    data = {
        "rows": rows,
        "labels": truth,
        "validation rows": rows_val,
        "validation labels": truth_val,
    }
    if penalty is not None:
        data |= {"groups": groups, "validation groups": groups_val}
    facts = {} if checkpoint is None else _facts(model, recipe, seed, penalty, data)
    now = _resume(checkpoint, facts, trainable, optimiser, draws)
    length = sizes(rows)
    while now.epoch < recipe.epochs and now.epoch - now.best_epoch < recipe.patience:
        module.train()
        total = torch.zeros((), device=device)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed * 10_007 + now.epoch)  # dropout, the same after a resumption
            for batch, index in shuffled(rows, recipe.batch_size, draws, length):
                optimiser.zero_grad(set_to_none=True)
                loss = cross_entropy(run(module, batch), truth[index])
                total += loss.detach() * len(index)
                if extra is not None:
                    loss = loss + extra.on(module, extra.train.draw(recipe.batch_size, draws))
                loss.backward()
                optimiser.step()
        now.epoch += 1
        module.eval()
        held_out = float(cross_entropy(run_all(module, rows_val), truth_val))
        if extra is not None:
            with torch.no_grad():
                held_out += float(extra.on(module, extra.validation))
        now.history.append({"train": float(total) / count(rows), "validation": held_out})
        if held_out < now.best:
            now.best, now.best_epoch = held_out, now.epoch
            now.best_state = {n: p.detach().cpu().clone() for n, p in trainable.items()}
        _keep(checkpoint, facts, now, trainable, optimiser, draws)
        progress("training", now.epoch, recipe.epochs)
    with torch.no_grad():
        for name, value in now.best_state.items():
            trainable[name].copy_(value)
    return Trained(module.eval(), now.history, now.best_epoch)


def cross_entropy(z: Tensor, y: Tensor) -> Tensor:
    """The mean loss: of the logit of label 1, or of one output a class."""
    if z.ndim == 1:
        return F.binary_cross_entropy_with_logits(z.float(), y)
    return F.cross_entropy(z.float(), y.long())


def _facts(
    model: nn.Module,
    recipe: Recipe,
    seed: int,
    penalty: InProcessing | None,
    data: Mapping[str, Any],
) -> dict[str, Any]:
    """All that a training depends on; models and data as hashes."""
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    facts = {**asdict(recipe), "seed": seed, "penalty": _said(penalty)}
    facts["model"] = hash_of(model.state_dict().items(), about=_said(model))
    facts["trained parameters"] = hash_of([], about=repr(trained))
    for name, part in data.items():
        if not isinstance(part, dict):
            values = part if isinstance(part, Tensor) else np.asarray(part, dtype=np.int64)
            part = {"": torch.as_tensor(values)}
        facts[name] = hash_of(part.items())
    return facts


def _said(thing: Any) -> str:
    """An object in words, without its place in memory, which is another each time."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(thing))


def _keep(
    checkpoint: PathLike | None,
    facts: Mapping[str, Any],
    now: Progressed,
    trainable: dict[str, nn.Parameter],
    optimiser: torch.optim.Optimizer,
    draws: torch.Generator,
) -> None:
    if checkpoint is None:
        return
    tensors: dict[str, Tensor] = {f"parameters {n}": p for n, p in trainable.items()}
    tensors |= {f"best {n}": value for n, value in now.best_state.items()}
    for place, state in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser {place} {n}": v for n, v in state.items() if isinstance(v, Tensor)}
    tensors["draws"] = draws.get_state()
    numbers = {name: value for name, value in vars(now).items() if name != "best_state"}
    header = {"format": FORMAT, "facts": _json(facts), "now": _json(numbers)}
    copies = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    try:
        write_sealed(Path(checkpoint), copies, header)
    except OSError as error:
        raise CheckpointError(
            f"`checkpoint` {checkpoint} must be writable: {error.strerror or error}. What was "
            "written before is whole: free some space or give another file, and run again."
        ) from error


def _resume(
    checkpoint: PathLike | None,
    facts: Mapping[str, Any],
    trainable: dict[str, nn.Parameter],
    optimiser: torch.optim.Optimizer,
    draws: torch.Generator,
) -> Progressed:
    if checkpoint is None or not Path(checkpoint).exists():
        return Progressed()
    try:
        header, tensors = read_sealed(Path(checkpoint), FORMAT)
        found, numbers = json.loads(header["facts"]), json.loads(header["now"])
        _check_same(checkpoint, found, facts)
        now = Progressed(**numbers, best_state=_under("best ", tensors))
        parameters = _under("parameters ", tensors)
        for name, parameter in trainable.items():
            for kept in (parameters, now.best_state or parameters):
                if kept[name].shape != parameter.shape:
                    raise ValueError(f"its {name!r} is of another shape")
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in _under("optimiser ", tensors).items():
            place, _, name = key.partition(" ")
            state.setdefault(int(place), {})[name] = value
        draws.set_state(tensors["draws"])
        optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
    except CheckpointError:
        raise
    except (*UNREADABLE, RuntimeError) as error:
        raise CheckpointError(
            f"`checkpoint` {checkpoint} must be a whole file as this training writes it, but "
            f"it cannot be read: {error}. Remove it to start over, or give another file."
        ) from None
    with torch.no_grad():
        for name, parameter in trainable.items():
            parameter.copy_(parameters[name])
    return now


def _check_same(checkpoint: PathLike, found: dict[str, Any], facts: Mapping[str, Any]) -> None:
    names = sorted(found.keys() | facts.keys())
    other = [n for n in names if found.get(n) != facts.get(n) and n != MAY_DIFFER]
    if other:
        raise CheckpointError(
            f"`checkpoint` {checkpoint} must come from the same training; it differs in "
            f"{', '.join(other)}. Give another file, or remove this one."
        )


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, default=lambda value: value.item())  # numpy's numbers as Python's


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, without that beginning."""
    return {n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)}
