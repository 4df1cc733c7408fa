"""Rows that differ in one attribute alone, and the constraint that their scores do not show it.

The gap is one of the usual rates: of rows that name one identity less that of the same rows with
another one. So smooth and hard gaps, gradients and searches are those of every other constraint.
Only the rows are other ones. They have no labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairij.errors import InvalidInputError
from fairij.fairness.groups import Groups, encode_groups

FEWEST = 2  # values that can be swapped
REST = "all others"


@dataclass(frozen=True)
class Sides:
    """The rows of one kind, and which of the values that are compared each of them has."""

    rows: NDArray[np.int64]
    groups: Groups


@dataclass(frozen=True, eq=False, repr=False)
class Counterfactual:
    """Rows in which one attribute was swapped: their scores must not depend on it.

    To be given in ``FairIJ(constraints=["demographic_parity", Counterfactual(...)])``. No labels
    are needed. In every pair each value occurs, so that the rows differ in nothing else.

    Parameters
    ----------
    X : rows as the model takes them
        A table, an array, or texts.
    swapped : array-like of shape (N,)
        What the row has in place of others, such as the identity that a text names.
    pairs : array-like of shape (N,)
        Rows with the same number (or name) differ in ``swapped`` alone.
    kinds : array-like of shape (N,), default=None
        Kinds of rows, such as harmless and hostile sentences. The gap of each is closed by itself.
    protected : value or sequence of values, default=None
        Compare these values with all others. None: every value with every other one.
    name : str, default="counterfactual"
        The name in results.

    Examples
    --------
    >>> swapped = X_val[:4] * [-1, 1, 1]  # the same rows, with one feature swapped
    >>> pairs = Counterfactual(np.vstack([X_val[:4], swapped]), [0] * 4 + [1] * 4, [0, 1, 2, 3] * 2)
    >>> pairs.name
    'counterfactual'
    """

    X: Any
    swapped: Any
    pairs: Any
    kinds: Any = None
    protected: Any = None
    name: str = "counterfactual"

    def __repr__(self) -> str:
        return f"Counterfactual(protected={self.protected!r}, name={self.name!r})"

    @cached_property
    def values(self) -> Groups:
        """What was swapped in each row."""
        found = self._encoded("swapped", self.swapped)
        if len(found.names) < FEWEST:
            raise InvalidInputError(
                "`swapped` of Counterfactual must have at least two values, so that they can be "
                f"compared; got only {found.names[0]!r}."
            )
        return found

    @cached_property
    def sides(self) -> list[Sides]:
        """One table for each kind. A value counts alike in every pair, however many rows it has."""
        compared, rows = self._compared(), len(self.values)
        pair = self._encoded("pairs", self.pairs, rows).codes
        counts = np.zeros((pair.max() + 1, len(compared.names)))
        np.add.at(counts, (pair, compared.codes), 1)
        if (counts == 0).any():
            place, code = (int(at[0]) for at in np.nonzero(counts == 0))
            row = int(np.flatnonzero(pair == place)[0])
            raise InvalidInputError(
                "`pairs` of Counterfactual must be rows with every value that is compared, but the "
                f"pair of row {row} has none with {compared.names[code]!r}: leave such pairs out."
            )
        weight = 1 / counts[pair, compared.codes]
        kinds = np.zeros(rows, dtype=np.int64)
        if self.kinds is not None:
            kinds = self._encoded("kinds", self.kinds, rows).codes
        found = []
        for kind in range(kinds.max() + 1):
            index = np.flatnonzero(kinds == kind)
            own = None if (weight[index] == weight[index][0]).all() else weight[index]
            found.append(Sides(index, Groups(compared.codes[index], compared.names, weight=own)))
        return found

    def _compared(self) -> Groups:
        values = self.values
        if self.protected is None:
            return values
        asked = self.protected
        asked = [asked] if isinstance(asked, str) or not isinstance(asked, Sequence) else asked
        names = [str(name) for name in asked]
        strange = [name for name in names if name not in values.names]
        if strange or not names or set(names) == set(values.names):
            raise InvalidInputError(
                f"`protected` of Counterfactual must be some of the values {list(values.names)}, "
                f"and leave others to compare with; got {asked!r}."
            )
        own = np.isin(np.array(values.names), names)[values.codes]
        return Groups(own.astype(np.int64), (REST, " or ".join(names)))

    def _encoded(self, name: str, given: Any, rows: int | None = None) -> Groups:
        try:
            return encode_groups(given, expected_rows=rows)
        except InvalidInputError as error:
            said = str(error).replace("`sensitive_features`", f"`{name}` of Counterfactual")
            raise InvalidInputError(said) from None
