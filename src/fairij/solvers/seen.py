"""What the directions of a solve do to the outputs, so that ``J x`` needs no pass over the rows.

A product with the curvature forms ``J p`` on its way. A solution is a sum of directions, and its
``J x`` the same sum of theirs. They are kept while they are small beside the directions.
"""

from __future__ import annotations

from torch import Tensor

PART = 16  # of the memory of directions


class Seen:
    """``J p`` of every direction so far; nothing once one is unknown or the room is used up."""

    def __init__(self, memory_limit: int) -> None:
        self._room = memory_limit // PART
        self._moved: list[Tensor] = []

    def remember(self, moved: Tensor | None, before: int) -> None:
        """What one more direction does; ``before``: how many there were."""
        if moved is None or len(self._moved) != before:
            self._moved = []
            return
        self._moved.append(moved)
        if len(self._moved) * moved.numel() * moved.element_size() > self._room:
            self._moved = []

    def along(self, shares: Tensor) -> Tensor | None:
        """``J x`` of a sum of all directions with these shares, a new tensor; None if unknown."""
        if len(shares) == 0 or len(shares) != len(self._moved):
            return None
        numbers = shares.tolist()
        total = self._moved[0] * numbers[0]
        for moved, share in zip(self._moved[1:], numbers[1:], strict=True):
            total.add_(moved, alpha=share)
        return total
