"""Rows that are run in another order, the longest first, seen in the order given."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from fairij.models.base import Linearization, Middle, Some


class InGivenOrder:
    """A linearisation of rows ``X[order]``, seen as one of ``X``."""

    def __init__(self, inner: Linearization, order: Tensor) -> None:
        self._inner, self._order, self._place = inner, order, torch.argsort(order)
        self.mode = inner.mode

    @cached_property
    def outputs(self) -> Tensor:
        return self._inner.outputs[self._place]

    def jvp(self, direction: Tensor) -> Tensor:
        return self._inner.jvp(direction)[self._place]

    def vjp(self, weights: Tensor) -> Tensor:
        return self._inner.vjp(weights[self._order])

    def sandwich(self, direction: Tensor, middle: Middle) -> Tensor:
        def reordered(part: Tensor, rows: Some) -> Tensor:
            return middle(part, self._order[rows])

        return self._inner.sandwich(direction, reordered)

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        return self._inner.second_order(weights[self._order], direction)

    def rows(self, index: Tensor) -> Tensor:
        """Row by row, because the mask code of transformers does not run under vmap."""
        jacobians = []
        for row in index.split(1):
            single = self.restrict(row)
            z = single.outputs
            units = torch.eye(z.numel(), dtype=z.dtype, device=z.device)
            jacobians.append(torch.stack([single.vjp(unit.view_as(z)) for unit in units]))
        return torch.stack(jacobians)

    def restrict(self, index: Tensor, *, keep: bool = False) -> InGivenOrder:
        places = self._places(index).sort()
        return InGivenOrder(self._inner.restrict(places.values, keep=keep), places.indices)

    def moved(self, by: Tensor) -> InGivenOrder:
        return InGivenOrder(self._inner.moved(by), self._order)

    def sums(self, weights: Tensor, pieces: list[Tensor]) -> Tensor:
        inner_pieces = [self._places(piece).sort().values for piece in pieces]
        return self._inner.sums(weights[self._order], inner_pieces)

    def gram(self, middle: Tensor) -> Tensor | None:
        return self._inner.gram(middle[self._order])

    def row_squares(self) -> Tensor | None:
        squares = self._inner.row_squares()
        return None if squares is None else squares[self._place]

    def row_products(self) -> Tensor | None:
        products = self._inner.row_products()
        return None if products is None else products[self._place][:, self._place]

    def held_bytes(self) -> int | None:
        return self._inner.held_bytes()

    def _places(self, index: Tensor) -> Tensor:
        """Where the inner linearisation has these rows."""
        return self._place[index.to(self._place.device)]
