"""scikit-learn's `VotingClassifier` (soft) and `VotingRegressor`: all of their models are edited.

The outputs are those of the weighted mean of probabilities, ``z = log(p_1 / p_0)`` or
``z_c = log p_c``, or the mean of predictions. The parameters of all models stand one after the
other. The objective is the loss of the mean; each model was trained to its own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from fairij.data.hashing import state_fingerprint
from fairij.errors import InvalidInputError
from fairij.models.base import (
    EditableDefaults,
    EvaluatorDefaults,
    Linearization,
    LinearizationDefaults,
    Middle,
)
from fairij.models.registry import adapt
from fairij.models.trees.shares import Shares

Mixed = Callable[..., Tensor]  # the outputs of each model -> those of their mean
APART = (
    "The model is a mean of models that were trained apart, each to its own loss. An edit keeps "
    "the loss of the mean low, without their penalties and class weights. Influence tells what "
    "moves that loss."
)


class VotingEditable(EditableDefaults):
    """A fitted mean of models, seen through the parameters of all of them."""

    trained_together = False

    def __init__(self, model: Any, *, parameters: Any = "all", **options: Any) -> None:
        check_is_fitted(model)
        self.classes = getattr(model, "classes_", None)
        if self.classes is not None and model.voting != "soft":
            raise InvalidInputError(
                "A VotingClassifier must have voting='soft' to be edited, got 'hard': votes are "
                "labels, which have no derivative. Set `model.voting = 'soft'` if its models give "
                "probabilities."
            )
        self._model, self._fitted = model, list(model.estimators_)
        self._parts = [adapt(part, **options) for part in self._fitted]
        self.theta = self._joined([part.theta.double() for part in self._parts])
        self._sizes = [len(part.theta) for part in self._parts]
        self.parameter_names = ["estimators_"]
        given = model._weights_not_none
        weights = np.ones(len(self._parts)) if given is None else np.asarray(given, float)
        self._mixed = _mixed(weights / weights.sum(), self.classes)
        several = self.classes is not None and len(self.classes) > 2
        kind = "softmax" if several else "binary"
        sure = any("brier" in str(part.loss_name) for part in self._parts)
        of_classes = f"{kind}_brier_score" if sure else f"{kind}_cross_entropy"
        self.loss_name = "squared_error" if self.classes is None else of_classes
        told = [text for part in self._parts for text in part.caveats]
        self.caveats = tuple(dict.fromkeys([APART, *told]))

    @staticmethod
    def _joined(pieces: list[Tensor]) -> Tensor:
        return torch.cat([piece.double() for piece in pieces])

    def _split(self, theta: Tensor) -> list[Tensor]:
        """The parameters of each model, in its own precision."""
        pieces = zip(theta.split(self._sizes), self._parts, strict=True)
        return [piece.to(part.theta) for piece, part in pieces]

    def linearize(self, X: Any, *, keep: bool = True) -> VotingLinearization:
        parts = [part.linearize(X, keep=keep) for part in self._parts]
        return VotingLinearization(tuple(parts), tuple(self._sizes), self._mixed)

    evaluator = linearize

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        at = [None] * len(self._parts) if theta is None else self._split(theta)
        pairs = zip(self._parts, at, strict=True)
        return self._mixed(*(part.outputs(X, own).double() for part, own in pairs))

    def within(self, theta: Tensor) -> Tensor:
        return self._each("within", theta)

    def stored(self, theta: Tensor) -> Tensor:
        return self._each("stored", theta)

    def _each(self, name: str, theta: Tensor) -> Tensor:
        pieces = zip(self._parts, self._split(theta), strict=True)
        return self._joined([getattr(part, name)(own) for part, own in pieces])

    def edited(self, theta: Tensor) -> Any:
        pieces = zip(self._fitted, self._parts, self._split(theta), strict=True)
        memo = {id(model): part.edited(own) for model, part, own in pieces}
        return copy.deepcopy(self._model, memo)

    def frame_fingerprint(self) -> str:
        frames = [part.frame_fingerprint() for part in self._parts]
        return state_fingerprint(type(self._model).__name__, frames, self._model.weights)


def _mixed(weights: Any, classes: Any) -> Mixed:
    """The outputs of a mean of models, by those of each."""

    def of_numbers(*z: Tensor) -> Tensor:
        return torch.stack([w * part for w, part in zip(weights, z, strict=True)]).sum(0)

    def of_probabilities(*z: Tensor) -> Tensor:
        mean = of_numbers(*(_probabilities(part) for part in z))
        return Shares(mean.shape[1]).outputs(mean)

    return of_numbers if classes is None else of_probabilities


def _probabilities(z: Tensor) -> Tensor:
    if z.ndim == 1:
        return torch.stack([torch.sigmoid(-z), torch.sigmoid(z)], 1)
    return torch.softmax(z, 1)


@dataclass(frozen=True)
class VotingLinearization(LinearizationDefaults, EvaluatorDefaults):
    """`Linearization` and `Evaluator` of a mean of models."""

    parts: tuple[Any, ...]
    sizes: tuple[int, ...]
    mixed: Mixed
    mode = "mean of models"

    @cached_property
    def _z(self) -> tuple[Tensor, ...]:
        return tuple(part.outputs.double() for part in self.parts)

    @cached_property
    def outputs(self) -> Tensor:
        return self.mixed(*self._z)

    def _each(self, direction: Tensor) -> list[tuple[Any, Tensor]]:
        pieces = direction.split(list(self.sizes))
        return list(zip(self.parts, pieces, strict=True))

    def _moved(self, direction: Tensor) -> tuple[Tensor, ...]:
        return tuple(part.jvp(_as(part, own)).double() for part, own in self._each(direction))

    def jvp(self, direction: Tensor) -> Tensor:
        found: Tensor = torch.func.jvp(self.mixed, self._z, self._moved(direction))[1]
        return found

    def _slopes(self, u: Tensor, z: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """``u^T dz/dz_i`` for the outputs of each model."""
        found: tuple[Tensor, ...] = torch.func.vjp(self.mixed, *z)[1](u)
        return found

    def _pulled(self, slopes: tuple[Tensor, ...]) -> Tensor:
        pairs = zip(self.parts, slopes, strict=True)
        return torch.cat([part.vjp(slope.to(part.outputs)).double() for part, slope in pairs])

    def vjp(self, weights: Tensor) -> Tensor:
        return self._pulled(self._slopes(weights.double(), self._z))

    def sandwich(self, direction: Tensor, middle: Middle) -> Tensor:
        moved = self.jvp(direction)
        return self.vjp(middle(moved, slice(0, len(moved))))

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        u = weights.double()
        pulled = torch.func.jvp(lambda *z: self._slopes(u, z), self._z, self._moved(direction))
        slopes, bent = pulled[0], pulled[1]
        own = [
            part.second_order(slope.to(part.outputs), _as(part, r)).double()
            for (part, r), slope in zip(self._each(direction), slopes, strict=True)
        ]
        return self._pulled(bent) + torch.cat(own)

    def rows(self, index: Tensor) -> Tensor:
        found = []
        for row in index:
            one = self.restrict(row.view(1))
            units = torch.eye(one.outputs.numel(), dtype=torch.float64)
            found.append(torch.stack([one.vjp(unit.view(one.outputs.shape)) for unit in units]))
        return torch.stack(found)

    def restrict(self, index: Tensor, *, keep: bool = False) -> VotingLinearization:
        return replace(self, parts=tuple(part.restrict(index, keep=keep) for part in self.parts))

    def moved(self, by: Tensor) -> VotingLinearization:
        return replace(
            self, parts=tuple(part.moved(_as(part, own)) for part, own in self._each(by))
        )

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        return torch.stack([self.moved(float(c) * direction).outputs for c in scales])

    def held_bytes(self) -> int | None:
        held = [part.held_bytes() for part in self.parts]
        return None if None in held else sum(held)


def _as(part: Linearization, direction: Tensor) -> Tensor:
    """A direction in the precision of one model."""
    return direction.to(part.outputs.dtype)
