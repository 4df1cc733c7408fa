"""What was made of the latest tables of rows, so that one fit does not make it twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Recent(Generic[T]):
    """The last few values, each of one table (that very object) and, where given, a vector.

    A table that is known must not be changed in place.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[tuple[Any, Tensor | None, T]] = []  # the latest used at the end

    def made(self, X: Any, make: Callable[[], T], at: Tensor | None = None) -> T:
        """What ``make`` gives, or gave when it was last asked about these rows at this vector."""
        for place, (known, there, value) in enumerate(self._kept):
            if known is X and _same(there, at):
                self._kept.append(self._kept.pop(place))
                return value
        value = make()
        self._kept.append((X, None if at is None else at.clone(), value))
        del self._kept[: -self._most]
        return value


def _same(first: Tensor | None, second: Tensor | None) -> bool:
    if first is None or second is None:
        return first is second
    return torch.equal(first, second)
