"""A linear head as the only part that is edited: what it reads is computed once and kept.

Then ``z = S (W x + b)`` with ``x`` from the frozen part, so outputs of every edit follow without
another pass through the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fairij.models.base import JacobianDefaults
from fairij.models.constant import ConstantLinearization
from fairij.models.text.tokens import Tokens
from fairij.models.torch.factored import FactoredGraph, Layer, NotFactoredError

MOST_PARAMETERS = 2  # weight and bias of one layer
TRIED = (1.0, 10.0)  # lengths of steps, of the parameters' own, along which outputs must be linear


class OfTokens(Protocol):
    """The part of a classifier on tokens that is needed here."""

    memory_limit: int
    parameter_names: list[str]

    @property
    def theta(self) -> Tensor: ...

    def split(self, theta: Tensor) -> list[Tensor]: ...

    def call(self, parameters: Sequence[Tensor], batch: Tokens) -> Tensor: ...


@dataclass(frozen=True)
class HeadJacobian(JacobianDefaults):
    """``J r = S (R x + b)`` for ``r = (R, b)``; either of the two may be absent."""

    X: Tensor  # (N, F), what the layer reads; F = 0 if its weight is not edited
    mix: Tensor  # S, (C, O): how the model's outputs are made of the layer's
    bias: bool
    single: bool  # outputs are (N,), not (N, 1)

    def times(self, r: Tensor) -> Tensor:
        layer = self.X.new_zeros(len(self.X), self.mix.shape[1])
        size = self._size
        if size:
            layer = self.X @ r[:size].to(self.X).view(-1, self.X.shape[1]).T
        if self.bias:
            layer = layer + r[size:].to(self.X)
        z = layer @ self.mix.T
        return z[:, 0] if self.single else z

    def transposed_times(self, u: Tensor) -> Tensor:
        pulled = u.to(self.X).view(len(u), -1) @ self.mix  # (N, O)
        R = (pulled.T @ self.X).reshape(-1)
        return torch.cat([R, pulled.sum(0)]) if self.bias else R

    def rows(self, index: Tensor) -> Tensor:
        X = self.X[index.to(self.X.device)]
        rows = torch.einsum("co,bf->bcof", self.mix, X).flatten(2)  # (B, C, O F)
        return torch.cat([rows, self.mix.expand(len(X), -1, -1)], -1) if self.bias else rows

    def row_squares(self) -> Tensor:
        return self.mix.square().sum() * (self.X.square().sum(1) + self.bias)

    def take(self, index: Tensor) -> HeadJacobian:
        return HeadJacobian(self.X[index.to(self.X.device)], self.mix, self.bias, self.single)

    def held_bytes(self) -> int:
        return self.X.numel() * self.X.element_size()

    @property
    def _size(self) -> int:
        return self.mix.shape[1] * self.X.shape[1]


@dataclass(frozen=True)
class OneLayer:
    """A linear head on all rows."""

    kept: ConstantLinearization
    theta: Tensor

    def linearize(self, *, keep: bool) -> ConstantLinearization:
        return self.kept

    def evaluator(self) -> ConstantLinearization:
        return self.kept

    def outputs(self, theta: Tensor) -> Tensor:
        return self.kept.moved(theta - self.theta).outputs

    def restrict(self, index: Tensor) -> OneLayer:
        return OneLayer(self.kept.restrict(index), self.theta)


def linear_head(
    model: OfTokens, batches: Sequence[Tokens], rows: int
) -> ConstantLinearization | None:
    """The model on all rows, if only one linear layer is edited and outputs are linear in it.

    None for other models, and if what the layer reads takes more than the memory limit.
    """
    if len(model.parameter_names) > MOST_PARAMETERS:
        return None
    parameters = model.split(model.theta)
    outputs: list[Tensor] = []
    inputs: list[Tensor] = []
    mix: Tensor | None = None
    layer: Layer | None = None
    for batch in batches:
        try:
            graph = FactoredGraph(lambda p, batch=batch: model.call(p, batch), parameters)  # type: ignore[misc]
        except (NotFactoredError, RuntimeError):
            return None
        found = _one_place(graph)
        if found is None:
            return None
        layer, X, own = found
        if mix is None:
            mix = own
            if X.shape[1] * rows * X.element_size() > model.memory_limit:
                return None
            if not _is_linear(model, batch, graph):
                return None
        if not torch.equal(own, mix):
            return None
        outputs.append(graph.outputs)
        inputs.append(X)
    if mix is None or layer is None:
        return None
    z = torch.cat(outputs)
    return ConstantLinearization(
        z, HeadJacobian(torch.cat(inputs), mix, layer.bias is not None, z.ndim == 1)
    )


def _one_place(graph: FactoredGraph) -> tuple[Layer, Tensor, Tensor] | None:
    """The layer, what it reads of each row (n, F), and S; None unless S is the same for all rows.

    A layer may be applied to every token. Then outputs must read it at one of them.
    """
    if len(graph.layers) != 1:
        return None
    layer = graph.layers[0]
    if layer.weight is not None and layer.bias is not None and layer.weight > layer.bias:
        return None
    inputs, slopes = layer.by_place()  # (n, T, in), (n, C, T, out)
    read = slopes.abs().sum((1, 3))  # (n, T)
    if bool(((read > 0).sum(1) != 1).any()):
        return None
    each, place = torch.arange(len(read), device=read.device), read.argmax(1)
    mixes = slopes[each, :, place]  # (n, C, out)
    if not bool((mixes == mixes[0]).all()):
        return None
    X = inputs[each, place].detach()
    return layer, X[:, :0] if layer.weight is None else X.clone(), mixes[0].clone()


def _is_linear(model: OfTokens, batch: Tokens, graph: FactoredGraph) -> bool:
    """Whether outputs move by ``J r``, for a short and for a long step."""
    theta, generator = model.theta, torch.Generator().manual_seed(0)
    length = float(theta.norm()) or 1.0
    for times in TRIED:
        step = torch.randn(len(theta), generator=generator).to(theta)
        step *= times * length / step.norm()
        with torch.no_grad():
            moved = model.call(model.split(theta + step), batch) - graph.outputs
            expected = graph.jvp(model.split(step))
        off, size = float((moved - expected).norm()), float(expected.norm())
        if not off <= torch.finfo(theta.dtype).eps ** 0.5 * max(size, float(moved.norm())):
            return False
    return True
