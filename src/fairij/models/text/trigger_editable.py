"""Models with trigger tokens, edited through triggers and head.

There are few such parameters, so the Jacobian of every row fits in memory, and many edits can be
estimated quickly; the model runs for a single one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import functional_call, jacrev, vmap

from fairij.data.rows import take_rows
from fairij.errors import InvalidInputError
from fairij.models.base import Evaluator, EvaluatorDefaults, JacobianDefaults, Linearization
from fairij.models.constant import ConstantLinearization
from fairij.models.recent import Recent
from fairij.models.text.tokens import Tokens, longest_first
from fairij.models.text.transformers import TransformersEditable
from fairij.models.text.triggers import TriggerTokens
from fairij.models.torch.batches import retried
from fairij.models.torch.outputs import canonical_outputs

Screening = Literal["linear", "exact"]


class TriggerEditable(TransformersEditable):
    """`TriggerTokens` seen through triggers and head.

    A Jacobian above ``memory_limit`` is not kept; products then use autograd graphs. ``screening``
    says how a search judges its many candidates: "linear" estimates them by the kept Jacobian of
    the validation rows and runs the model for the best one, "exact" runs the model for each. With
    "linear" and ``validation_use="cross_fit"`` the model runs only in the final audit.
    """

    def __init__(
        self, module: TriggerTokens, *, screening: Screening = "linear", **options: Any
    ) -> None:
        super().__init__(module, **options)
        self._screening = screening
        self._mixed = False  # the module handles its precisions itself
        self._added = len(module.triggers)
        self._jacobians: Recent[TriggerLinearization] = Recent(2)  # training and validation rows

    def look_at(self, X: Any) -> None:
        super().look_at(X)
        if self.outputs_are == "probabilities":
            raise InvalidInputError(
                "The head of a model with triggers must return logits, but it returns "
                "probabilities: take the sigmoid or softmax off its end, as in head = head[:-1]."
            )

    def linearize(self, X: Any, *, keep: bool = True) -> Linearization:  # type: ignore[override]
        return self._kept(X) or super().linearize(X, keep=keep)

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        """The outputs that came with the Jacobian, if it is kept; else a forward pass."""
        known = self._jacobians.find(X, self.theta if theta is None else theta.to(self.theta))
        return super().outputs(X, theta) if known is None else known.outputs

    def _kept(self, X: Any) -> TriggerLinearization | None:
        """The rows with their Jacobian, kept for two tables; None if it does not fit."""
        tokens = self.ready(X)
        if self._jacobians.find(X, self.theta) is None and not self._fits(tokens):
            return None
        return self._jacobians.get(X, lambda: self.per_row(tokens), self.theta)

    def at(self, by: Tensor) -> TriggerEditable:
        """The same model with its parameters moved."""
        edited: Any = self.edited(self.theta + by)
        limits = {"batch_size": self._batch_size, "memory_limit": self.memory_limit}
        names, screening = self.parameter_names, self._screening
        return TriggerEditable(edited, screening=screening, parameters=names, **limits)

    def by_graphs(self, tokens: Tokens) -> Linearization:
        """The rows linearised by autograd graphs, without the kept Jacobian."""
        return super().linearize(tokens, keep=False)

    def evaluator(self, X: Any) -> Evaluator:  # type: ignore[override]
        exact = super().evaluator(X)
        linear = self._kept(X) if self._screening == "linear" else None
        return exact if linear is None else ScreeningEvaluator(linear, exact)

    def _fits(self, tokens: Tokens) -> bool:
        own = all(name == "triggers" or name.startswith("head.") for name in self.parameter_names)
        with torch.no_grad():
            one = self.call(self.split(self.theta), {n: part[:1] for n, part in tokens.items()})
        size = len(tokens["input_ids"]) * one.numel() * len(self.theta)
        return own and size * torch.finfo(self.dtype).bits // 8 <= self.memory_limit

    def per_row(self, tokens: Tokens) -> TriggerLinearization:
        """Outputs and Jacobian of every row, in smaller batches if memory runs out."""
        return retried(lambda: self._per_row(tokens), lambda: self.halve_rows(tokens))

    def _per_row(self, tokens: Tokens) -> TriggerLinearization:
        order = longest_first(tokens)
        pairs = [self._batch_jacobian(batch) for batch in self.batches(take_rows(tokens, order))]
        z = torch.cat([z for z, _ in pairs])[torch.argsort(order)]
        array = torch.empty(len(z), *pairs[0][1].shape[1:], dtype=self.dtype, device=self.device)
        start = 0
        while pairs:  # freed one by one, so that memory holds only one whole copy
            _, part = pairs.pop(0)
            array[order[start : start + len(part)]] = part
            start += len(part)
        return TriggerLinearization(z, DenseJacobian(array, z.ndim == 1), self, tokens)

    def _batch_jacobian(self, batch: Tokens) -> tuple[Tensor, Tensor]:
        """Outputs and Jacobian ``(n, C, D)`` of one batch."""
        # Each row has its own copy of the triggers, so one backward pass gives every row's slopes.
        module: Any = self._module
        triggers = module.triggers.detach()
        prompts = triggers.expand(len(batch["input_ids"]), -1, -1).clone().requires_grad_()
        with torch.enable_grad():
            features = module.features(batch["input_ids"], batch.get("attention_mask"), prompts)
        vectors = features.detach()
        head = {n: p.detach() for n, p in module.head.named_parameters()}

        def outputs(weights: dict[str, Tensor], vector: Tensor) -> Tensor:
            return functional_call(module.head, weights, (vector[None],))[0].reshape(-1)

        by_head, by_vector = vmap(jacrev(outputs, argnums=(0, 1)), (None, 0))(head, vectors)
        with torch.no_grad():
            z = canonical_outputs(module.head(vectors), len(vectors))
        parts = {f"head.{name}": part.flatten(2) for name, part in by_head.items()}
        if "triggers" in self.parameter_names:
            slopes = by_vector.unbind(1)
            pulled = [
                torch.autograd.grad(features, prompts, slope, retain_graph=i + 1 < len(slopes))[0]
                for i, slope in enumerate(slopes)
            ]
            parts["triggers"] = torch.stack(pulled, 1).flatten(2)
        return z, torch.cat([parts[name] for name in self.parameter_names], -1)


@dataclass(frozen=True)
class DenseJacobian(JacobianDefaults):
    """``J`` as one array, ``(N, C, D)``."""

    array: Tensor
    single: bool  # outputs are (N,), not (N, 1)

    def times(self, r: Tensor) -> Tensor:
        moved = self.array @ r.to(self.array)
        return moved[:, 0] if self.single else moved

    def transposed_times(self, u: Tensor) -> Tensor:
        return u.reshape(-1).to(self.array) @ self.array.flatten(0, 1)

    def rows(self, index: Tensor) -> Tensor:
        return self.array[index]

    def row_squares(self) -> Tensor:
        return torch.linalg.vector_norm(self.array, dim=(1, 2)) ** 2

    def take(self, index: Tensor) -> DenseJacobian:
        return DenseJacobian(self.array[index], self.single)

    def held_bytes(self) -> int:
        return self.array.numel() * self.array.element_size()


@dataclass(frozen=True)
class TriggerLinearization(ConstantLinearization):
    """Products with a kept Jacobian; ``z`` is not linear, so other terms run the model again."""

    model: TriggerEditable = field(repr=False)
    tokens: Tokens = field(repr=False)
    mode = "per_row"

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        return self.model.by_graphs(self.tokens).second_order(weights, direction)

    def moved(self, by: Tensor) -> TriggerLinearization:
        return self.model.at(by).per_row(self.tokens)  # J changes with theta

    def restrict(self, index: Tensor, *, keep: bool = False) -> TriggerLinearization:
        tokens, jacobian = take_rows(self.tokens, index), self.jacobian.take(index)
        return TriggerLinearization(self.outputs[index], jacobian, self.model, tokens)

    def with_outputs(self, outputs: Tensor) -> None:  # type: ignore[override]
        return None  # J changes with theta


@dataclass
class ScreeningEvaluator(EvaluatorDefaults):
    """Estimates many scales by a parabola; runs the model for a single one.

    The parabola is ``z + c J d + s^2 b``. Here ``b`` is what the linear estimate missed in an
    earlier run of the model, and ``s`` is the size of this step relative to that run. The run with
    the nearest ``J d`` is used: edits that drop more or fewer rows go nearly the same way.
    """

    linear: TriggerLinearization
    exact: Evaluator
    runs: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # (J d, b), the latest first
    estimates: bool = field(default=True, init=False)

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        z = self.linear.along(direction, scales)
        if not direction.any():
            return z
        if len(scales) > 1:
            return self._bent(z)
        found = self.exact.along(direction, scales)
        self._learn(z[0], found[0])
        return found

    def confirm(self, direction: Tensor, scale: float, *, everywhere: bool) -> Tensor:
        model, steps = self.linear.model, torch.tensor([scale], dtype=torch.float64)
        if everywhere:
            return self.along(direction, steps)
        z = self.linear.along(direction, steps)
        bent = self._bent(z)[0].clone()
        index = torch.nonzero(_in_doubt(bent, z[0] - self.linear.outputs))[:, 0]
        if len(index) == len(bent):
            return self.along(direction, steps)
        if len(index):
            theta = model.theta + scale * direction.to(model.theta)
            bent[index] = model.run(take_rows(self.linear.tokens, index), theta)
        self._learn(z[0], bent)
        return bent[None]

    def _learn(self, z: Tensor, found: Tensor) -> None:
        """Remember how far the model's outputs lie from the linear estimate ``z``."""
        if torch.isfinite(found).all() and torch.isfinite(z).all():
            self.runs.insert(0, (z - self.linear.outputs, found - z))

    def _bent(self, z: Tensor) -> Tensor:
        """Linear estimates of some scales, ``(S, N)`` or ``(S, N, C)``, bent as the nearest run."""
        if not self.runs:
            return z
        moved = z - self.linear.outputs
        before, bends = (torch.stack(parts) for parts in zip(*self.runs, strict=True))
        dots = moved.flatten(1) @ before.flatten(1).T  # (scales, runs)
        sizes = before.flatten(1).square().sum(1).clamp_min(torch.finfo(z.dtype).tiny)
        nearest = (sizes - 2 * dots).argmin(1)
        shares = dots.gather(1, nearest[:, None])[:, 0] / sizes[nearest]
        return z + (shares**2).view(-1, *[1] * (z.ndim - 1)) * bends[nearest]


def _in_doubt(z: Tensor, moved: Tensor) -> Tensor:
    """Which rows, ``(N,)``, would change their label if their outputs moved as far again."""
    if z.ndim == 1:
        return ~(z.abs() > moved.abs())
    first, second = z.topk(2, -1).values.unbind(-1)
    return ~(first - second > 2 * moved.abs().amax(-1))


def editable(module: Any, **options: Any) -> TransformersEditable:
    """A classifier on tokens as an `Editable`."""
    kind = TriggerEditable if isinstance(module, TriggerTokens) else TransformersEditable
    return kind(module, **options)
