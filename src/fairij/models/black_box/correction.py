"""The functions of a row that are added to log-odds, each times its parameter.

Of two classes, a linear correction has each function twice: as it is, and faded out with the
distance from the cut-off, ``exp(-(s / 2)^2)`` at a log-odds that is ``s`` away. Only rows near the
cut-off can change their label, so moving them alone closes a gap and leaves the order of all
others: next to no AUC is lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from fairij.data.sources import READ_ROWS, Source
from fairij.errors import InvalidInputError
from fairij.models.black_box.columns import Table, dense, is_sparse, table_of
from fairij.models.black_box.trees import LARGEST, Tree, grown
from fairij.models.constant import FeatureJacobian, Jacobian
from fairij.models.trees.leaves import LeafJacobian

Kind = Literal["linear", "trees"]
KINDS = get_args(Kind)


@dataclass(frozen=True)
class Near:
    """How much a row counts as near to the cut-off, by the model's own log-odds."""

    centre: float = 0.0
    width: float = 2.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.centre) and 0 < self.width < math.inf):
            raise ValueError("the centre and width of a correction must be finite, and the width "
                             "above 0")  # fmt: skip

    @classmethod
    def read(cls, stored: Any) -> Near:
        """From the mapping that `described` gave; raises ValueError if that is damaged."""
        if not isinstance(stored, dict) or set(stored) != {"centre", "width"}:
            raise ValueError("what is near must have a centre and a width")
        if not all(isinstance(value, float) for value in stored.values()):
            raise ValueError("the centre and width of a correction must be numbers")
        return cls(**stored)

    def share(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """From 1 at the cut-off to 0 far from it, ``(N,)``."""
        faded: NDArray[np.float64] = np.exp(-(((z - self.centre) / self.width) ** 2))
        return faded


@dataclass(frozen=True, eq=False)
class Correction:
    """Columns as numbers, and trees on them if there are any; the same for each output."""

    table: Table
    trees: tuple[Tree, ...]  # none: a linear function of the numbers, with an intercept
    n_outputs: int  # 1 for two classes
    near: Near | None = None  # of one output and no trees

    @property
    def size(self) -> int:
        """The number of parameters."""
        if self.trees:
            return self.n_outputs * sum(len(tree.leaves) for tree in self.trees)
        return (1 + (self.near is not None)) * self.n_outputs * (self.table.size + 1)

    def jacobian(self, X: Any, z: NDArray[np.float64]) -> Jacobian:
        """The functions of these rows, whose own log-odds are ``z``."""
        encoded = self.table.encoded(X)
        if self.near is not None:
            encoded = _and_near(encoded, self.near.share(z))
        if not self.trees:
            rows = encoded if is_sparse(encoded) else torch.from_numpy(encoded)
            return FeatureJacobian(rows, self.n_outputs, True)
        leaves = np.stack([tree.leaf_of(dense(encoded)) for tree in self.trees])
        trees = len(self.trees)
        sizes = np.array([len(tree.leaves) for tree in self.trees])
        return LeafJacobian.of(
            np.tile(leaves, (self.n_outputs, 1)),
            np.tile(sizes, self.n_outputs),
            np.repeat(np.arange(self.n_outputs), trees),
            np.ones(trees * self.n_outputs),
            self.n_outputs,
            torch.float64,
        )

    def described(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "table": self.table.described(),
            "trees": [tree.described() for tree in self.trees],
            "outputs": self.n_outputs,
            **({} if self.near is None else {"near": asdict(self.near)}),
        }

    @classmethod
    def read(cls, stored: Any) -> Correction:
        """From what `described` gave; raises ValueError if that is damaged."""
        table, outputs = Table.read(stored["table"]), stored["outputs"]
        if type(outputs) is not int or not 1 <= outputs <= LARGEST or outputs == 2:
            raise ValueError(f"there must be 1 output, or 3 or more; got {outputs!r}")
        if len(stored["trees"]) > LARGEST:
            raise ValueError(f"there may be at most {LARGEST} trees")
        near = Near.read(stored["near"]) if "near" in stored else None
        if near is not None and (stored["trees"] or outputs != 1):
            raise ValueError("only a linear correction of one output knows what is near")
        trees = tuple(Tree.read(tree, table.size) for tree in stored["trees"])
        return cls(table, trees, outputs, near)


def _and_near(encoded: Any, share: NDArray[np.float64]) -> Any:
    """Each function, then the same functions and a constant, times ``share``."""
    if is_sparse(encoded):
        parts = [encoded, sp.diags(share) @ encoded, sp.csr_matrix(share[:, None])]
        return sp.hstack(parts).tocsr()
    return np.concatenate([encoded, share[:, None] * encoded, share[:, None]], 1)


def correction_of(
    kind: str,
    X: Any,
    n_outputs: int,
    *,
    columns: Sequence[Any] | None = None,
    grouped: tuple[Any, NDArray[np.int64]] | None = None,
    centre: float = 0.0,
) -> Correction:
    """The functions for a table like this; trees are grown from rows with groups, ``grouped``."""
    rows = next(iter(X.chunks(READ_ROWS))) if isinstance(X, Source) else X
    table = table_of(rows, columns)
    if kind == "linear":
        return Correction(table, (), n_outputs, Near(centre) if n_outputs == 1 else None)
    if grouped is None:
        raise InvalidInputError(
            "`correction`='trees' is grown from rows whose group is known, and there are none "
            "here: fit it with FairIJ, or use correction='linear'."
        )
    return Correction(table, grown(table, *grouped), n_outputs)
