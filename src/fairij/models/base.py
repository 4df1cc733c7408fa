"""What the engine asks of a model: parameters that may be edited, ``J r`` and ``J^T u``.

``z(theta)`` are the outputs, one row a data point, ``J = dz/dtheta`` at the fitted parameters.
Every family of models is one file that offers these two small protocols.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

# rows side by side, or by their numbers
Some = slice | Tensor
# (J r of some rows, which rows) -> what J^T is applied to
Middle = Callable[[Tensor, Some], Tensor]


def counted_from(start: int, rows: Some) -> Some:
    """The same rows in a table in which the first of theirs has the number ``start``."""
    if isinstance(rows, Tensor):
        return rows + start
    return slice(start + rows.start, start + rows.stop)


class Linearization(Protocol):
    """A model on one table of rows, linearised at its fitted parameters, or at others near by."""

    @property
    def outputs(self) -> Tensor:
        """``z``, shape ``(N,)`` or ``(N, C)``."""
        ...

    def jvp(self, direction: Tensor) -> Tensor:
        """``J r``, shaped like the outputs; ``direction`` is ``(D,)``.

        A new tensor each time: whoever asked may overwrite it.
        """
        ...

    def vjp(self, weights: Tensor) -> Tensor:
        """``J^T u``, shape ``(D,)``; ``weights`` is shaped like the outputs."""
        ...

    def sandwich(self, direction: Tensor, middle: Middle) -> Tensor:
        """``J^T m(J r)`` in one pass over the rows: the product with a curvature."""
        ...

    def rows(self, index: Tensor) -> Tensor:
        """The Jacobians of some rows, shape ``(B, C, D)``, C = 1 for one output."""
        ...

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        """``sum_n u_n (d^2 z_n / dtheta^2) r``, shape ``(D,)``; zero where z is linear in theta."""
        ...

    def restrict(self, index: Tensor, *, keep: bool = False) -> Linearization:
        """The same model on some of the rows; ``keep`` as in `Editable.linearize`."""
        ...

    def moved(self, by: Tensor) -> Linearization:
        """The same rows, linearised at ``theta + by`` instead."""
        ...


class Evaluator(Protocol):
    """The outputs of many edits of one model on one table of rows."""

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        """``z(theta + c d)`` for each scale c, shape ``(S, N)`` or ``(S, N, C)``."""
        ...


class Editable(Protocol):
    """A fitted model seen through the parameters that may be edited."""

    @property
    def theta(self) -> Tensor:
        """The fitted parameters, flat, shape ``(D,)``."""
        ...

    @property
    def parameter_names(self) -> list[str]: ...

    def linearize(self, X: Any, *, keep: bool = True) -> Linearization:
        """The model on these rows; ``keep`` says whether many products will be asked for."""
        ...

    def evaluator(self, X: Any) -> Evaluator: ...

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        """``z(theta)``; at the fitted parameters when none are given."""
        ...

    def edited(self, theta: Tensor) -> Any:
        """A copy of the user's model, of the same type, with these parameters."""
        ...

    def frame_fingerprint(self) -> str:
        """A hash of everything in the model that an edit leaves alone."""
        ...
