"""Ensembles of trees, seen through the values of their leaves.

With the splits kept, ``z_c(x) = base_c(x) + sum_t weight_t theta[leaf_t(x)]`` over the trees of
output c: linear in the leaf values, so ``J`` is constant and holds one entry a tree and row. A
library is one file that fills in `Library`: which leaf of each tree a row falls into, and a copy of
the model with other leaf values. Everything else is here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.rows import n_rows, take_rows
from fairij.errors import InvalidInputError
from fairij.models.base import EditableDefaults
from fairij.models.constant import ConstantLinearization
from fairij.models.recent import TABLES
from fairij.models.sklearn.estimators import Held
from fairij.models.trees.leaves import LeafJacobian

NAME = "leaf_values"
CHECKED_ROWS = 32
MONOTONE = (
    "The model was trained with monotone constraints, which an edit of its leaves does not keep: "
    "check the edited model's answers along those features before it is used."
)
LOOKED_UP = 2**16  # rows at once: a library's own table of leaves may hold 8 bytes an entry


@dataclass(frozen=True)
class Trees:
    """The trees that the library's own ``predict`` uses, in its order."""

    values: NDArray[np.float64]  # (D,) of all leaves, tree after tree
    sizes: NDArray[np.int64]  # (T,) leaves of each tree
    outputs: NDArray[np.int64]  # (T,) which output a tree adds to
    weights: NDArray[np.float64]  # (T,) the factor with which it does
    n_outputs: int
    structure: bytes  # all that an edit leaves alone


class Library(Protocol):
    """What one library has to tell of a fitted model."""

    @property
    def trees(self) -> Trees: ...

    @property
    def dtype(self) -> torch.dtype:
        """The precision in which the library stores a leaf."""
        ...

    @property
    def loss_name(self) -> str: ...

    @property
    def classes(self) -> NDArray[Any] | None:
        """The class labels in the order of the outputs, where the model knows them."""
        ...

    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        """Which leaf of each tree, counted within the tree, each row falls into: ``(N, T)``."""
        ...

    def base(self, X: Any) -> NDArray[np.float64]:
        """The outputs without any tree, ``(C,)`` or ``(N, C)``."""
        ...

    def native(self, X: Any) -> NDArray[Any]:
        """The outputs by the library's own ``predict``, ``(N,)`` or ``(N, C)``."""
        ...

    def row_weights(self, y: Tensor, weight: Tensor | None) -> Tensor | None:
        """Sample weights times those that the model's settings give to class indices ``y``."""
        ...

    def replaced(self, values: NDArray[np.float64]) -> Any:
        """A copy of the user's model with these leaf values."""
        ...

    # `LibraryDefaults` has an answer for each of these.

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentences on what an edit does not keep of this model, or cannot know."""
        ...

    def held_back(self, y: NDArray[Any]) -> Held:
        """Which of the rows with these labels training did not see."""
        ...


class LibraryDefaults:
    """A library whose models were trained on all rows and have nothing to warn of."""

    caveats: tuple[str, ...] = ()

    def held_back(self, y: NDArray[Any]) -> Held:
        return None


class TreeEditable(EditableDefaults):
    """A tree ensemble seen through its leaf values; the model itself is never changed.

    ``parameters`` may be "trainable", "all" or the name "leaf_values"; rows need no batches.
    """

    def __init__(
        self, library: Library, *, parameters: str | Sequence[str] = "trainable", **_: Any
    ) -> None:
        _check_parameters(parameters)
        self._library = library
        self.parameter_names = [NAME]
        self.loss_name = library.loss_name
        self.classes = library.classes
        self.caveats = library.caveats
        trees = library.trees
        self.theta = torch.from_numpy(trees.values.copy()).to(library.dtype)
        self._tables: list[tuple[Any, LeafJacobian, Tensor]] = []  # the rows, J, the base

    def linearize(self, X: Any, *, keep: bool = True) -> ConstantLinearization:
        jacobian, base = self._read(X)
        return ConstantLinearization(base + jacobian.times(self.theta), jacobian)

    def evaluator(self, X: Any) -> ConstantLinearization:
        return self.linearize(X)

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        jacobian, base = self._read(X)
        at = self.theta if theta is None else theta.to(self.theta)
        return base + jacobian.times(at)

    def edited(self, theta: Tensor) -> Any:
        if not bool(torch.isfinite(theta).all()):
            raise InvalidInputError("Leaf values must be finite, got NaN or infinity.")
        return self._library.replaced(theta.to(self.theta).double().cpu().numpy())

    def frame_fingerprint(self) -> str:
        """A hash of the splits and of all else that an edit leaves alone."""
        return hashlib.sha256(self._library.trees.structure).hexdigest()

    def row_weights(self, y: Tensor, weight: Tensor | None) -> Tensor | None:
        """Sample weights with the model's class weights in them; ``y``: class indices."""
        return self._library.row_weights(y, weight)

    def held_back(self, y: NDArray[Any]) -> Held:
        """The rows, of those given, that early stopping kept from training."""
        return self._library.held_back(y)

    def _read(self, X: Any) -> tuple[LeafJacobian, Tensor]:
        """J and the base on these rows; finding leaves is dear, so the last tables are kept."""
        for rows, jacobian, base in self._tables:
            if rows is X:
                return jacobian, base
        jacobian, base = self._find(X)
        self._tables = [(X, jacobian, base), *self._tables[: TABLES - 1]]
        return jacobian, base

    def _find(self, X: Any) -> tuple[LeafJacobian, Tensor]:
        rows, trees = n_rows(X), self._library.trees
        given = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
        try:
            leaves = _leaves(self._library, given)
            base = np.broadcast_to(self._library.base(given), (rows, trees.n_outputs))
            head = take_rows(given, np.arange(min(rows, CHECKED_ROWS)))
            native = np.asarray(self._library.native(head), np.float64)
        except InvalidInputError:
            raise
        except Exception as error:  # each library has errors of its own
            raise InvalidInputError(
                f"The model must take `X` as it is given, but it says: {error}. Give the features "
                "that it was trained on, prepared in the same way."
            ) from error
        jacobian = LeafJacobian.of(
            leaves, trees.sizes, trees.outputs, trees.weights, trees.n_outputs, self.theta.dtype
        )
        bottom = torch.from_numpy(np.array(base[:, 0] if trees.n_outputs == 1 else base))
        bottom = bottom.to(self.theta)
        index = torch.arange(len(native))
        ours = bottom[index] + jacobian.take(index).times(self.theta)
        _check_agreement(ours.double().numpy(), native)
        return jacobian, bottom


def _leaves(library: Library, X: Any) -> NDArray[np.integer[Any]]:
    """Each row's leaf in each tree, ``(T, N)``, looked up for some rows at a time."""
    rows, sizes = n_rows(X), library.trees.sizes
    table = np.empty((len(sizes), rows), np.min_scalar_type(int(sizes.max())))
    for start in range(0, rows, LOOKED_UP):
        some = slice(start, min(start + LOOKED_UP, rows))
        part = X if rows <= LOOKED_UP else take_rows(X, np.arange(some.start, some.stop))
        found = library.leaves(part)
        if found.shape != (some.stop - some.start, len(sizes)):
            raise InvalidInputError(
                f"The model must give one leaf for each row and tree, ({some.stop - some.start}, "
                f"{len(sizes)}); got {found.shape}."
            )
        table[:, some] = found.T
    return table


def _check_agreement(ours: NDArray[np.float64], native: NDArray[np.float64]) -> None:
    """Raise where the sum of the leaves is not what the library itself predicts."""
    native = native.reshape(ours.shape)
    if not np.allclose(ours, native, rtol=1e-4, atol=1e-4):
        row = int(np.argmax(np.abs(ours - native).reshape(len(ours), -1).max(1)))
        raise InvalidInputError(
            "The model's own predictions must be the sum of its leaves, but on row "
            f"{row} it gives {native[row]} and they give {ours[row]}. Predictions that are cut "
            "short (`pred_early_stop`), or a base margin kept elsewhere, cannot be edited."
        )


def _check_parameters(parameters: str | Sequence[str]) -> None:
    wanted = [parameters] if isinstance(parameters, str) else list(parameters or [])
    if wanted in (["trainable"], ["all"]):
        return
    if not wanted or not all(isinstance(p, str) and fnmatchcase(NAME, p) for p in wanted):
        raise InvalidInputError(
            f"`parameters` of a tree ensemble must be 'trainable', 'all' or {NAME!r}, got "
            f"{parameters!r}: the leaf values are all that can be edited."
        )
