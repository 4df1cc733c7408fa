"""Contracts that every model family and every wrapper must keep.

`check_editable` takes an `Editable` and a few rows, `check_wrapper` a function that wraps an
`Editable`. Both return nothing, or raise an `AssertionError` that says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.checks import members
from fairij.data.rows import n_rows
from fairij.models.base import Editable, Evaluator, Factors, Linearization, Some
from fairij.models.constant import ConstantLinearization, FeatureJacobian
from fairij.models.losses import LOSSES
from fairij.models.registry import adapt

STEP = {torch.float64: 1e-6, torch.float32: 1e-3}  # of central differences, relative to theta
NEAR = {torch.float64: 1e-5, torch.float32: 2e-2}  # relative error of what uses differences
SAME = {torch.float64: 1e-9, torch.float32: 1e-3}  # relative error of what does not


def check_editable(editable: Editable, X: Any) -> None:
    """Check a model family on some rows.

    Products with the Jacobian are compared with differences of the outputs, shortcuts with their
    slow forms, and edited models with the parameters that they should have.

    Parameters
    ----------
    editable : Editable
        The adapted model. Its batches may be smaller afterwards.
    X : table of rows
        At least four rows, and few: the Jacobian of each is formed.

    Examples
    --------
    >>> from fairij.models import check_editable
    >>> check_editable(adapt(model), X[:50])
    """
    _require_members(editable, Editable)
    theta, before = editable.theta.clone(), editable.outputs(X).clone()
    _check_shape("theta", theta, (theta.numel(),))
    _check_shape("outputs", before, (n_rows(X), *before.shape[1:2]))
    _close("outputs(X, theta)", editable.outputs(X, theta), before)
    linear = editable.linearize(X)
    _require_members(linear, Linearization)
    _check_products(editable, X, linear)
    _check_rows(linear)
    _check_evaluator(editable, X)
    _check_edits(editable, X)
    _check_training_facts(editable, n_rows(X))
    _require(editable.halve_batches(X) in (True, False), "halve_batches must return a bool")
    _close("outputs after halve_batches", editable.outputs(X), before)
    _require(torch.equal(editable.theta, theta), "theta must stay as it was fitted")


def _require_members(found: Any, protocol: type) -> None:
    missing = [name for name in members(protocol) if not hasattr(found, name)]
    _require(
        not missing,
        f"{type(found).__name__} lacks {', '.join(missing)} of `{protocol.__name__}`; inherit "
        f"`{protocol.__name__}Defaults` for what it does not know",
    )


def _check_products(editable: Editable, X: Any, linear: Linearization) -> None:
    """``J r``, ``J^T u``, ``J^T m(J r)`` and the second-order term, by differences."""
    theta, z, h = editable.theta, linear.outputs, STEP[editable.theta.dtype]
    _close("linearize(X).outputs", z, editable.outputs(X))
    r, u, weights = _direction(theta, 0), _random(z, 1), _random(z, 2)

    def slope(at: Tensor) -> Tensor:
        return (editable.outputs(X, at + h * r) - editable.outputs(X, at - h * r)) / (2 * h)

    moved, pulled = linear.jvp(r), linear.vjp(u)
    _close("jvp, by differences of outputs", moved, slope(theta), NEAR)
    linear.jvp(r).zero_()
    _close("jvp, after an earlier result was overwritten", linear.jvp(r), moved)
    _check_shape("vjp", pulled, theta.shape)
    _close("<u, J r> = <J^T u, r>", (u * moved).sum(), pulled @ r, SAME, u.norm() * moved.norm())
    both = linear.sandwich(r, lambda part, rows: part * weights[rows])
    _close("sandwich, by vjp and jvp", both, linear.vjp(weights * moved))
    by = 0.1 * _direction(theta, 3)
    there = linear.moved(by)
    _close("moved(by).outputs", there.outputs, editable.outputs(X, theta + by))
    _close("moved(by).jvp, by differences", there.jvp(r), slope(theta + by), NEAR)
    bend = (linear.moved(h * r).vjp(u) - linear.moved(-h * r).vjp(u)) / (2 * h)
    near = {kind: 5 * size for kind, size in NEAR.items()}
    _close("second_order, by differences of vjp", linear.second_order(u, r), bend, near, pulled)


def _check_rows(linear: Linearization) -> None:
    """Some rows alone, and the shortcuts against their slow forms, by the Jacobian of each row."""
    z, u = linear.outputs, _random(linear.outputs, 5)
    n, every = len(z), torch.arange(len(z), device=z.device)
    r = _direction(linear.vjp(torch.zeros_like(z)), 4) + 1
    J, moved = linear.rows(every), linear.jvp(r)
    _check_shape("rows", J, (n, z[0].numel(), len(r)))  # (N, C, D)
    _close("rows(index) r, by jvp", (J @ r.to(J)).view_as(moved), moved)

    def pulled(index: Tensor) -> Tensor:
        return torch.einsum("bc,bcd->d", u.reshape(n, -1)[index], J[index])

    index = torch.tensor([n - 1, 0, 2, 2], device=z.device)
    _close("rows(index), by all rows", linear.rows(index), J[index])
    for keep in (False, True):
        part = linear.restrict(index, keep=keep)
        _close("restrict(index).outputs", part.outputs, z[index])
        _close("restrict(index).jvp", part.jvp(r), moved[index])
        _close("restrict(index).vjp, by rows", part.vjp(u[index]), pulled(index))
    pieces = [every[:3], every[:0], every[2:].flip(0)]
    _close("sums, by rows", linear.sums(u, pieces), torch.stack([pulled(i) for i in pieces], 1))
    root = _random(J[:, :, :1] @ J[:, :, :1].mT, 7)
    middle = root @ root.mT
    gram, products = linear.gram(middle), linear.row_products()
    squares, held, exact = linear.row_squares(), linear.held_bytes(), J.square().sum((1, 2))
    if gram is not None:
        _close("gram, by rows", gram, torch.einsum("ncd,nce,nef->df", J, middle, J))
    diagonal = linear.diagonal(lambda rows: middle[rows])
    if diagonal is not None:
        exact_diagonal = torch.einsum("ncd,nce,ned->d", J, middle, J)
        _close("diagonal, by rows", diagonal, exact_diagonal)
    if products is not None:
        _close("row_products, by rows", products, torch.einsum("ncd,mcd->nm", J, J))
    for layer in linear.factors() or []:
        own = torch.einsum("ncto,nti->ncoi", layer.slopes, layer.inputs).flatten(2)
        if layer.weight is not None:
            _close("factors of a weight, by rows", own, J[..., layer.weight])
        if layer.bias is not None:
            _close("factors of a bias, by rows", layer.slopes.sum(2), J[..., layer.bias])
    if squares is not None:
        _check_shape("row_squares", squares, (n,))
        high = bool((squares >= exact - SAME[z.dtype] * exact.max()).all())
        _require(high, "row_squares must be |J_n|^2 or a bound above it")
    _require(held is None or held >= 0, f"held_bytes must be None or at least 0, got {held!r}")
    _require(isinstance(linear.mode, str), "mode must be a str")
    there = linear.with_outputs(z + 1)
    if there is not None:
        _close("with_outputs(z).outputs", there.outputs, z + 1)
        _close("with_outputs(z).vjp", there.vjp(u), linear.moved(r).vjp(u))


def _check_evaluator(editable: Editable, X: Any) -> None:
    """Outputs of edits, against `outputs` at the edited parameters."""
    evaluator = editable.evaluator(X)
    _require_members(evaluator, Evaluator)
    d, scales = 0.1 * _direction(editable.theta, 8), torch.tensor([0.5, 1.0], dtype=torch.float64)
    exact = torch.stack([editable.outputs(X, editable.theta + c * d) for c in scales.tolist()])
    several, quick = evaluator.along(d, scales), evaluator.confirm(d, 1.0, everywhere=False)
    _check_shape("along", several, exact.shape)
    if not evaluator.estimates:
        _close("along, several scales", several, exact)
    _close("along, one scale", evaluator.along(d, scales[:1]), exact[:1])
    _close("confirm everywhere", evaluator.confirm(d, 1.0, everywhere=True), exact[1:])
    _check_shape("confirm", quick, exact[1:].shape)
    first, second = (z > 0 if z.ndim == 2 else z.argmax(-1) for z in (quick, exact[1:]))
    same = torch.equal(first, second)
    _require(same, "confirm must give every row the label that the edited model gives it")


def _check_edits(editable: Editable, X: Any) -> None:
    """`edited` copies the model with other parameters and changes nothing else."""
    theta, before = editable.theta.clone(), editable.outputs(X).clone()
    _require(len(editable.parameter_names) > 0, "parameter_names must not be empty")
    asked = theta + 0.1 * _direction(theta, 9)
    there = editable.stored(asked)
    _require(torch.equal(editable.stored(theta), theta), "stored(theta) must be theta itself")
    _require(torch.equal(editable.stored(there), there), "stored must not change its results")
    for name, near in (("stored", there), ("within", editable.within(asked))):
        _close(f"outputs at {name}(theta)", editable.outputs(X, near), editable.outputs(X, asked))
    again = adapt(editable.edited(there), parameters=editable.parameter_names)
    _close("theta of the edited model", again.theta, there)
    _close("outputs of the edited model", again.outputs(X), editable.outputs(X, there))
    same = again.frame_fingerprint() == editable.frame_fingerprint()
    _require(same, "frame_fingerprint must not change with an edit")
    _close("outputs of the original after an edit", editable.outputs(X), before)
    _require(torch.equal(editable.theta, theta), "an edit must not change the original's theta")


def _check_training_facts(editable: Editable, rows: int) -> None:
    """Loss, classes, weights, held-back rows and penalty are well-formed."""
    _require(editable.loss_name in (None, *LOSSES), f"loss_name is {editable.loss_name!r}")
    classes, words = editable.classes, (*editable.class_names, *editable.caveats)
    _require(classes is None or np.ndim(classes) == 1, "classes must be None or have shape (C,)")
    _require(all(isinstance(word, str) for word in words), "class_names and caveats must be words")
    y = torch.arange(rows) % (2 if classes is None else len(classes))
    for given in (None, torch.linspace(1, 2, rows, dtype=torch.float64)):
        weight = editable.row_weights(y, given)
        sound = given is None if weight is None else _is_at_least_0(weight, rows)
        _require(sound, "row_weights must give one finite weight of at least 0 per row")
    held = editable.held_back(np.arange(rows) if classes is None else classes[y.numpy()])
    unknown = held is None or (isinstance(held, str) and held == "unknown")
    places = np.asarray([0] if unknown else held)
    inside = places.dtype.kind == "i" and bool(((places >= 0) & (places < rows)).all())
    _require(inside, "held_back must be None, 'unknown' or row numbers")
    l2 = editable.l2(rows, float(rows))
    sound = l2 is None or _is_at_least_0(l2, len(editable.theta))
    _require(sound, "l2 must be None or have shape (D,) and no entry below 0")


def _is_at_least_0(values: Tensor, size: int) -> bool:
    return values.shape == (size,) and bool((values.isfinite() & (values >= 0)).all())


def _direction(theta: Tensor, seed: int) -> Tensor:
    """A random direction of about the length of theta."""
    r = _random(theta, seed)
    return r * (theta.norm() + 1) / r.norm()


def _random(like: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(f"{message}.")


def _check_shape(what: str, found: Tensor, shape: tuple[int, ...]) -> None:
    _require(found.shape == shape, f"{what} has shape {tuple(found.shape)}, not {tuple(shape)}")


def _close(
    what: str,
    found: Tensor,
    expected: Tensor,
    tolerance: dict[torch.dtype, float] = SAME,
    scale: Tensor | None = None,
) -> None:
    """Raise unless values agree within a tolerance, relative to the largest of ``scale``."""
    _check_shape(what, found, expected.shape)
    size = float((expected if scale is None else scale).abs().max())
    off = float((found.double() - expected.double()).abs().max())
    exact = found.dtype == expected.dtype == torch.float64
    limit = tolerance[torch.float64 if exact else torch.float32] * size
    _require(off <= limit, f"{what}: off by {off:.2e}, more than {limit:.2e}")


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

    Examples
    --------
    >>> from fairij.models import check_wrapper
    >>> check_wrapper(lambda editable: editable)  # passes on everything
    """
    inner = exemplar(torch.tensor([1.0, -2.0, 0.5]).double())
    wrapper, given = make(inner), rows(ROWS)
    for protocol, found, expected in (
        (Editable, wrapper, inner),
        (Linearization, wrapper.linearize(given), inner.linearize(ROWS)),
        (Evaluator, wrapper.evaluator(given), inner.evaluator(ROWS)),
    ):
        for name in (name for name in members(protocol) if name not in own):
            lost = f"{type(found).__name__} must pass on `{name}` of `{protocol.__name__}`"
            right = _answer(name, expected, ROWS)
            try:
                told = _answer(name, found, given)
            except Exception as error:
                raise AssertionError(f"{lost}, but it raised {error!r}.") from error
            same = told.shape == right.shape and (
                np.allclose(told, right, atol=1e-12)
                if told.dtype.kind == right.dtype.kind == "f"
                else told.tolist() == right.tolist()
            )
            _require(same, f"{lost}: the inner object gives {right}, the wrapper {told}")


def _answer(name: str, of: Any, X: Any) -> NDArray[Any]:
    """What an object says about one member; `QUESTIONS` has what takes arguments."""
    value = QUESTIONS[name](of, X) if name in QUESTIONS else getattr(of, name)
    if name == "outputs":
        value = value if isinstance(value, Tensor) else torch.stack([value(X), value(X, THREE)])
    return np.asarray(value() if callable(value) else value)


class _Shortcuts(ConstantLinearization):
    """``z = X theta`` with every shortcut, a made-up second-order term and wrong estimates."""

    mode, estimates = "exemplar", True
    jacobian: FeatureJacobian

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        return weights.sum() * direction

    def gram(self, middle: Tensor) -> Tensor:
        return self.jacobian.X.T @ (middle[:, 0] * self.jacobian.X)

    def diagonal(self, middle: Callable[[Some], Tensor]) -> Tensor | None:
        return self.jacobian.diagonal(middle)

    def row_squares(self) -> Tensor:
        return self.jacobian.X.square().sum(1)

    def row_products(self) -> Tensor:
        return self.jacobian.X @ self.jacobian.X.T

    def factors(self) -> list[Factors]:
        X = self.jacobian.X
        return [Factors(slice(0, X.shape[1]), None, X[:, None], X.new_ones(len(X), 1, 1, 1))]

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        return super().along(direction, scales) + 0.25 * (len(scales) > 1)

    def confirm(self, direction: Tensor, scale: float, *, everywhere: bool) -> Tensor:
        return super().confirm(direction, scale, everywhere=True) + 0.125 * (not everywhere)


def exemplar(theta: Tensor) -> Any:
    """A linear `Editable` that answers every member, and none as the defaults would."""

    def linearize(X: Any, *, keep: bool = True, at: Tensor = theta) -> _Shortcuts:
        features = torch.as_tensor(np.asarray(X), dtype=torch.float64)
        jacobian = FeatureJacobian(features, 1, intercept=False)
        return _Shortcuts(jacobian.times(at), jacobian)

    return SimpleNamespace(
        theta=theta,
        parameter_names=["exemplar"],
        linearize=linearize,
        evaluator=linearize,
        outputs=lambda X, at=None: linearize(X, at=theta if at is None else at).outputs,
        edited=exemplar,
        within=lambda at: at / 2,
        stored=lambda at: at / 4,
        frame_fingerprint=lambda: "exemplar",
        loss_name="squared_error",
        classes=np.array(["no", "yes"]),
        class_names=("no", "yes"),
        outputs_are="probabilities",
        caveats=("This is an exemplar.",),
        trained_together=False,
        temperature=2.0,
        row_weights=lambda y, weight: (1.0 if weight is None else weight) * (1.0 + y),
        held_back=lambda y: np.array([len(y) - 1]),
        l2=lambda rows, weight_sum: torch.full_like(theta, rows / (2 * weight_sum)),
        halve_batches=lambda X: True,
    )


ROWS: NDArray[np.float64] = np.random.default_rng(0).normal(size=(9, 3))
THREE = torch.tensor([0.3, 0.2, -0.4]).double()
NINE = torch.linspace(-1, 1, 9).double()
SOME = torch.tensor([7, 0, 3])
PIECES = [torch.tensor([8, 1]), torch.tensor([], dtype=torch.long), torch.arange(2, 6)]
# (object, rows) -> answer, for the members that take arguments
QUESTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "linearize": lambda part, X: part.linearize(X, keep=False).outputs,
    "evaluator": lambda part, X: part.evaluator(X).along(THREE, torch.ones(1)),
    "edited": lambda part, X: part.edited(THREE).theta,
    "within": lambda part, X: part.within(THREE),
    "stored": lambda part, X: part.stored(THREE),
    "row_weights": lambda part, X: part.row_weights(torch.arange(9) % 2, None),
    "held_back": lambda part, X: part.held_back(np.zeros(9)),
    "l2": lambda part, X: part.l2(9, 4.0),
    "halve_batches": lambda part, X: part.halve_batches(X),
    "jvp": lambda part, X: part.jvp(THREE),
    "vjp": lambda part, X: part.vjp(NINE),
    "sandwich": lambda part, X: part.sandwich(THREE, lambda found, rows: found * NINE[rows]),
    "rows": lambda part, X: part.rows(SOME),
    "second_order": lambda part, X: part.second_order(NINE + 2, THREE),
    "restrict": lambda part, X: part.restrict(SOME).jvp(THREE),
    "moved": lambda part, X: torch.stack([(at := part.moved(THREE)).outputs, at.jvp(THREE)]),
    "sums": lambda part, X: part.sums(NINE, PIECES),
    "with_outputs": lambda part, X: part.with_outputs(NINE).outputs,
    "factors": lambda part, X: torch.cat([f.inputs * f.slopes[:, 0] for f in part.factors()]),
    "gram": lambda part, X: part.gram(NINE[:, None, None]),
    "diagonal": lambda part, X: part.diagonal(lambda rows: NINE[rows, None, None].abs()),
    "along": lambda part, X: part.along(THREE, NINE[6:]),
    "confirm": lambda part, X: torch.cat(
        [part.confirm(THREE, 2.0, everywhere=everywhere) for everywhere in (False, True)]
    ),
}
