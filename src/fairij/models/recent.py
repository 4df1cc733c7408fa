"""A small cache: what was last made of a table of rows, so that one fit does not make it twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Recent(Generic[T]):
    """The last few values, each made of one table and, if given, at one parameter vector.

    A table is recognised by its identity, so it must not be changed in place. By default as many
    are kept as one fit uses: training and validation rows, and both parts of each fold.
    """

    def __init__(self, size: int = 12) -> None:
        self._size = size
        self._entries: list[tuple[Any, Tensor | None, T]] = []  # the last used at the end

    def find(self, X: Any, at: Tensor | None = None) -> T | None:
        """The value made of these rows at this vector; None if it is not kept."""
        for place, (rows, vector, value) in enumerate(self._entries):
            if rows is X and (vector is None or at is None or torch.equal(vector, at)):
                self._entries.append(self._entries.pop(place))
                return value
        return None

    def get(self, X: Any, make: Callable[[], T], at: Tensor | None = None) -> T:
        """The kept value, or what ``make`` returns, which is then kept."""
        value = self.find(X, at)
        if value is None:
            while len(self._entries) >= self._size:  # free memory before more is used
                self._entries.pop(0)
            value = make()
            self._entries.append((X, None if at is None else at.clone(), value))
        return value
