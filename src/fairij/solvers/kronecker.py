"""A guide for conjugate gradients on networks: the curvature of each linear layer as one product.

The Jacobian of a row through a layer is the outer product of a slope ``d`` of the output and the
layer's input ``x``, with a one for the bias. So the curvature of the layer's parameters is a sum of
Kronecker products, ``sum m (d d^T) x (x x^T)``. One product of two small sums stands for it, as in
KFAC, but weighted by the curvature ``m`` of each row: ``G = sum m d d^T``, ``A = sum m x x^T``.
With ``G = U g U^T`` and ``A = V a V^T``, scaled to the trace of the whole::

    (G x A + shift)^-1 = (U x V) diag(1 / (g a^T + shift)) (U x V)^T

It is rough, so a few steps with it do more than as many without, and many steps do less. Therefore
it serves the loose solves on a sample of the rows, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fairij.method.curvature import Curvature
from fairij.models.base import Factors
from fairij.models.torch.matmul import gathered
from fairij.solvers.base import InverseDefaults, Solution

FLOOR = 4.0  # times the damping: where it decides, all directions are best left nearly alike
FACTORED = "factored"  # the mode of models that have tried it already
ROOTS = 12  # times n^3: operations of an eigendecomposition


@dataclass(frozen=True)
class Block:
    """``(G x A + shift)^-1`` for a layer's parameters: a matrix, with the bias as last column."""

    places: list[slice]  # of weight and bias in theta, as far as there are any
    U: Tensor  # (out, out)
    V: Tensor  # (in + 1, in + 1); (in, in) without a bias
    sizes: Tensor  # g a^T, (out, in + 1)

    @classmethod
    def of(cls, layer: Factors, root: Tensor) -> Block:
        (g, U), (a, V) = map(torch.linalg.eigh, _sums(layer, root))
        places = [place for place in (layer.weight, layer.bias) if place is not None]
        sizes = g.clamp_min(0)[:, None] * a.clamp_min(0)
        return cls(places, U.to(root), V.to(root), sizes.to(root))

    def solve(self, b: Tensor, shift: Tensor, into: Tensor) -> None:
        """Put the entries of this layer into ``into``, ``(D,)``."""
        matrix = torch.cat([b[place].view(len(self.U), -1) for place in self.places], 1)
        turned = self.U.T @ matrix @ self.V
        found = self.U @ (turned / (self.sizes + shift)) @ self.V.T
        start = 0
        for place in self.places:
            width = (place.stop - place.start) // len(self.U)
            into[place] = found[:, start : start + width].flatten()
            start += width


class KroneckerInverse(InverseDefaults):
    """An approximation of ``(H + damping I)^-1``, layer by layer."""

    def __init__(self, blocks: list[Block], l2: Tensor, damping: float) -> None:
        self.damping, self._blocks, self._l2 = damping, blocks, l2

    @classmethod
    def of(cls, curvature: Curvature, damping: float) -> Self | None:
        """None if the model does not come in factors, or if they cost more than a product."""
        o = curvature.objective
        layers = o.model.factors()
        if layers is None or curvature.traces(slice(0, 1)) is None:
            return None
        if ROOTS * sum(n**3 for layer in layers for n in layer.sizes) > 4 * len(o.y) * len(o.theta):
            return None
        root = curvature.roots(slice(None)) * o.weights.sqrt()[:, None, None]  # (n, C, E)
        return cls([Block.of(layer, root) for layer in layers], o.l2.mean(), damping)

    def with_damping(self, damping: float) -> KroneckerInverse:
        return KroneckerInverse(self._blocks, self._l2, damping)

    def solve(self, b: Tensor, *, tolerance: float | None = None) -> Solution:
        """Solve for one right-hand side, ``(D,)``."""
        x, shift = torch.zeros_like(b), FLOOR * (self.damping + self._l2)
        for block in self._blocks:
            block.solve(b, shift, x)
        return Solution(x, 0, lambda: torch.full((1,), torch.nan))


def comes_in_factors(curvature: Curvature) -> bool:
    """Whether the model's Jacobians are outer products; tried on one row if nothing says so."""
    o = curvature.objective
    if o.model.mode == FACTORED:
        return True
    one = o.model.restrict(torch.zeros(1, dtype=torch.long, device=o.theta.device))
    return one.factors() is not None


def _sums(layer: Factors, root: Tensor) -> tuple[Tensor, Tensor]:
    """``G``, and ``A`` divided by the sum of the weights, in float64."""
    (n, C, T, out), E = layer.slopes.shape, root.shape[2]
    m = root.square().sum((1, 2))
    inputs = layer.inputs  # (n, T, in)
    if layer.bias is not None:
        inputs = torch.cat([inputs, inputs.new_ones(n, T, 1)], -1)
    inputs = (inputs * m.sqrt()[:, None, None]).flatten(0, 1)
    is_single = C == E == 1  # a product with a number is quicker than one with a small matrix
    slopes = layer.slopes * root[..., None] if is_single else root.mT @ layer.slopes.flatten(2)
    slopes = slopes.reshape(-1, out)
    G, A = gathered(slopes, slopes), gathered(inputs, inputs)
    return G.double(), A.double() / (T * m.sum().double()).clamp_min(torch.finfo(m.dtype).tiny)
