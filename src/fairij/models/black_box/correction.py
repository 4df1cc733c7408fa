"""The functions of a row that are added to log-odds, each times its parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
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


@dataclass(frozen=True, eq=False)
class Correction:
    """Columns as numbers, and trees on them if there are any; the same for each output."""

    table: Table
    trees: tuple[Tree, ...]  # none: a linear function of the numbers, with an intercept
    n_outputs: int  # 1 for two classes

    @property
    def size(self) -> int:
        """The number of parameters."""
        if self.trees:
            return self.n_outputs * sum(len(tree.leaves) for tree in self.trees)
        return self.n_outputs * (self.table.size + 1)

    def jacobian(self, X: Any) -> Jacobian:
        """The functions of these rows."""
        encoded = self.table.encoded(X)
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
        }

    @classmethod
    def read(cls, stored: Any) -> Correction:
        """From what `described` gave; raises ValueError if that is damaged."""
        table, outputs = Table.read(stored["table"]), stored["outputs"]
        if type(outputs) is not int or not 1 <= outputs <= LARGEST or outputs == 2:
            raise ValueError(f"there must be 1 output, or 3 or more; got {outputs!r}")
        if len(stored["trees"]) > LARGEST:
            raise ValueError(f"there may be at most {LARGEST} trees")
        return cls(table, tuple(Tree.read(tree, table.size) for tree in stored["trees"]), outputs)


def correction_of(
    kind: str,
    X: Any,
    n_outputs: int,
    *,
    columns: Sequence[Any] | None = None,
    grouped: tuple[Any, NDArray[np.int64]] | None = None,
) -> Correction:
    """The functions for a table like this; trees are grown from rows with groups, ``grouped``."""
    rows = next(iter(X.chunks(READ_ROWS))) if isinstance(X, Source) else X
    table = table_of(rows, columns)
    if kind == "linear":
        return Correction(table, (), n_outputs)
    if grouped is None:
        raise InvalidInputError(
            "`correction`='trees' is grown from rows whose group is known, and there are none "
            "here: fit it with FairIJ, or use correction='linear'."
        )
    return Correction(table, grown(table, *grouped), n_outputs)
