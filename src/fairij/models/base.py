"""What the engine asks of a model: parameters that may be edited, ``J r`` and ``J^T u``.

``z(theta)`` are the outputs, one row per data point. ``J = dz/dtheta`` at the fitted parameters.

Three protocols state everything that may be asked of a model. A family inherits the defaults of
each and writes the rest; `fairij.models.contract.check_editable` says what is missing or wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Some = slice | Tensor
"""Some rows: a range, or their numbers."""

Middle = Callable[[Tensor, Some], Tensor]
"""(``J r`` of some rows, which rows) -> what ``J^T`` is applied to."""

Held = NDArray[np.int64] | Literal["unknown"] | None
"""Rows that training did not see: their numbers, "unknown", or None."""

KEPT = ("constant", "factored")  # modes of `Linearization` whose products do not run the model
HELD_BACK = (
    "Early stopping kept some rows out of training, and fairij cannot tell which ones from the "
    "model and the rows given. They are scored, and may be dropped, as if the model had been "
    "trained on them. Give all training rows in their original order, or train without early "
    "stopping for the number of rounds that it found."
)


@dataclass(frozen=True)
class Factors:
    """The Jacobians of n rows through one linear layer: ``sum_t d_t x_t^T`` over T places.

    ``weight`` ``(out, in)`` and ``bias`` ``(out,)`` say where these parameters lie in theta.
    """

    weight: slice | None
    bias: slice | None
    inputs: Tensor  # x, (n, T, in); in = 0 without a weight
    slopes: Tensor  # d, (n, C, T, out)

    @property
    def sizes(self) -> tuple[int, int]:
        """``out``, and ``in`` with one more for a bias."""
        return self.slopes.shape[-1], self.inputs.shape[-1] + (self.bias is not None)


class Linearization(Protocol):
    """A model on one table of rows, linearised at its fitted parameters or near them."""

    @property
    def outputs(self) -> Tensor:
        """``z``, shape ``(N,)`` or ``(N, C)``."""

    def jvp(self, direction: Tensor) -> Tensor:
        """``J r``, shaped like the outputs, always a new tensor; ``direction`` is ``(D,)``."""

    def vjp(self, weights: Tensor) -> Tensor:
        """``J^T u``, shape ``(D,)``; ``weights`` is shaped like the outputs."""

    def sandwich(self, direction: Tensor, middle: Middle) -> Tensor:
        """``J^T m(J r)`` in one pass over the rows: the product with a curvature."""

    def rows(self, index: Tensor) -> Tensor:
        """The Jacobians of some rows, shape ``(B, C, D)``; C = 1 for one output."""

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        """``sum_n u_n (d^2 z_n / dtheta^2) r``, shape ``(D,)``; zero if z is linear in theta."""

    def restrict(self, index: Tensor, *, keep: bool = False) -> Linearization:
        """The same model on some of the rows; ``keep`` as in `Editable.linearize`."""

    def moved(self, by: Tensor) -> Linearization:
        """The same rows, linearised at ``theta + by``."""

    # Shortcuts. `LinearizationDefaults` has an answer for each.

    @property
    def mode(self) -> str:
        """How ``J r`` is computed, for the diagnostics."""

    def sums(self, weights: Tensor, pieces: list[Tensor]) -> Tensor:
        """``J^T u`` over each piece of the rows alone, shape ``(D, K)``."""

    def gram(self, middle: Tensor) -> Tensor | None:
        """``sum_n J_n^T m_n J_n``, dense ``(D, D)``, if there is a fast way; else None."""

    def diagonal(self, middle: Callable[[Some], Tensor]) -> Tensor | None:
        """The diagonal of ``sum_n J_n^T m_n J_n``, ``(D,)``, if it shortens a solve; else None.

        ``middle`` gives ``m_n`` of some rows, ``(B, C, C)``. Linear models have it. For trees and
        networks it makes solves longer: most of their directions are decided by damping alone, and
        a scale of its own for each parameter spoils that.
        """

    def row_squares(self) -> Tensor | None:
        """``|J_n|^2`` of every row or a bound above it, ``(N,)``; None if there is no fast way."""

    def row_products(self) -> Tensor | None:
        """``J J^T``, ``(N, N)``, for one output, if J need not be formed for it; else None."""

    def factors(self) -> list[Factors] | None:
        """The Jacobians of few rows as outer products, layer by layer; None if they are not."""

    def held_bytes(self) -> int | None:
        """Bytes of rows that this object keeps in memory; None if unknown."""

    def with_outputs(self, outputs: Tensor) -> Linearization | None:
        """At an edit with these outputs, if ``J`` is the same there and all rows are at hand."""


class JacobianDefaults:
    """A Jacobian without shortcuts."""

    def gram(self, middle: Tensor) -> Tensor | None:
        return None

    def diagonal(self, middle: Callable[[Some], Tensor]) -> Tensor | None:
        return None

    def row_squares(self) -> Tensor | None:
        return None

    def held_bytes(self) -> int | None:
        return None


class LinearizationDefaults(JacobianDefaults):
    """A linearisation without shortcuts.

    Examples
    --------
    >>> from fairij.models import LinearizationDefaults
    >>> isinstance(adapt(model).linearize(X), LinearizationDefaults)
    True
    """

    mode: str = "exact"

    def sums(self: Linearization, weights: Tensor, pieces: list[Tensor]) -> Tensor:
        found = {k: self.restrict(i).vjp(weights[i]) for k, i in enumerate(pieces) if len(i)}
        nothing = torch.zeros_like(next(iter(found.values())) if found else self.vjp(weights))
        return torch.stack([found.get(k, nothing) for k in range(len(pieces))], 1)

    def row_products(self) -> Tensor | None:
        return None

    def factors(self) -> list[Factors] | None:
        return None

    def with_outputs(self, outputs: Tensor) -> Linearization | None:
        return None


class Evaluator(Protocol):
    """The outputs of many edits of one model on one table of rows."""

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        """``z(theta + c d)`` for each scale c, ``(S, N)`` or ``(S, N, C)``; exact for one scale."""

    @property
    def estimates(self) -> bool:
        """Whether `along` only estimates several scales at once."""

    def confirm(self, direction: Tensor, scale: float, *, everywhere: bool) -> Tensor:
        """One edit, run by the model on all rows, or if not ``everywhere`` on those in doubt."""


class EvaluatorDefaults:
    """An evaluator that runs the model for every edit.

    Examples
    --------
    >>> from fairij.models import EvaluatorDefaults
    >>> isinstance(adapt(model).evaluator(X), EvaluatorDefaults)
    True
    """

    estimates: bool = False

    def confirm(self: Evaluator, direction: Tensor, scale: float, *, everywhere: bool) -> Tensor:
        return self.along(direction, torch.tensor([scale], dtype=torch.float64))


class Editable(Protocol):
    """A fitted model seen through the parameters that may be edited."""

    @property
    def theta(self) -> Tensor:
        """The fitted parameters, flat, shape ``(D,)``."""

    @property
    def parameter_names(self) -> list[str]:
        """What the parameters are called in the user's model, in the order of ``theta``."""

    def linearize(self, X: Any, *, keep: bool = True) -> Linearization:
        """The model on these rows; ``keep`` says that many products will follow."""

    def evaluator(self, X: Any) -> Evaluator:
        """The outputs of edited models on these rows."""

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        """``z(theta)``; at the fitted parameters if none are given."""

    def edited(self, theta: Tensor) -> Any:
        """A copy of the user's model, of the same type, with parameters ``stored(theta)``."""

    def frame_fingerprint(self) -> str:
        """A hash of everything in the model that an edit leaves alone."""

    # `EditableDefaults` has an answer for each of what follows.

    def within(self, theta: Tensor) -> Tensor:
        """The nearest parameters within the model's bounds: shares of a leaf must sum to one."""

    def stored(self, theta: Tensor) -> Tensor:
        """The parameters that are read from ``edited(theta)``."""

    # What the model knows of its training.

    @property
    def loss_name(self) -> str | None:
        """The training loss, a name in `fairij.LOSSES`; None if unknown."""

    @property
    def classes(self) -> NDArray[Any] | None:
        """The class labels in the order of the outputs; None if unknown."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Words that may be given as labels instead of class numbers, in order."""

    @property
    def outputs_are(self) -> str:
        """What the user's model returns: "logits", "probabilities" or "unknown"; z is logits."""

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentences on what an edit does not keep of this model, or cannot know."""

    @property
    def trained_together(self) -> bool:
        """Whether training moved all parameters together; trees are grown one after the other."""

    @property
    def temperature(self) -> float:
        """The sharpness of the soft score that suits the family, if nothing else is asked for."""

    def row_weights(self, y: Tensor, weight: Tensor | None) -> Tensor | None:
        """Sample weights times class weights; ``y`` holds class indices. None: all equal."""

    def held_back(self, y: NDArray[Any]) -> Held:
        """Which of the rows with these labels training did not see."""

    def l2(self, rows: int, weight_sum: float) -> Tensor | None:
        """The penalty ``(D,)`` in ``sum w l / W + sum l2 theta^2 / 2``; None for no penalty."""

    def halve_batches(self, X: Any) -> bool:
        """Use half the rows per batch from now on; False if batches cannot be smaller."""


class EditableDefaults:
    """A model that knows nothing of its training and has no batches.

    Examples
    --------
    >>> from fairij.models import EditableDefaults
    >>> class Own(EditableDefaults):
    ...     classes = (0, 1)  # a family of your own says what it knows
    >>> Own().loss_name is None
    True
    """

    loss_name: str | None = None
    classes: NDArray[Any] | None = None
    class_names: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    trained_together: bool = True
    temperature: float = 1.0

    @property
    def outputs_are(self) -> str:
        return "logits"

    def within(self, theta: Tensor) -> Tensor:
        return theta

    def stored(self, theta: Tensor) -> Tensor:
        return theta

    def row_weights(self, y: Tensor, weight: Tensor | None) -> Tensor | None:
        return weight

    def held_back(self, y: NDArray[Any]) -> Held:
        return None

    def l2(self, rows: int, weight_sum: float) -> Tensor | None:
        return None

    def halve_batches(self, X: Any) -> bool:
        return False


class Delegating:
    """An `Editable` that passes everything on to another one, on rows that `prepare` may change.

    `fairij.models.contract.check_wrapper` checks that nothing is lost.
    """

    def __init__(self, inner: Editable) -> None:
        self._inner = inner
        self.loss_name: str | None = inner.loss_name
        self.classes: NDArray[Any] | None = inner.classes
        self.class_names: tuple[str, ...] = inner.class_names
        self.caveats: tuple[str, ...] = inner.caveats
        self.trained_together: bool = inner.trained_together
        self.temperature: float = inner.temperature

    def prepare(self, X: Any) -> Any:
        """The rows as the inner model takes them."""
        return X

    @property
    def theta(self) -> Tensor:
        return self._inner.theta

    @property
    def outputs_are(self) -> str:  # a torch module is known once it was run
        return self._inner.outputs_are

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

    def within(self, theta: Tensor) -> Tensor:
        return self._inner.within(theta)

    def stored(self, theta: Tensor) -> Tensor:
        return self._inner.stored(theta)

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
