"""``J r`` and ``J^T u`` of a torch function on one batch, with a kept autograd graph.

``u -> J^T u`` is itself a graph that can be differentiated in ``u``, and its derivative is ``J``.
So one kept graph gives both products, and a conjugate-gradient step runs no forward pass. If an
operator has no second derivative, forward mode is used; if it has no forward mode either, central
differences (relative error below 1e-2 in float32 and 1e-6 in float64).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import grad

from fairij.errors import InvalidInputError

JvpMode = Literal["factored", "double_backward", "forward", "differences"]
# how far <u, J r> and <J^T u, r> may lie apart in each mode, in the order of trial
MODES: dict[JvpMode, float] = {"double_backward": 1e-3, "forward": 1e-3, "differences": 0.1}
KEPT: dict[str, Any] = {"retain_graph": True, "materialize_grads": True}
Function = Callable[[Sequence[Tensor]], Tensor]  # parameters -> outputs of one batch


class Graph:
    """The autograd graph of one batch at fixed parameters."""

    def __init__(self, function: Function, parameters: Sequence[Tensor], mode: JvpMode) -> None:
        self.function = function
        self.parameters = [p.detach().requires_grad_() for p in parameters]
        self.mode = mode
        with torch.enable_grad():
            self._z = function(self.parameters)
        self._pull: tuple[Tensor, ...] | None = None

    def prepare_jvp(self) -> None:
        """Build the graph of ``u -> J^T u``, if this mode needs it."""
        if self.mode == "double_backward" and self._pull is None:
            with torch.enable_grad():
                self._u = torch.zeros_like(self._z, requires_grad=True)
                self._pull = grad(self._z, self.parameters, self._u, create_graph=True, **KEPT)

    @property
    def outputs(self) -> Tensor:
        return self._z.detach()

    def vjp(self, weights: Tensor) -> list[Tensor]:
        return list(grad(self._z, self.parameters, weights, **KEPT))

    def jvp(self, direction: Sequence[Tensor]) -> Tensor:
        self.prepare_jvp()
        if self._pull is not None:
            return grad(self._pull, self._u, list(direction), **KEPT)[0]
        fixed = [p.detach() for p in self.parameters]
        if self.mode == "forward":
            return torch.func.jvp(lambda *p: self.function(p), tuple(fixed), tuple(direction))[1]
        return central_difference(self.function, fixed, direction)

    def second_order(self, weights: Tensor, direction: Sequence[Tensor]) -> list[Tensor]:
        with torch.enable_grad():
            slope = grad(self._z, self.parameters, weights, create_graph=True, **KEPT)
        pairs = [(s, d) for s, d in zip(slope, direction, strict=True) if s.requires_grad]
        return list(grad([s for s, _ in pairs], self.parameters, [d for _, d in pairs], **KEPT))


def central_difference(
    function: Function, at: Sequence[Tensor], direction: Sequence[Tensor]
) -> Tensor:
    """``(z(theta + h r) - z(theta - h r)) / 2h``, h near the cube root of the rounding error."""
    length = torch.stack([d.norm() for d in direction]).norm()
    if length == 0:
        return torch.zeros_like(function(at))
    size = torch.stack([p.norm() for p in at]).norm()
    h = torch.finfo(at[0].dtype).eps ** (1 / 3) * (1 + size) / length
    with torch.no_grad():
        ahead = function([p + h * d for p, d in zip(at, direction, strict=True)])
        behind = function([p - h * d for p, d in zip(at, direction, strict=True)])
    return (ahead - behind) / (2 * h)


def working_mode(
    function: Function, parameters: Sequence[Tensor], modes: Mapping[JvpMode, float] = MODES
) -> JvpMode:
    """The first mode that runs on this function and passes ``<u, J r> = <J^T u, r>``."""
    generator = torch.Generator().manual_seed(0)

    def random_like(t: Tensor) -> Tensor:
        return torch.randn(t.shape, generator=generator, device="cpu").to(t)

    for mode, tolerance in modes.items():
        try:
            graph = Graph(function, parameters, mode)
            u = random_like(graph.outputs)
            r = [random_like(p) for p in parameters]
            moved = graph.jvp(r)
            back = sum(float((g * d).sum()) for g, d in zip(graph.vjp(u), r, strict=True))
        except (RuntimeError, NotImplementedError):
            continue
        off = abs(float((u * moved).sum()) - back)
        if off <= tolerance * float(u.norm()) * max(float(moved.norm()), 1e-30):
            return mode
    raise InvalidInputError(
        "The module's backward pass must match its forward pass, but its gradients disagree with "
        "finite differences. A custom autograd function with a wrong or straight-through backward "
        "causes this: such a module cannot be edited by its gradients."
    )


def saved_bytes(build: Callable[[], Any], shared: Sequence[Tensor] = ()) -> int:
    """Bytes that the graphs made by ``build`` keep alive, without the ``shared`` tensors."""
    known = {t.data_ptr() for t in shared}
    seen: dict[int, int] = {}
    # A graph that holds what it made itself is never freed, so it holds numbers of tensors.
    saved: list[Tensor] = []

    def pack(t: Tensor) -> int:
        if t.data_ptr() not in known:
            seen[t.data_ptr()] = t.numel() * t.element_size()
        saved.append(t)
        return len(saved) - 1

    with torch.autograd.graph.saved_tensors_hooks(pack, saved.__getitem__):
        build()
    saved.clear()
    return sum(seen.values())
