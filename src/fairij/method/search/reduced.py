"""A search in few directions, for models that are linear in their parameters.

The path of a constrained search bends little: nearly all of it lies in the directions that
conjugate gradients meet first, ``G, H G, H^2 G, ...`` with the gradients ``G`` of the gaps. In
their span the outputs are ``z + T c``, with a small table ``T = J B`` made once. Each Newton step
then costs one pass over ``T``, and is solved exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairij.errors import InvalidInputError
from fairij.method.curvature import GGN
from fairij.method.objective import Objective
from fairij.method.search.base import SearchContext, SignedGaps
from fairij.models.base import JacobianDefaults
from fairij.models.constant import ConstantLinearization
from fairij.solvers.base import Inverse
from fairij.solvers.exact import Exact

NOTHING_NEW = 1e-8  # of a direction, beside the earlier ones
EACH = 5  # directions for each gap, at least


@dataclass(frozen=True)
class Table(JacobianDefaults):
    """A dense Jacobian of few columns, ``(N, m)`` or ``(N, C, m)``."""

    values: Tensor

    def times(self, r: Tensor) -> Tensor:
        return self.values @ r

    def transposed_times(self, u: Tensor) -> Tensor:
        return u.reshape(-1) @ self.values.flatten(0, -2)

    def rows(self, index: Tensor) -> Tensor:
        found = self.values[index]
        return found[:, None] if found.ndim == 2 else found

    def take(self, index: Tensor) -> Table:
        return Table(self.values[index])

    def gram(self, middle: Tensor) -> Tensor:
        values = self.values.double()
        if values.ndim == 2:
            return values.T @ (middle[:, 0] * values)
        return torch.einsum("nci,nij->cj", values.mT, middle @ values)


def is_linear(o: Objective) -> bool:
    """Whether outputs are linear in the parameters, without a penalty on them."""
    return o.model.with_outputs(o.model.outputs) is not None and not bool((o.l2 != 0).any())


def reduced(context: SearchContext, directions: int) -> tuple[SearchContext, Tensor]:
    """The context with ``c`` in place of ``theta_0 + B c``, and ``B``, ``(D, m)``."""
    o = context.objective
    if not is_linear(o):
        raise InvalidInputError(
            "`directions` must be None, unless the model is linear in its parameters and its loss "
            "has no penalty, as that of a tree ensemble in the memory of one process; this one is "
            "not. Use `Constrained(directions=None)`."
        )
    basis = spanned(context, directions)
    table = Table(torch.stack([o.model.jvp(b) for b in basis.T], -1))
    small = Objective(
        ConstantLinearization(o.model.outputs, table),
        o.y,
        o.loss,
        o.weights,
        o.theta.new_zeros(basis.shape[1]),
        o.l2.new_zeros(()),
    )

    def signed_at(there: Objective, move: Tensor) -> SignedGaps:
        if context.of_one_table:
            return context.signed_at(there, move)
        along = basis @ move
        model = o.model.with_outputs(there.model.outputs)
        assert model is not None  # as asked above
        full = context.signed_at(replace(o, model=model, theta=o.theta + along), along)
        return replace(full, pull=lambda: basis.T @ full.gradients)

    def inverse_of(there: Objective, damping: float, _: int, last: Inverse | None) -> Inverse:
        return Exact().prepare(GGN(there), damping)

    found = replace(
        context,
        objective=small,
        signed_at=signed_at,
        inverse_of=inverse_of,
        within=lambda move: move,  # bounds hold for whole moves: see `Constrained.propose`
    )
    return found, basis


def spanned(context: SearchContext, most: int) -> Tensor:
    """Orthonormal columns that span ``G, H G, H^2 G, ...``, ``(D, m)``; see `EACH`."""
    o, curvature = context.objective, GGN(context.objective)
    waiting = list(context.signed_at(o, torch.zeros_like(o.theta)).gradients.T)
    found, most = o.theta.new_zeros(0, len(o.theta)), max(most, EACH * len(waiting))
    while waiting and len(found) < min(most, len(o.theta)):
        v = waiting.pop(0)
        size = v.norm()
        for _ in range(2):  # twice is enough to be orthogonal to working precision
            v = v - (found @ v) @ found
        if not v.norm() > NOTHING_NEW * size:
            continue
        v = v / v.norm()
        found = torch.cat([found, v[None]])
        waiting.append(curvature.product(v))
    return found.T
