"""Rows that carry a group, and those of them that a fairness gradient is taken on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.rows import part_of
from fairij.fairness.groups import Groups
from fairij.models.base import Editable, Linearization


@dataclass(frozen=True)
class GroupedRows:
    """Rows that carry a group: features as the user holds them, labels as a tensor."""

    X: Any
    y: Tensor
    groups: Groups
    model: Linearization | None = None  # on these rows, if it was made already

    def take(self, index: NDArray[np.int64]) -> GroupedRows:
        y, groups = self.y[torch.as_tensor(index)], self.groups.take(index)
        return GroupedRows(part_of(self.X, index), y, groups)


class Slopes(Protocol):
    """Outputs, ``J^T u``, and the same elsewhere: what a fairness gradient needs of a model."""

    @property
    def outputs(self) -> Tensor: ...

    def vjp(self, weights: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Both:
    """The model on validation rows and, after them, on training rows."""

    validation: Linearization
    training: Linearization

    @cached_property
    def outputs(self) -> Tensor:
        return torch.cat([self.validation.outputs, self.training.outputs])

    def vjp(self, weights: Tensor) -> Tensor:
        first = len(self.validation.outputs)
        return self.validation.vjp(weights[:first]) + self.training.vjp(weights[first:])


@dataclass(frozen=True)
class FairnessRows:
    """Validation rows; and the training rows, if their groups are known too.

    Together they are one table: every row counts alike. Training rows make the gradient less
    noisy. The choice never sees them.
    """

    validation: GroupedRows
    training: GroupedRows | None = None

    @cached_property
    def y(self) -> Tensor:
        y = self.validation.y
        return y if self.training is None else torch.cat([y, self.training.y.to(y)])

    @cached_property
    def groups(self) -> Groups:
        groups = self.validation.groups
        return groups if self.training is None else groups.followed_by(self.training.groups)

    def slopes(self, fitted: Linearization, training: Linearization | None = None) -> Slopes:
        """``fitted`` on the validation rows; ``training``: the same model on training rows."""
        if self.training is None:
            return fitted
        training = training or self.training.model
        assert training is not None  # the objective's own
        return Both(fitted, training)

    def slopes_moved(self, fitted: Linearization, by: Tensor) -> Slopes:
        """At ``theta + by``; ``fitted`` on the validation rows at ``theta``."""
        own = None if self.training is None else self.training.model
        return self.slopes(fitted.moved(by), None if own is None else own.moved(by))

    def outputs(self, editable: Editable, theta: Tensor) -> Tensor:
        parts = [self.validation] if self.training is None else [self.validation, self.training]
        return torch.cat([editable.outputs(part.X, theta) for part in parts])
