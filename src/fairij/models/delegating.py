"""An `Editable` that passes everything on to another one, on rows that it may prepare first."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from fairij.models.base import Editable, Evaluator, Held, Linearization


class Delegating:
    """Every member of `Editable` is the inner object's.

    A subclass overrides `prepare` to change the rows, or single members to answer them itself.
    `fairij.models.contract.check_wrapper` checks that nothing is lost.
    """

    def __init__(self, inner: Editable) -> None:
        self._inner = inner
        self.loss_name: str | None = inner.loss_name
        self.classes: NDArray[Any] | None = inner.classes
        self.class_names: tuple[str, ...] = inner.class_names
        self.caveats: tuple[str, ...] = inner.caveats

    def prepare(self, X: Any) -> Any:
        """The rows as the inner model takes them."""
        return X

    @property
    def theta(self) -> Tensor:
        return self._inner.theta

    @property
    def parameter_names(self) -> list[str]:
        return self._inner.parameter_names

    def linearize(self, X: Any, *, keep: bool = True) -> Linearization:
        return self._inner.linearize(self.prepare(X), keep=keep)

    def evaluator(self, X: Any) -> Evaluator:
        return self._inner.evaluator(self.prepare(X))

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        return self._inner.outputs(self.prepare(X), theta)

    def edited(self, theta: Tensor) -> Any:
        return self._inner.edited(theta)

    def frame_fingerprint(self) -> str:
        return self._inner.frame_fingerprint()

    def row_weights(self, y: Tensor, weight: Tensor | None) -> Tensor | None:
        return self._inner.row_weights(y, weight)

    def held_back(self, y: NDArray[Any]) -> Held:
        return self._inner.held_back(y)

    def l2(self, rows: int, weight_sum: float) -> Tensor | None:
        return self._inner.l2(rows, weight_sum)

    def halve_batches(self, X: Any) -> bool:
        return self._inner.halve_batches(self.prepare(X))
