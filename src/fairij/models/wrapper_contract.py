"""The contract of wrappers: whatever a protocol states, a wrapper passes on.

An `Exemplar` is a small linear model that answers every member of the three protocols, none of them
as the defaults would. A wrapper around it must give the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.models.base import Editable, Evaluator, Linearization, members
from fairij.models.constant import ConstantLinearization
from fairij.models.features import FeatureJacobian

ROWS: NDArray[np.float64] = np.random.default_rng(0).normal(size=(9, 3))
Question = Callable[[Any], Any]


class ExemplarLinearization(ConstantLinearization):
    """``z = X theta``, with every shortcut, and a made-up second-order term."""

    mode = "exemplar"
    jacobian: FeatureJacobian

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        return weights.sum() * direction

    def gram(self, middle: Tensor) -> Tensor:
        X: Tensor = self.jacobian.X
        return X.T @ (middle[:, 0] * X)

    def row_squares(self) -> Tensor:
        squares: Tensor = self.jacobian.X.square().sum(1)
        return squares

    def row_products(self) -> Tensor:
        products: Tensor = self.jacobian.X @ self.jacobian.X.T
        return products


@dataclass(frozen=True)
class ExemplarEvaluator:
    """Estimates are off by 1/4, and confirmed outputs by 1/8 unless they are run everywhere."""

    X: Tensor
    theta: Tensor
    estimates = True

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        z = (self.theta + scales[:, None].to(direction) * direction) @ self.X.T
        return z + 0.25 * (len(scales) > 1)

    def confirm(self, direction: Tensor, scale: float, *, everywhere: bool) -> Tensor:
        return ((self.theta + scale * direction) @ self.X.T)[None] + 0.125 * (not everywhere)


class Exemplar:
    """An `Editable` with an answer of its own to every member."""

    parameter_names = ("exemplar",)
    loss_name = "squared_error"
    classes = np.array(["no", "yes"])
    class_names = ("no", "yes")
    caveats = ("This is an exemplar.",)

    def __init__(self, theta: Tensor | None = None) -> None:
        self.theta = torch.tensor([1.0, -2.0, 0.5]).double() if theta is None else theta

    def linearize(self, X: Any, *, keep: bool = True) -> ExemplarLinearization:
        jacobian = FeatureJacobian(_tensor(X), 1, intercept=False)
        return ExemplarLinearization(jacobian.times(self.theta), jacobian)

    def evaluator(self, X: Any) -> ExemplarEvaluator:
        return ExemplarEvaluator(_tensor(X), self.theta)

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        return _tensor(X) @ (self.theta if theta is None else theta)

    def edited(self, theta: Tensor) -> Exemplar:
        return Exemplar(theta)

    def frame_fingerprint(self) -> str:
        return "exemplar"

    def row_weights(self, y: Tensor, weight: Tensor | None) -> Tensor:
        return (1.0 if weight is None else weight) * (1.0 + y)

    def held_back(self, y: NDArray[Any]) -> NDArray[np.int64]:
        return np.array([len(y) - 1])

    def l2(self, rows: int, weight_sum: float) -> Tensor:
        return torch.full_like(self.theta, rows / (2 * weight_sum))

    def halve_batches(self, X: Any) -> bool:
        return True


def check_wrapper(
    make: Callable[[Editable], Editable],
    rows: Callable[[NDArray[Any]], Any] = lambda X: X,
    *,
    own: Collection[str] = (),
) -> None:
    """Check that a wrapper, its linearisations and its evaluators pass on every member.

    Parameters
    ----------
    make : callable
        Wraps an `Editable` in another one.
    rows : callable, default=identity
        The form in which the wrapper gets its rows, made from an array of shape ``(9, 3)``.
    own : collection of str, default=()
        Members that the wrapper answers itself, such as ``("edited", "held_bytes")``.

    Raises
    ------
    AssertionError
        If an answer is not that of the inner object; it names the wrapper and the member.
    """
    inner: Any = Exemplar()
    wrapper, given = make(inner), rows(ROWS)
    _compare(Editable, lambda name: _of_editable(name, given), wrapper, own, inner)
    parts: list[tuple[type, str, dict[str, Question]]] = [
        (Linearization, "linearize", LINEARIZATION),
        (Evaluator, "evaluator", EVALUATOR),
    ]
    for protocol, member, questions in parts:
        found = getattr(wrapper, member)(given)
        _compare(protocol, questions.__getitem__, found, own, getattr(inner, member)(ROWS))


def _compare(
    protocol: type, question: Callable[[str], Question], wrapper: Any, own: Any, inner: Any
) -> None:
    for name in members(protocol):
        if name in own:
            continue
        lost = f"{type(wrapper).__name__} must pass on `{name}` of `{protocol.__name__}`"
        try:
            ask = question(name)
        except KeyError:
            raise AssertionError(f"check_wrapper has no question about `{name}`.") from None
        expected = ask(inner)
        try:
            found = ask(wrapper)
        except Exception as error:
            raise AssertionError(f"{lost}, but it raised {error!r}.") from error
        if not _equal(found, expected):
            raise AssertionError(
                f"{lost}: the inner object gives {_short(expected)}, the wrapper {_short(found)}."
            )


def _of_editable(name: str, given: Any) -> Question:
    """A question about a member of `Editable`; the inner object gets the plain rows."""

    def rows(model: Any) -> Any:
        return ROWS if isinstance(model, Exemplar) else given

    questions: dict[str, Question] = {
        "theta": lambda e: e.theta,
        "parameter_names": lambda e: list(e.parameter_names),
        "linearize": lambda e: e.linearize(rows(e), keep=False).outputs,
        "evaluator": lambda e: e.evaluator(rows(e)).along(THREE, torch.ones(1)),
        "outputs": lambda e: torch.stack([e.outputs(rows(e)), e.outputs(rows(e), THREE)]),
        "edited": lambda e: e.edited(THREE).theta,
        "frame_fingerprint": lambda e: e.frame_fingerprint(),
        "loss_name": lambda e: e.loss_name,
        "classes": lambda e: list(e.classes),
        "class_names": lambda e: tuple(e.class_names),
        "caveats": lambda e: tuple(e.caveats),
        "row_weights": lambda e: e.row_weights(torch.arange(9) % 2, None),
        "held_back": lambda e: list(e.held_back(np.zeros(9))),
        "l2": lambda e: e.l2(9, 4.0),
        "halve_batches": lambda e: e.halve_batches(rows(e)),
    }
    return questions[name]


THREE = torch.tensor([0.3, 0.2, -0.4]).double()
NINE = torch.linspace(-1, 1, 9).double()
SOME = torch.tensor([7, 0, 3])
PIECES = [torch.tensor([8, 1]), torch.tensor([], dtype=torch.long), torch.arange(2, 6)]
LINEARIZATION: dict[str, Question] = {
    "outputs": lambda m: m.outputs,
    "jvp": lambda m: m.jvp(THREE),
    "vjp": lambda m: m.vjp(NINE),
    "sandwich": lambda m: m.sandwich(THREE, lambda part, rows: part * NINE[rows]),
    "rows": lambda m: m.rows(SOME),
    "second_order": lambda m: m.second_order(NINE + 2, THREE),
    "restrict": lambda m: m.restrict(SOME).jvp(THREE),
    "moved": lambda m: torch.stack([m.moved(THREE).outputs, m.moved(THREE).jvp(THREE)]),
    "mode": lambda m: m.mode,
    "sums": lambda m: m.sums(NINE, PIECES),
    "gram": lambda m: m.gram(NINE[:, None, None]),
    "row_squares": lambda m: m.row_squares(),
    "row_products": lambda m: m.row_products(),
    "held_bytes": lambda m: m.held_bytes(),
}
EVALUATOR: dict[str, Question] = {
    "along": lambda m: m.along(THREE, torch.tensor([0.5, 1.0]).double()),
    "estimates": lambda m: m.estimates,
    "confirm": lambda m: torch.cat([m.confirm(THREE, 2.0, everywhere=e) for e in (False, True)]),
}


def _equal(found: Any, expected: Any) -> bool:
    if isinstance(expected, Tensor):
        same_shape = isinstance(found, Tensor) and found.shape == expected.shape
        return same_shape and torch.allclose(found.double(), expected.double(), atol=1e-12)
    return bool(found == expected)


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"values {tuple(value.shape)} with sum {float(value.sum()):.4g}"
    return repr(value)


def _tensor(X: Any) -> Tensor:
    return torch.as_tensor(np.asarray(X), dtype=torch.float64)
