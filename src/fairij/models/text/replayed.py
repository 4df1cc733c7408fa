"""Heads of several layers: what the first edited layer reads is kept, and the rest is replayed.

All that a model computes from the first edited linear layer on is written down as a tape: which
function, of what. With what that layer reads, the tape is a small network of its own. So edits do
not run the frozen part again. A model whose tape does not give its outputs is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_any, tree_leaves, tree_map

from fairij.data.rows import n_rows
from fairij.models.base import Evaluator, Linearization
from fairij.models.text.heads import TRIED, OfTokens
from fairij.models.text.tokens import Tokens
from fairij.models.torch.module import TorchEditable

MOST_STEPS = 64  # of a tape; a head has a few


class NotATapeError(Exception):
    """What follows the first edited layer needs more than what that layer reads."""


class Rows:
    """On a tape: what the first edited layer reads, ``(n, F)``."""


@dataclass(frozen=True)
class Edited:
    """On a tape: an edited parameter, by its place."""

    place: int


@dataclass(frozen=True)
class Result:
    """On a tape: what an earlier step gave."""

    step: int


class Steps(tuple[tuple[Any, Any], ...]):
    """Functions with their arguments, ``(args, kwargs)``. Never changed, so never copied."""

    def __deepcopy__(self, memo: Any) -> Steps:
        return self

    def like(self, other: Steps) -> bool:
        """Whether both call the same functions of the same things."""

        def plain(steps: Steps) -> Any:
            return tree_map(lambda one: id(one) if isinstance(one, Tensor) else one, tuple(steps))

        return bool(plain(self) == plain(other))


class Tape(TorchFunctionMode):
    """Records what one forward pass makes of the edited parameters."""

    def __init__(self, parameters: Sequence[Tensor], fixed: Sequence[Tensor]) -> None:
        super().__init__()
        self._names: dict[int, Any] = {id(p): Edited(place) for place, p in enumerate(parameters)}
        self._all = set(self._names.values())
        self._fixed = {id(tensor) for tensor in fixed}
        self._alive: list[Tensor] = []  # so that no other tensor gets the same id
        self._steps: list[tuple[Any, Any]] = []
        self.rows: Tensor | None = None

    @property
    def steps(self) -> Steps:
        return Steps(self._steps)

    def gives(self, z: Tensor) -> bool:
        """Whether these outputs are the last result, and every parameter took part."""
        used = {one for one in tree_leaves(self._steps) if isinstance(one, Edited)}
        return used == self._all and self._names.get(id(z)) == Result(len(self._steps) - 1)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = (args, kwargs or {})
        out = func(*args, **given[1])
        if not tree_any(lambda one: isinstance(one, Tensor) and id(one) in self._names, given):
            return out
        if not isinstance(out, Tensor):
            if tree_any(lambda one: isinstance(one, Tensor), out):
                raise NotATapeError("A function gives several tensors.")
            return out  # a shape, or a type
        if self.rows is None:
            self._begin(func, given)
        if len(self._steps) == MOST_STEPS:
            raise NotATapeError("Too many steps follow the first edited layer.")
        self._steps.append((func, tree_map(self._named, given)))
        self._names[id(out)] = Result(len(self._steps) - 1)
        self._alive.append(out)
        return out

    def _begin(self, func: Any, given: Any) -> None:
        args, kwargs = given
        X = args[0] if args else kwargs.get("input")
        if func is not F.linear or not isinstance(X, Tensor) or X.ndim != 2 or id(X) in self._names:
            raise NotATapeError("The first edited layer must be linear, on one vector for a row.")
        self.rows = X
        self._names[id(X)] = Rows

    def _named(self, one: Any) -> Any:
        if not isinstance(one, Tensor):
            return one
        if id(one) not in self._names and id(one) not in self._fixed:
            raise NotATapeError("Something else of the rows takes part.")
        return self._names.get(id(one), one)


class Replayed(nn.Module):
    """A tape as a module of what the first edited layer reads."""

    def __init__(self, parameters: Sequence[Tensor], steps: Steps) -> None:
        super().__init__()
        self.edited = nn.ParameterList([nn.Parameter(p.detach().clone()) for p in parameters])
        self._steps = steps

    def forward(self, X: Tensor) -> Tensor:
        results: list[Tensor] = []

        def value(one: Any) -> Any:
            if one is Rows:
                return X
            if isinstance(one, Edited):
                return self.edited[one.place]
            return results[one.step] if isinstance(one, Result) else one

        for function, given in self._steps:
            args, kwargs = tree_map(value, given)
            results.append(function(*args, **kwargs))
        return results[-1]


@dataclass(frozen=True)
class KeptHead:
    """A head on what it reads of all rows."""

    editable: TorchEditable
    X: Tensor

    def linearize(self, *, keep: bool) -> Linearization:
        return self.editable.linearize(self.X, keep=keep)

    def evaluator(self) -> Evaluator:
        return self.editable.evaluator(self.X)

    def outputs(self, theta: Tensor) -> Tensor:
        return self.editable.outputs(self.X, theta)

    def restrict(self, index: Tensor) -> KeptHead:
        return KeptHead(self.editable, self.X[index.to(self.X.device)])


def replayed_head(
    model: OfTokens, fixed: Sequence[Tensor], batches: Sequence[Tokens], rows: int
) -> KeptHead | None:
    """The model on all rows as a head on what it reads.

    None if more than a head is edited, and if what it reads takes more than the memory limit.
    """
    parameters = model.split(model.theta)
    read: list[Tensor] = []
    steps: Steps | None = None
    editable: TorchEditable | None = None
    for batch in batches:
        tape = Tape(parameters, fixed)
        try:
            with torch.no_grad(), tape:
                z = model.call(parameters, batch)
        except NotATapeError:
            return None
        X = tape.rows
        if X is None or len(X) != n_rows(batch) or not tape.gives(z):
            return None
        if steps is None or editable is None:
            if X.shape[1] * rows * X.element_size() > model.memory_limit:
                return None
            steps = tape.steps
            editable = TorchEditable(
                Replayed(parameters, steps),
                parameters="all",
                outputs="logits",
                memory_limit=model.memory_limit,
            )
            if not _agrees(model, batch, editable, X):
                return None
        if not tape.steps.like(steps):
            return None
        read.append(X.clone())
    return None if editable is None else KeptHead(editable, torch.cat(read))


def _agrees(model: OfTokens, batch: Tokens, editable: TorchEditable, X: Tensor) -> bool:
    """Whether the tape gives the model's outputs after a short and a long step; also row by row."""
    theta, generator = model.theta, torch.Generator().manual_seed(0)
    length = float(theta.norm()) or 1.0
    for times in (0.0, *TRIED):
        step = torch.randn(len(theta), generator=generator).to(theta)
        there = theta + step * (times * length / float(step.norm()))
        with torch.no_grad():
            expected = model.call(model.split(there), batch)
        tolerance = torch.finfo(theta.dtype).eps ** 0.5 * max(float(expected.norm()), 1e-30)
        try:
            found = editable.outputs(X, there)
            first = editable.outputs(X[:1].clone(), there)
        except (RuntimeError, TypeError, ValueError):  # shapes that are written down
            return False
        if found.shape != expected.shape or first.shape != expected[:1].shape:
            return False
        if not float((found - expected).norm()) <= tolerance:
            return False
        if not float((first - expected[:1]).norm()) <= tolerance:
            return False
    return True
