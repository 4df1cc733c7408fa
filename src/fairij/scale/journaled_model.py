"""A model whose passes over rows are recorded in a `Journal`.

The inner objects are made when the first pass must be computed that is not in the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from fairij.models.base import (
    Delegating,
    Editable,
    Evaluator,
    Factors,
    Linearization,
    Middle,
    Some,
)
from fairij.scale.checkpoints import Journal

T = TypeVar("T")


class JournaledEditable(Delegating):
    """An `Editable` that records every pass over rows."""

    def __init__(self, inner: Editable, journal: Journal) -> None:
        super().__init__(inner)
        self._journal = journal

    def linearize(self, X: Any, *, keep: bool = True) -> Linearization:
        make = partial(self._inner.linearize, X, keep=keep)
        return JournaledLinearization(make, self._journal, self.theta.device)

    def evaluator(self, X: Any) -> Evaluator:
        make = partial(self._inner.evaluator, X)
        return JournaledEvaluator(make, self._journal, self.theta.device)

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        at = self.theta if theta is None else theta
        made = self._journal.recalled("outputs", at, lambda: self._inner.outputs(X, theta))
        return made.to(self.theta.device)


class Recorded(Generic[T]):
    """Records the passes of an inner object, which is made when it is needed."""

    def __init__(self, make: Callable[[], T], journal: Journal, device: torch.device) -> None:
        self._make, self._journal, self._device = make, journal, device

    @cached_property
    def _inner(self) -> T:
        return self._make()

    def _pass(self, name: str, given: Tensor | None, make: Callable[[], Tensor]) -> Tensor:
        return self._journal.recalled(name, given, make).to(self._device)


class JournaledEvaluator(Recorded[Evaluator]):
    """An `Evaluator` that records every pass."""

    @cached_property
    def _missed(self) -> list[Callable[[Evaluator], Tensor]]:
        # runs found in the journal: an evaluator that estimates must learn from them before others
        return []

    @property
    def estimates(self) -> bool:
        return self._inner.estimates

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        return self._learned("along", direction, scales, lambda e: e.along(direction, scales))

    def confirm(self, direction: Tensor, scale: float, *, everywhere: bool) -> Tensor:
        steps = torch.tensor([scale], dtype=torch.float64)
        if not self.estimates:
            return self.along(direction, steps)
        name = "confirm everywhere" if everywhere else "confirm"
        return self._learned(
            name, direction, steps, lambda e: e.confirm(direction, scale, everywhere=everywhere)
        )

    def _learned(
        self, name: str, direction: Tensor, scales: Tensor, work: Callable[[Evaluator], Tensor]
    ) -> Tensor:
        given = torch.cat([direction.double().cpu(), scales.double().cpu()])
        computed = False

        def make() -> Tensor:
            nonlocal computed
            computed = True
            while self._missed:
                self._missed.pop(0)(self._inner)
            return work(self._inner)

        value = self._pass(name, given, make)
        if not computed and len(scales) == 1 and self.estimates:
            self._missed.append(work)
        return value


class JournaledLinearization(Recorded[Linearization]):
    """A `Linearization` that records every pass."""

    def _pass_if_any(self, name: str, make: Callable[[], Tensor | None]) -> Tensor | None:
        """A pass whose result may be None, which is recorded as an empty tensor."""

        def made() -> Tensor:
            found = make()
            return torch.empty(0) if found is None else found

        value = self._pass(name, None, made)
        return value if len(value) else None

    @property
    def mode(self) -> str:
        return self._inner.mode

    @cached_property
    def outputs(self) -> Tensor:
        return self._pass("outputs", None, lambda: self._inner.outputs)

    def jvp(self, direction: Tensor) -> Tensor:
        return self._pass("jvp", direction, lambda: self._inner.jvp(direction))

    def vjp(self, weights: Tensor) -> Tensor:
        return self._pass("vjp", weights, lambda: self._inner.vjp(weights))

    def sandwich(self, direction: Tensor, middle: Middle) -> Tensor:
        return self._pass("sandwich", direction, lambda: self._inner.sandwich(direction, middle))

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        return self._pass(
            "second_order", direction, lambda: self._inner.second_order(weights, direction)
        )

    def rows(self, index: Tensor) -> Tensor:
        return self._pass("rows", index, lambda: self._inner.rows(index))

    def restrict(self, index: Tensor, *, keep: bool = False) -> Linearization:
        return self._inner.restrict(index, keep=keep)  # a sample: cheap to make again

    def moved(self, by: Tensor) -> JournaledLinearization:
        return JournaledLinearization(lambda: self._inner.moved(by), self._journal, self._device)

    def with_outputs(self, outputs: Tensor) -> JournaledLinearization | None:
        there = self._inner.with_outputs(outputs)
        if there is None:
            return None
        return JournaledLinearization(lambda: there, self._journal, self._device)

    def sums(self, weights: Tensor, pieces: list[Tensor]) -> Tensor:
        return self._pass("sums", torch.cat(pieces), lambda: self._inner.sums(weights, pieces))

    def gram(self, middle: Tensor) -> Tensor | None:
        return self._inner.gram(middle)  # large, and cheap to make again

    def diagonal(self, middle: Callable[[Some], Tensor]) -> Tensor | None:
        return self._pass_if_any("diagonal", lambda: self._inner.diagonal(middle))

    def row_squares(self) -> Tensor | None:
        # recorded, because the answer may depend on the passes that the inner object made
        return self._pass_if_any("row_squares", lambda: self._inner.row_squares())

    def row_products(self) -> Tensor | None:
        return self._pass_if_any("row_products", lambda: self._inner.row_products())

    def factors(self) -> list[Factors] | None:
        return self._inner.factors()  # of few rows: cheap to make again

    def held_bytes(self) -> int | None:
        return self._inner.held_bytes()
