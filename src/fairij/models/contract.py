"""Contracts that every model family and every wrapper must keep.

`check_editable` takes an `Editable` and a few rows, `check_wrapper` a function that wraps an
`Editable`. Both return nothing, or raise an `AssertionError` that says what is wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairij.data.rows import n_rows
from fairij.models.base import Editable, Evaluator, Linearization, members
from fairij.models.losses import LOSSES
from fairij.models.registry import adapt
from fairij.models.wrapper_contract import check_wrapper

__all__ = ["check_editable", "check_wrapper"]

STEP = {torch.float64: 1e-6, torch.float32: 1e-3}  # of central differences, relative to theta
NEAR = {torch.float64: 1e-5, torch.float32: 2e-2}  # relative error of what uses differences
SAME = {torch.float64: 1e-9, torch.float32: 1e-3}  # relative error of what does not


def check_editable(editable: Editable, X: Any) -> None:
    """Check a model family on some rows.

    Products with the Jacobian are compared with each other and with differences of the outputs,
    shortcuts with their slow forms, and edited models with the parameters that they should have.

    Parameters
    ----------
    editable : Editable
        The adapted model. Its batches may be smaller afterwards.
    X : table of rows
        At least four rows, and few: the Jacobian of each is formed.

    Raises
    ------
    AssertionError
        If a requirement of `Editable`, `Linearization` or `Evaluator` is not met.
    """
    require_members(editable, Editable)
    theta, before = editable.theta.clone(), editable.outputs(X).clone()
    shape = tuple(before.shape)
    _require(theta.ndim == 1, f"theta must have shape (D,), got {tuple(theta.shape)}")
    _require(len(editable.parameter_names) > 0, "parameter_names must not be empty")
    _require(len(shape) in (1, 2) and shape[0] == n_rows(X), f"outputs has shape {shape}")
    _close("outputs(X, theta)", editable.outputs(X, theta), before, SAME)
    linear = editable.linearize(X)
    require_members(linear, Linearization)
    check_products(editable, X, linear)
    check_parts(linear)
    check_shortcuts(linear)
    check_evaluator(editable, X)
    check_edits(editable, X)
    check_training_facts(editable, n_rows(X))
    _require(editable.halve_batches(X) in (True, False), "halve_batches must return a bool")
    _close("outputs after halve_batches", editable.outputs(X), before, SAME)
    _require(torch.equal(editable.theta, theta), "theta must stay as it was fitted")


def require_members(found: Any, protocol: type) -> None:
    """Raise unless the object has every member of the protocol."""
    missing = [name for name in members(protocol) if not hasattr(found, name)]
    _require(
        not missing,
        f"{type(found).__name__} lacks {', '.join(missing)} of `{protocol.__name__}`; inherit "
        f"`{protocol.__name__}Defaults` for what it does not know",
    )


def check_products(editable: Editable, X: Any, linear: Linearization) -> None:
    """``J r``, ``J^T u``, ``J^T m(J r)`` and the second-order term, by differences."""
    theta, z = editable.theta, linear.outputs
    _close("linearize(X).outputs", z, editable.outputs(X), SAME)
    r, u = _direction(theta), _random(z, 1)
    h = STEP[theta.dtype]
    ahead, behind = (editable.outputs(X, theta + c * h * r) for c in (1, -1))
    moved = linear.jvp(r)
    _close("jvp, by differences of outputs", moved, (ahead - behind) / (2 * h), NEAR)
    linear.jvp(r).zero_()
    _close("jvp, after an earlier result was overwritten", linear.jvp(r), moved, SAME)
    pulled = linear.vjp(u)
    _require(pulled.shape == theta.shape, f"vjp has shape {tuple(pulled.shape)}")
    _close("<u, J r> = <J^T u, r>", (u * moved).sum(), pulled @ r, SAME, u.norm() * moved.norm())
    weights = _random(z, 2)
    both = linear.sandwich(r, lambda part, rows: part * weights[rows])
    _close("sandwich, by vjp and jvp", both, linear.vjp(weights * moved), SAME)
    by = 0.1 * _direction(theta, 3)
    there = linear.moved(by)
    _close("moved(by).outputs", there.outputs, editable.outputs(X, theta + by), SAME)
    ahead, behind = (editable.outputs(X, theta + by + c * h * r) for c in (1, -1))
    _close("moved(by).jvp, by differences", there.jvp(r), (ahead - behind) / (2 * h), NEAR)
    bend = (linear.moved(h * r).vjp(u) - linear.moved(-h * r).vjp(u)) / (2 * h)
    near = {kind: 5 * size for kind, size in NEAR.items()}
    _close("second_order, by differences of vjp", linear.second_order(u, r), bend, near, pulled)


def check_parts(linear: Linearization) -> None:
    """Some rows alone: `rows` and `restrict`."""
    z = linear.outputs
    theta = linear.vjp(torch.zeros_like(z))
    index = torch.tensor([len(z) - 1, 0, 2, 2], device=z.device)
    r, u = _direction(theta, 4) + 1, _random(z, 5)[index]
    moved = linear.jvp(r)[index]
    jacobians = linear.rows(index)
    size = (len(index), z[0].numel(), len(theta))
    _require(jacobians.shape == size, f"rows has shape {tuple(jacobians.shape)}, not {size}")
    _close("rows(index) r, by jvp", (jacobians @ r.to(jacobians)).view_as(moved), moved, SAME)
    for keep in (False, True):
        part = linear.restrict(index, keep=keep)
        _close("restrict(index).outputs", part.outputs, z[index], SAME)
        _close("restrict(index).jvp", part.jvp(r), moved, SAME)
        pulled = torch.einsum("bc,bcd->d", u.reshape(len(index), -1), jacobians)
        _close("restrict(index).vjp, by rows", part.vjp(u), pulled, SAME)


def check_shortcuts(linear: Linearization) -> None:
    """`sums`, `gram`, `row_squares` and `row_products` against their slow forms, or None."""
    z = linear.outputs
    n, every = len(z), torch.arange(len(z), device=z.device)
    J = linear.rows(every)  # (N, C, D)
    u = _random(z, 6)
    pieces = [every[:3], every[:0], every[2:].flip(0)]
    flat = u.reshape(n, -1)
    slow = [torch.einsum("bc,bcd->d", flat[piece], J[piece]) for piece in pieces]
    _close("sums, by rows", linear.sums(u, pieces), torch.stack(slow, 1), SAME)
    root = _random(J[:, :, :1] @ J[:, :, :1].mT, 7)
    middle = root @ root.mT
    gram = linear.gram(middle)
    if gram is not None:
        _close("gram, by rows", gram, torch.einsum("ncd,nce,nef->df", J, middle, J), SAME)
    squares, exact = linear.row_squares(), J.square().sum((1, 2))
    if squares is not None:
        _require(squares.shape == (n,), f"row_squares has shape {tuple(squares.shape)}")
        low = bool((squares < exact - SAME[z.dtype] * exact.max()).any())
        _require(not low, "row_squares must be |J_n|^2 or a bound above it")
    products = linear.row_products()
    if products is not None:
        _close("row_products, by rows", products, torch.einsum("ncd,mcd->nm", J, J), SAME)
    held = linear.held_bytes()
    _require(held is None or held >= 0, f"held_bytes must be None or at least 0, got {held!r}")
    _require(isinstance(linear.mode, str), "mode must be a str")


def check_evaluator(editable: Editable, X: Any) -> None:
    """Outputs of edits, against `outputs` at the edited parameters."""
    evaluator = editable.evaluator(X)
    require_members(evaluator, Evaluator)
    theta, d = editable.theta, 0.1 * _direction(editable.theta, 8)
    scales = torch.tensor([0.5, 1.0], dtype=torch.float64)
    exact = torch.stack([editable.outputs(X, theta + c * d) for c in scales.tolist()])
    several = evaluator.along(d, scales)
    _require(several.shape == exact.shape, f"along has shape {tuple(several.shape)}")
    if not evaluator.estimates:
        _close("along, several scales", several, exact, SAME)
    _close("along, one scale", evaluator.along(d, scales[:1]), exact[:1], SAME)
    _close("confirm everywhere", evaluator.confirm(d, 1.0, everywhere=True), exact[1:], SAME)
    found = evaluator.confirm(d, 1.0, everywhere=False)
    _require(found.shape == exact[1:].shape, f"confirm has shape {tuple(found.shape)}")
    _require(
        torch.equal(_labels(found), _labels(exact[1:])),
        "confirm must give every row the label that the edited model gives it",
    )


def check_edits(editable: Editable, X: Any) -> None:
    """`edited` copies the model with other parameters and changes nothing else."""
    theta, before = editable.theta.clone(), editable.outputs(X).clone()
    there = theta + 0.1 * _direction(theta, 9)
    edited = editable.edited(there)
    again = adapt(edited, parameters=editable.parameter_names)
    _close("theta of the edited model", again.theta, there, SAME)
    _close("outputs of the edited model", again.outputs(X), editable.outputs(X, there), SAME)
    _require(
        again.frame_fingerprint() == editable.frame_fingerprint(),
        "frame_fingerprint must not change with an edit",
    )
    _close("outputs of the original after an edit", editable.outputs(X), before, SAME)
    _require(torch.equal(editable.theta, theta), "an edit must not change the original's theta")


def check_training_facts(editable: Editable, rows: int) -> None:
    """Loss, classes, weights, held-back rows and penalty are well-formed."""
    _require(editable.loss_name in (None, *LOSSES), f"loss_name is {editable.loss_name!r}")
    classes, size = editable.classes, len(editable.theta)
    _require(classes is None or np.ndim(classes) == 1, "classes must be None or have shape (C,)")
    words = (*editable.class_names, *editable.caveats)
    _require(all(isinstance(word, str) for word in words), "class_names and caveats must be words")
    n_classes = 2 if classes is None else len(classes)
    y = torch.arange(rows) % n_classes
    for given in (None, torch.linspace(1, 2, rows, dtype=torch.float64)):
        weight = editable.row_weights(y, given)
        if weight is None and given is None:
            continue
        sound = (
            weight is not None
            and weight.shape == (rows,)
            and bool((weight.isfinite() & (weight >= 0)).all())
        )
        _require(sound, "row_weights must give one finite weight of at least 0 per row")
    held = editable.held_back(np.arange(rows) if classes is None else classes[y.numpy()])
    if not (held is None or (isinstance(held, str) and held == "unknown")):
        places = np.asarray(held)
        inside = places.dtype.kind == "i" and bool(((places >= 0) & (places < rows)).all())
        _require(inside, "held_back must be None, 'unknown' or row numbers")
    l2 = editable.l2(rows, float(rows))
    _require(
        l2 is None or (l2.shape == (size,) and bool((l2 >= 0).all())),
        "l2 must be None or have shape (D,) and no entry below 0",
    )


def _labels(z: Tensor) -> Tensor:
    return z > 0 if z.ndim == 2 else z.argmax(-1)


def _direction(theta: Tensor, seed: int = 0) -> Tensor:
    """A random direction of about the length of theta."""
    r = _random(theta, seed)
    return r * (theta.norm() + 1) / r.norm()


def _random(like: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(f"{message}.")


def _close(
    what: str,
    found: Tensor,
    expected: Tensor,
    tolerance: dict[torch.dtype, float],
    scale: Tensor | None = None,
) -> None:
    """Raise unless values agree within a tolerance, relative to the largest of ``scale``."""
    _require(
        found.shape == expected.shape,
        f"{what}: the shape must be {tuple(expected.shape)}, got {tuple(found.shape)}",
    )
    size = float((expected if scale is None else scale).abs().max())
    off = float((found.double() - expected.double()).abs().max())
    exact = found.dtype == expected.dtype == torch.float64
    limit = tolerance[torch.float64 if exact else torch.float32] * size
    _require(off <= limit, f"{what}: off by {off:.2e}, more than {limit:.2e}")
