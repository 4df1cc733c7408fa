"""Models with trigger tokens, edited through triggers and head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import functional_call, jacrev, vmap

from fairij.data.rows import take_rows
from fairij.models.base import Evaluator, Linearization
from fairij.models.recent import Recent
from fairij.models.text.screening import ScreeningEvaluator
from fairij.models.text.tokens import Tokens, longest_first
from fairij.models.text.transformers import TransformersEditable
from fairij.models.text.trigger_linearization import DenseJacobian, TriggerLinearization
from fairij.models.text.triggers import TriggerTokens
from fairij.models.torch.module import canonical_outputs
from fairij.models.torch.out_of_memory import retried

Screening = Literal["linear", "exact"]


class TriggerEditable(TransformersEditable):
    """`TriggerTokens` seen through triggers and head.

    Parameters
    ----------
    module : TriggerTokens
        The fitted model.
    parameters : str or sequence of str, default="trainable"
        As for any torch module: "trainable", "all", or names and patterns.
    batch_size : int or "auto", default="auto"
        Rows per batch.
    memory_limit : int, default=2**28
        Bytes of Jacobian to keep. A larger Jacobian is not kept, and products use autograd graphs
        as for any other model.
    screening : {"linear", "exact"}, default="linear"
        How a search judges its many candidates. "linear" estimates them by the kept Jacobian of
        the validation rows; "exact" runs the model for each. With "linear" the model still runs
        for the best candidate, which improves the estimates of the others; the candidate is taken
        only if it is still the best. With ``validation="cross_fit"`` the model runs only in the
        final audit.
    """

    def __init__(
        self,
        module: TriggerTokens,
        *,
        parameters: str | Sequence[str] = "trainable",
        batch_size: int | str = "auto",
        memory_limit: int = 2**28,
        screening: Screening = "linear",
    ) -> None:
        super().__init__(
            module, parameters=parameters, batch_size=batch_size, memory_limit=memory_limit
        )
        self._screening = screening
        self._mixed = False  # the module handles its precisions itself
        self._added = len(module.triggers)
        self._jacobians: Recent[TriggerLinearization] = Recent(2)  # training and validation rows

    def linearize(self, X: Any, *, keep: bool = True) -> Linearization:  # type: ignore[override]
        return self._kept(X) or super().linearize(X, keep=keep)

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        """The outputs that came with the Jacobian, if it is kept; else a forward pass."""
        known = self._jacobians.find(X, self.theta if theta is None else theta.to(self.theta))
        return super().outputs(X, theta) if known is None else known.outputs

    def _kept(self, X: Any) -> TriggerLinearization | None:
        """The rows with their Jacobian, kept for two tables; None if it does not fit."""
        tokens = self.prepare(X)
        if self._jacobians.find(X, self.theta) is None and not self._fits(tokens):
            return None
        return self._jacobians.get(X, lambda: self.per_row(tokens), self.theta)

    def at(self, by: Tensor) -> TriggerEditable:
        """The same model with its parameters moved."""
        edited: Any = self.edited(self.theta + by)
        return TriggerEditable(
            edited,
            parameters=self.parameter_names,
            batch_size=self._batch_size,
            memory_limit=self._memory_limit,
            screening=self._screening,
        )

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
        return own and size * torch.finfo(self.dtype).bits // 8 <= self._memory_limit

    def per_row(self, tokens: Tokens) -> TriggerLinearization:
        """Outputs and Jacobian of every row, in smaller batches if memory runs out."""
        return retried(lambda: self._per_row(tokens), lambda: self.halve_rows(tokens))

    def _per_row(self, tokens: Tokens) -> TriggerLinearization:
        order = longest_first(tokens)
        outputs, jacobians = [], []
        for batch in self.batches(take_rows(tokens, order)):
            z, jacobian = self._batch_jacobian(batch)
            outputs.append(z)
            jacobians.append(jacobian)
        place = torch.argsort(order)
        z = torch.cat(outputs)[place]
        array = torch.empty(len(z), *jacobians[0].shape[1:], dtype=self.dtype, device=self.device)
        start = 0
        while jacobians:  # freed one by one, so that memory holds only one whole copy
            part = jacobians.pop(0)
            array[order[start : start + len(part)]] = part
            start += len(part)
        return TriggerLinearization(z, DenseJacobian(array, z.ndim == 1), self, tokens)

    def _batch_jacobian(self, batch: Tokens) -> tuple[Tensor, Tensor]:
        """Outputs and Jacobian ``(n, C, D)`` of one batch.

        Each row gets its own copy of the triggers. The gradient of the summed outputs with respect
        to these copies is every row's own Jacobian, by one ordinary backward pass without vmap.
        """
        module: Any = self._module
        triggers = module.triggers.detach()
        prompts = triggers.expand(len(batch["input_ids"]), -1, -1).clone().requires_grad_()
        with torch.enable_grad():
            features = module.features(
                batch["input_ids"], batch.get("attention_mask"), prompts=prompts
            )
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


def editable(module: Any, **options: Any) -> TransformersEditable:
    """A classifier on tokens as an `Editable`."""
    kind = TriggerEditable if isinstance(module, TriggerTokens) else TransformersEditable
    return kind(module, **options)
