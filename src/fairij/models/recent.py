"""What was made of the latest tables of rows, so that one fit does not make it twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

# tables of one fit: training and validation rows; of the folds of a cross-fit each, and the others
TABLES = 12
T = TypeVar("T")


class Recent(Generic[T]):
    """The last few values, each of one table (that very object) and, where given, a vector.

    A table that is known must not be changed in place.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[tuple[Any, Tensor | None, T]] = []  # the latest used at the end

    def known(self, X: Any, at: Tensor | None = None) -> T | None:
        """What was made of these rows at this vector, if it is among the last few."""
        for place, (rows, there, value) in enumerate(self._kept):
            if rows is X and _same(there, at):
                self._kept.append(self._kept.pop(place))
                return value
        return None

    def made(self, X: Any, make: Callable[[], T], at: Tensor | None = None) -> T:
        """What is known, or what ``make`` gives now."""
        value = self.known(X, at)
        if value is None:
            del self._kept[: 1 - self._most or None]  # make room first
            value = make()
            self._kept.append((X, None if at is None else at.clone(), value))
        return value


def _same(first: Tensor | None, second: Tensor | None) -> bool:
    if first is None or second is None:
        return first is second
    return torch.equal(first, second)
