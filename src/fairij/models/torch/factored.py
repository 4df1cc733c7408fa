"""Jacobians in factors, for parameters of linear layers.

If a forward pass uses a layer ``a = W x + b`` once, the Jacobian of a row is ``dz/dW = d x^T`` and
``dz/db = d``, with ``d = dz/da``. So inputs ``x`` and slopes ``d`` of a batch replace its graph. A
product with ``J`` is one matrix product per layer and needs no second derivative. Layers below
the first edited one run only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from fairij.models.base import Factors
from fairij.models.torch.autograd import KEPT, Function, Graph
from fairij.models.torch.batches import bytes_of
from fairij.models.torch.matmul import Scratch, gathered, linear

MOST_OUTPUTS = 16  # each output needs a backward pass and its own slopes
Use = tuple[int | None, int | None, Tensor, Tensor]  # of a layer: weight, bias, input, result


class NotFactoredError(Exception):
    """An edited parameter is not used by exactly one call of a linear layer."""


@dataclass(frozen=True)
class Layer:
    """A linear layer on one batch of n rows, applied at T places of each (one in an MLP)."""

    weight: int | None  # its place among the edited parameters; None if it is not edited
    bias: int | None
    inputs: Tensor  # x, (n T, in)
    slopes: Tensor  # d, (n, T out), or (n, C, T out) if the model has C outputs

    def jvp(self, direction: Sequence[Tensor], scratch: Scratch) -> Tensor:
        shift = None if self.bias is None else direction[self.bias]
        if self.weight is not None:
            moved = linear(self.inputs, direction[self.weight], shift, scratch)
        else:
            assert shift is not None
            moved = shift.repeat(len(self.inputs), 1)
        moved = moved.view(self.slopes.shape[0], -1)  # (n, T out)
        if self.slopes.ndim == 2:
            return moved.mul_(self.slopes).sum(1)
        return (self.slopes @ moved[:, :, None])[..., 0]

    def vjp(self, weights: Tensor, scratch: Scratch) -> dict[int, Tensor]:
        if self.slopes.ndim == 2:
            room = scratch.like(self.slopes, *self.slopes.shape)
            pulled = torch.mul(self.slopes, weights[:, None], out=room)
        else:
            pulled = (weights[:, None] @ self.slopes)[:, 0]
        pulled = pulled.reshape(self.inputs.shape[0], -1)  # (n T, out)
        pieces = {} if self.weight is None else {self.weight: gathered(pulled, self.inputs)}
        return pieces if self.bias is None else pieces | {self.bias: pulled.sum(0)}

    def row_squares(self) -> Tensor:
        """``|J_n|^2`` of every row, ``(n,)``; an upper bound if there are several places."""
        n, places = len(self.slopes), len(self.inputs) // len(self.slopes)
        slopes = self.slopes.flatten(1).norm(dim=1).square()
        by_bias = 0 if self.bias is None else places
        if self.weight is None:
            return slopes * by_bias
        return slopes * (self.inputs.reshape(n, -1).norm(dim=1).square() + by_bias)

    def by_place(self) -> tuple[Tensor, Tensor]:
        """``x`` ``(n, T, in)`` and ``d`` ``(n, C, T, out)``."""
        n, places = len(self.slopes), len(self.inputs) // len(self.slopes)
        slopes = self.slopes.view(n, -1, places, self.slopes.shape[-1] // places)
        return self.inputs.view(n, places, -1), slopes

    def rows(self) -> dict[int, Tensor]:
        """The Jacobian of every row by parameter, each ``(n, C, size)``."""
        inputs, slopes = self.by_place()
        pieces = {}
        if self.weight is not None:
            pieces[self.weight] = torch.einsum("ncto,nti->ncoi", slopes, inputs).flatten(2)
        return pieces if self.bias is None else pieces | {self.bias: slopes.sum(2)}

    def factors(self, places: Sequence[slice]) -> Factors:
        """With the places of all parameters in theta."""
        inputs, slopes = self.by_place()
        weight = None if self.weight is None else places[self.weight]
        bias = None if self.bias is None else places[self.bias]
        return Factors(weight, bias, inputs[..., :0] if weight is None else inputs, slopes)


class FactoredGraph:
    """The products of `Graph`, computed from the factors of one batch."""

    def __init__(
        self, function: Function, parameters: Sequence[Tensor], scratch: Scratch | None = None
    ) -> None:
        self.function, self.parameters = function, list(parameters)
        self._scratch = scratch or Scratch()
        with torch.enable_grad(), _Uses(self.parameters) as found:
            z = function(self.parameters)
        self.outputs = z.detach()
        self.layers = _layers(z, found.uses, len(self.parameters))

    def vjp(self, weights: Tensor) -> list[Tensor]:
        return _in_order([layer.vjp(weights, self._scratch) for layer in self.layers])

    def jvp(self, direction: Sequence[Tensor]) -> Tensor:
        first, *others = (layer.jvp(direction, self._scratch) for layer in self.layers)
        return sum(others, first)

    def rows(self) -> Tensor:
        """The Jacobian of every row, ``(n, C, D)``."""
        pieces = _in_order([layer.rows() for layer in self.layers])
        return torch.cat([piece.flatten(2) for piece in pieces], -1)

    def row_squares(self) -> Tensor:
        first, *others = (layer.row_squares() for layer in self.layers)
        return sum(others, first)

    def second_order(self, weights: Tensor, direction: Sequence[Tensor]) -> list[Tensor]:
        graph = Graph(self.function, self.parameters, "double_backward")
        return graph.second_order(weights, direction)

    def held_bytes(self, shared: Sequence[Tensor]) -> int:
        """Bytes of the factors, without those of the ``shared`` tensors."""
        known = {t.untyped_storage().data_ptr() for t in shared}
        factors = [t for layer in self.layers for t in (layer.inputs, layer.slopes)]
        own = {t.data_ptr(): t for t in factors if t.untyped_storage().data_ptr() not in known}
        return bytes_of(own.values())


def row_products(graphs: Sequence[FactoredGraph]) -> Tensor | None:
    """``J J^T``, ``(N, N)``, over all batches; None unless there is one output and one place.

    The inner product of ``d x^T`` and ``e y^T`` is ``(d e) (x y)``, so no Jacobian is formed.
    """
    layers = _whole_layers(graphs)
    if layers is None:
        return None
    total = torch.zeros((), device=graphs[0].outputs.device)
    for layer in layers:
        if layer.slopes.ndim > 2 or len(layer.slopes) != len(layer.inputs):
            return None
        among_inputs = layer.inputs @ layer.inputs.T if layer.weight is not None else 0.0
        among_slopes = layer.slopes @ layer.slopes.T
        total = total + among_slopes * (among_inputs + (layer.bias is not None))
    return total


def factors(graphs: Sequence[FactoredGraph]) -> list[Factors] | None:
    """The factors of all batches; None if the batches use other layers, or at other places."""
    sizes = [p.numel() for p in graphs[0].parameters]
    ends = list(accumulate(sizes))
    places = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    layers = _whole_layers(graphs)
    return None if layers is None else [layer.factors(places) for layer in layers]


def _whole_layers(graphs: Sequence[FactoredGraph]) -> list[Layer] | None:
    """Each layer on the rows of all batches; None if the batches differ in shape."""
    layers = [{(layer.weight, layer.bias): layer for layer in graph.layers} for graph in graphs]
    found = []
    for weight, bias in layers[0]:
        parts = [batch.get((weight, bias)) for batch in layers]
        whole = [part for part in parts if part is not None]
        shapes = {(part.slopes.shape[1:], len(part.inputs) // len(part.slopes)) for part in whole}
        if len(whole) < len(parts) or len(shapes) > 1:
            return None
        if len(whole) > 1:
            inputs = torch.cat([part.inputs for part in whole])
            whole = [Layer(weight, bias, inputs, torch.cat([part.slopes for part in whole]))]
        found += whole
    return found


def comes_in_factors(function: Function, parameters: Sequence[Tensor]) -> bool:
    """Whether the factors give ``J^T u``; not if a layer mixes rows or is written to in place."""
    try:
        factored = FactoredGraph(function, parameters)
        graph = Graph(function, parameters, "differences")
        generator = torch.Generator().manual_seed(0)
        weights = torch.randn(graph.outputs.shape, generator=generator).to(graph.outputs)
        found, expected = factored.vjp(weights), graph.vjp(weights)
    except (NotFactoredError, RuntimeError):
        return False
    tolerance = torch.finfo(expected[0].dtype).eps ** 0.5
    return all(
        bool((f - e).norm() <= tolerance * e.norm()) for f, e in zip(found, expected, strict=True)
    )


class _Uses(TorchFunctionMode):
    """Collects the calls of `linear` that use edited parameters."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        super().__init__()
        self._place = {id(p): i for i, p in enumerate(parameters)}
        self.uses: list[Use] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not F.linear:
            return func(*args, **(kwargs or {}))
        given = dict(zip(("input", "weight", "bias"), args, strict=False)) | (kwargs or {})
        if any(isinstance(t, Tensor) and t.requires_grad for t in given.values()):
            out = func(*args, **(kwargs or {}))
        else:  # below it, no slopes are asked for
            out = linear(given["input"], given["weight"], given.get("bias"))
        weight, bias = (self._place.get(id(given.get(name))) for name in ("weight", "bias"))
        if weight is not None or bias is not None:
            if not out.requires_grad:
                out.requires_grad_()  # so that its slopes can be asked for
            self.uses.append((weight, bias, given["input"].detach(), out))
        return out


def _layers(z: Tensor, uses: list[Use], n_parameters: int) -> list[Layer]:
    places = [place for use in uses for place in use[:2] if place is not None]
    if sorted(places) != list(range(n_parameters)):
        raise NotFactoredError("Not every edited parameter belongs to one linear layer.")
    n, outputs = len(z), [z] if z.ndim == 1 else list(z.unbind(1))
    results = [use[3] for use in uses]
    if len(outputs) > MOST_OUTPUTS or any(len(result) != n for result in results):
        raise NotFactoredError("There are too many outputs, or they are not in row order.")
    slopes = [torch.autograd.grad(output.sum(), results, **KEPT) for output in outputs]
    layers = []
    for (weight, bias, inputs, _), of_outputs in zip(uses, zip(*slopes, strict=True), strict=True):
        flat = [slope.reshape(n, -1) for slope in of_outputs]
        together = flat[0] if z.ndim == 1 else torch.stack(flat, 1)
        layers.append(Layer(weight, bias, inputs.flatten(0, -2), together))
    return layers


def _in_order(parts: list[dict[int, Tensor]]) -> list[Tensor]:
    pieces = {place: piece for part in parts for place, piece in part.items()}
    return [pieces[place] for place in range(len(pieces))]
