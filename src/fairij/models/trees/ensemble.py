"""Ensembles of trees, seen through the values of their leaves.

The splits stay, so ``z_c(x) = base_c(x) + sum_t weight_t theta[leaf_t(x)]`` over the trees t of
output c. This is linear in the leaf values: ``J`` is constant, with one entry per tree and row.
Each library is one file with a `TreeEditable`. It finds the leaf of each tree that a row falls
into, and copies the model with other leaf values. Everything else is here.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.rows import n_rows, take_rows
from fairij.errors import InvalidInputError
from fairij.models.base import EditableDefaults
from fairij.models.constant import ConstantLinearization
from fairij.models.recent import Recent
from fairij.models.trees.leaves import LeafJacobian

NAME = "leaf_values"
MONOTONE = (
    "The model was trained with monotone constraints, which an edit of its leaves does not keep. "
    "Check how the edited model responds to those features before you use it."
)
APART = (
    "The model averages trees that were fitted apart, each to its own sample of the rows. An edit "
    "takes their leaves for parameters of one loss, that of the averaged prediction on all "
    "training rows, which no training made small. So influence tells what moves this loss, not "
    "what a forest that is grown again would do."
)
LOOKED_UP = 2**16  # rows at once, because a library's own table may use 8 bytes per leaf


def unknown_objective(library: str, known: Iterable[str], found: str) -> InvalidInputError:
    return InvalidInputError(
        f"{library}'s objective must be one of {sorted(known)}, whose loss fairij knows; {found}. "
        "Train with one of those, or write an adapter (`fairij.models.Editable`)."
    )


@dataclass(frozen=True)
class Trees:
    """The trees that the library's own ``predict`` uses, in its order."""

    values: NDArray[np.float64]  # (D,), the leaves of one tree after the other
    sizes: NDArray[np.int64]  # (T,) leaves per tree
    outputs: NDArray[np.int64]  # (T,) which output a tree adds to
    weights: NDArray[np.float64]  # (T,) the factor of its leaves
    n_outputs: int
    structure: bytes  # everything that an edit leaves alone

    @classmethod
    def of(cls, values: Sequence[NDArray[Any]], **parts: Any) -> Trees:
        """From the leaf values of each tree."""
        if not values:
            raise InvalidInputError(
                "The model must have at least one tree, got none: train it for at least one round."
            )
        sizes = np.array([len(own) for own in values])
        return cls(np.concatenate(values).astype(np.float64), sizes, **parts)

    def split(self, values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Leaf values by tree."""
        return np.split(values, np.cumsum(self.sizes)[:-1])


def numbered(
    nodes: NDArray[np.integer[Any]], leaf_nodes: Sequence[NDArray[np.int64]]
) -> NDArray[np.int32]:
    """Nodes ``(N, T)`` as places among the leaves of each tree."""
    table = nodes.astype(np.int32)
    if table.shape[1] == len(leaf_nodes):  # otherwise the caller raises
        for tree, leaves in enumerate(leaf_nodes):
            table[:, tree] = np.searchsorted(leaves, table[:, tree])
    return table


class TreeEditable(EditableDefaults, ABC):
    """A tree ensemble seen through its leaf values; the model itself is never changed.

    ``parameters`` is "trainable", "all" or "leaf_values"; all mean the same. Other options are
    ignored, because rows need no batches.
    """

    dtype = torch.float64  # in which the library stores a leaf
    trained_together = False

    def __init__(
        self, trees: Trees, *, parameters: str | Sequence[str] = "trainable", **_: Any
    ) -> None:
        _check_parameters(parameters)
        self.trees, self.parameter_names = trees, [NAME]
        self.theta = torch.from_numpy(trees.values.copy()).to(self.dtype)
        self._tables: Recent[tuple[LeafJacobian, Tensor]] = Recent()

    @abstractmethod
    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        """The leaf of each tree that each row falls into, counted within the tree, ``(N, T)``."""

    @abstractmethod
    def base(self, X: Any) -> NDArray[np.float64]:
        """The outputs without any tree, ``(C,)`` or ``(N, C)``."""

    @abstractmethod
    def native(self, X: Any) -> NDArray[Any]:
        """The outputs as the library predicts them, ``(N,)`` or ``(N, C)``."""

    @abstractmethod
    def replaced(self, values: NDArray[np.float64]) -> Any:
        """A copy of the user's model with these leaf values."""

    def linearize(self, X: Any, *, keep: bool = True) -> ConstantLinearization:
        jacobian, base = self._read(X)
        return ConstantLinearization(base + jacobian.times(self.theta), jacobian)

    evaluator = linearize

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        jacobian, base = self._read(X)
        return base + jacobian.times(self.theta if theta is None else theta.to(self.theta))

    def edited(self, theta: Tensor) -> Any:
        if not bool(torch.isfinite(theta).all()):
            raise InvalidInputError("Leaf values must be finite, got NaN or infinity.")
        return self.replaced(theta.to(self.theta).double().cpu().numpy())

    def frame_fingerprint(self) -> str:
        return hashlib.sha256(self.trees.structure).hexdigest()

    def _read(self, X: Any) -> tuple[LeafJacobian, Tensor]:
        """``J`` and the base on these rows; the last tables are kept, as finding leaves is slow."""
        return self._tables.get(X, lambda: self._find(X))

    def _find(self, X: Any) -> tuple[LeafJacobian, Tensor]:
        rows, trees = n_rows(X), self.trees
        given = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
        try:
            leaves = self._all_leaves(given)
            base = np.broadcast_to(self.base(given), (rows, trees.n_outputs))
            head = take_rows(given, np.arange(min(rows, 32)))  # to compare with the library's own
            native = np.asarray(self.native(head), np.float64)
        except InvalidInputError:
            raise
        except Exception as error:  # every library has its own errors
            raise InvalidInputError(
                f"The model must take `X` as it is given, but it says: {error}. Give the features "
                "that it was trained on, prepared in the same way."
            ) from error
        jacobian = LeafJacobian.of(
            leaves, trees.sizes, trees.outputs, trees.weights, trees.n_outputs, self.theta.dtype
        )
        plain = np.array(base[:, 0] if trees.n_outputs == 1 else base)
        bottom = torch.from_numpy(plain).to(self.theta)
        index = torch.arange(len(native))
        ours = self._summed(bottom[index], jacobian.take(index))
        _check_agreement(ours.double().numpy(), native)
        return jacobian, bottom

    def _summed(self, base: Tensor, jacobian: LeafJacobian) -> Tensor:
        """What the leaves give, to compare with `native`."""
        return base + jacobian.times(self.theta)

    def _all_leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        """Each row's leaf in each tree, ``(T, N)``, found for some rows at a time."""
        rows, sizes = n_rows(X), self.trees.sizes
        table = np.empty((len(sizes), rows), np.min_scalar_type(int(sizes.max())))
        for start in range(0, rows, LOOKED_UP):
            index = np.arange(start, min(start + LOOKED_UP, rows))
            found = self.leaves(X if rows <= LOOKED_UP else take_rows(X, index))
            if found.shape != (len(index), len(sizes)):
                raise InvalidInputError(
                    f"The model must give one leaf for each row and tree, ({len(index)}, "
                    f"{len(sizes)}); got {found.shape}."
                )
            table[:, start : start + len(index)] = found.T
        return table


def _check_agreement(ours: NDArray[np.float64], native: NDArray[np.float64]) -> None:
    """Raise unless the sum of the leaves is what the library predicts."""
    native = native.reshape(ours.shape)
    if not np.allclose(ours, native, rtol=1e-4, atol=1e-4):
        row = int(np.argmax(np.abs(ours - native).reshape(len(ours), -1).max(1)))
        raise InvalidInputError(
            "The model's own predictions must be the sum of its leaves, but on row "
            f"{row} it predicts {native[row]} and the leaves give {ours[row]}. Models that stop "
            "early (`pred_early_stop`), or with a separate base margin, cannot be edited."
        )


def _check_parameters(parameters: str | Sequence[str]) -> None:
    wanted = [parameters] if isinstance(parameters, str) else list(parameters or [])
    if wanted in (["trainable"], ["all"]):
        return
    if not wanted or not all(isinstance(p, str) and fnmatchcase(NAME, p) for p in wanted):
        raise InvalidInputError(
            f"`parameters` of a tree ensemble must be 'trainable', 'all' or {NAME!r}, got "
            f"{parameters!r}: only leaf values can be edited."
        )
