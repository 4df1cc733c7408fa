"""Train what is trainable of a model on texts: AdamW or SGD, the epoch of best validation loss."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairij.baselines.base import STRATA
from fairij.baselines.in_processing import Draw, InProcessing, Sampler
from fairij.data.checks import has_method, number_between, one_of, whole_number
from fairij.datasets._files import PathLike
from fairij.errors import CheckpointError, InvalidInputError
from fairij.language.batches import (
    InHalves,
    Rows,
    count,
    run,
    run_all,
    shuffled,
    sizes,
)
from fairij.language.training_inputs import Part, given_part
from fairij.method.progress import silent
from fairij.method.search.dropping import Progress
from fairij.storage.checksummed import UNREADABLE, hash_of, read_sealed, write_sealed

Optimiser = Literal["adamw", "sgd"]
FORMAT = "fairij.models.torch.training/1"
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
    rows: Rows
    rows_val: Rows

    @classmethod
    def of(cls, method: InProcessing, train: Part, validation: Part, seed: int) -> Penalty:
        samplers = [_sampler(method.constraint, part) for part in (train, validation)]
        judged = samplers[1].draw(JUDGED, torch.Generator().manual_seed(seed))
        return cls(method, samplers[0], judged, train.rows, validation.rows)

    def in_training(self, module: nn.Module, rows: int, draws: torch.Generator) -> Tensor:
        return self._on(module, self.train.draw(rows, draws), self.rows)

    def held_out(self, module: nn.Module) -> Tensor:
        return self._on(module, self.validation, self.rows_val)

    def _on(self, module: nn.Module, draw: Draw, rows: Rows) -> Tensor:
        runs = InHalves(module, rows) if isinstance(rows, dict) else module
        return self.method.strength * self.method.penalty(runs, draw)


def _sampler(constraint: str, part: Part) -> Sampler:
    """Draws vectors, or the numbers of rows of tokens."""
    device = part.y.device
    rows = torch.arange(count(part.rows), device=device)
    codes = torch.as_tensor(part.groups, device=device)
    cells = []
    for truth in STRATA[constraint]:
        inside = torch.ones_like(codes, dtype=torch.bool) if truth is None else part.y == truth
        cells.append([torch.nonzero(inside & (codes == g))[:, 0] for g in range(2)])
    if any(len(cell) == 0 for cells_of in cells for cell in cells_of):
        raise InvalidInputError(f"Every group must have rows for {constraint!r} in training.")
    return Sampler(rows if isinstance(part.rows, dict) else part.rows, part.y, cells)


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
    X, X_val : vectors (N, D), tokenised rows, or texts for a `TextClassifier`; they go where the
        model is, vectors in its precision
    y, y_val : labels 0 and 1 for a model with one output, class numbers otherwise
    penalty, groups, groups_val : a baseline such as `GapReg`, and the rows' groups, 0 or 1
    checkpoint : a file; written after each epoch, and gone on from where there is one
    """
    module = copy.deepcopy(model)
    trainable = [p for p in module.parameters() if p.requires_grad]
    if not trainable:
        raise InvalidInputError("`model` must have parameters that require a gradient, got none.")
    if penalty is not None:
        has_method("penalty", penalty, "penalty", "a baseline such as GapReg(), or None")
    part = given_part(module, "", X, y, groups, penalty is not None)
    part_val = given_part(module, "_val", X_val, y_val, groups_val, penalty is not None)
    extra = None if penalty is None else Penalty.of(penalty, part, part_val, seed)
    optimiser = recipe.make(trainable)
    draws = torch.Generator().manual_seed(seed)
    facts = {} if checkpoint is None else _facts(model, recipe, seed, penalty, part, part_val)
    now = _resume(checkpoint, facts, _changing(module), optimiser, draws)
    rows, truth, device = part.rows, part.y, part.y.device
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
                    loss = loss + extra.in_training(module, recipe.batch_size, draws)
                loss.backward()
                optimiser.step()
        now.epoch += 1
        module.eval()
        held_out = float(cross_entropy(run_all(module, part_val.rows), part_val.y))
        if extra is not None:
            with torch.no_grad():
                held_out += float(extra.held_out(module))
        now.history.append({"train": float(total) / count(rows), "validation": held_out})
        if held_out < now.best:
            now.best, now.best_epoch = held_out, now.epoch
            now.best_state = {n: t.detach().cpu().clone() for n, t in _changing(module).items()}
        _keep(checkpoint, facts, now, _changing(module), optimiser, draws)
        progress("training", now.epoch, recipe.epochs)
    if not now.best_state:
        raise InvalidInputError(
            f"The validation loss must be finite in some epoch, but is not in any of {now.epoch}: "
            f"lower the recipe's `learning_rate` of {recipe.learning_rate:g}, or scale `X`."
        )
    _put(now.best_state, _changing(module))
    return Trained(module.eval(), now.history, now.best_epoch)


def _changing(module: nn.Module) -> dict[str, Tensor]:
    """What training may change: parameters, and buffers that are saved, such as running means."""
    saved = module.state_dict()
    parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
    return parameters | {n: b for n, b in module.named_buffers() if n in saved}


def _put(values: Mapping[str, Tensor], into: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in into.items():
            tensor.copy_(values[name])


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
    part: Part,
    part_val: Part,
) -> dict[str, Any]:
    """All that a training depends on; models and data as hashes."""
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    facts = {**asdict(recipe), "seed": seed, "penalty": _said(penalty)}
    facts["model"] = hash_of(model.state_dict().items(), about=_said(model))
    facts["trained parameters"] = hash_of([], about=repr(trained))
    for prefix, given in (("", part), ("validation ", part_val)):
        data: dict[str, Rows] = {"rows": given.rows, "labels": given.y}
        if given.groups is not None:
            data["groups"] = torch.as_tensor(given.groups)
        for name, values in data.items():
            tensors = values if isinstance(values, dict) else {"": values}
            facts[f"{prefix}{name}"] = hash_of(tensors.items())
    return facts


def _said(thing: Any) -> str:
    """An object in words, without its place in memory, which is another each time."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(thing))


def _keep(
    checkpoint: PathLike | None,
    facts: Mapping[str, Any],
    now: Progressed,
    changing: Mapping[str, Tensor],
    optimiser: torch.optim.Optimizer,
    draws: torch.Generator,
) -> None:
    if checkpoint is None:
        return
    tensors: dict[str, Tensor] = {f"parameters {n}": t for n, t in changing.items()}
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
    changing: Mapping[str, Tensor],
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
        for name, tensor in changing.items():
            for kept in (parameters, now.best_state or parameters):
                if kept[name].shape != tensor.shape:
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
    _put(parameters, changing)
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
