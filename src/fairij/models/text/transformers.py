"""Hugging Face classifiers, alone or with `peft` adapters, on rows of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fairij.data.rows import n_rows, take_rows
from fairij.errors import InvalidInputError
from fairij.models.base import (
    Evaluator,
    EvaluatorDefaults,
    Linearization,
    LinearizationDefaults,
    Middle,
    Some,
)
from fairij.models.recent import TABLES, Recent
from fairij.models.text.tokens import Tokens, bucketed, lengths, longest_first, token_rows
from fairij.models.torch.autograd import saved_bytes
from fairij.models.torch.linearization import PROBE_ROWS, TorchLinearization
from fairij.models.torch.module import TorchEditable
from fairij.models.torch.out_of_memory import retried

# what one batch's graph may take
GRAPH_BYTES = {"cpu": 2**28, "cuda": 2**33}
# for plain outputs: all but cuDNN's, which makes a plan for every new shape of a batch
WITHOUT_PLANS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
MASK_WIDTH = 8  # of which a GPU's attention kernels want a multiple, or copy the mask in each layer


class TransformersEditable(TorchEditable):
    """A classifier on tokens, seen through some of its parameters.

    Rows are run in batches of like length. Derivatives go through the attention kernel that can
    be differentiated twice (so that ``J r`` is exact: the graph of ``u -> J^T u`` differentiated
    once more), plain outputs through the fastest. A model with attention code of its own that
    allows neither falls back on central differences, within 1e-2 in float32.

    Parameters
    ----------
    parameters : as for any torch module: "trainable" is what `peft` has added to a model (and
        whatever else requires a gradient), and names or patterns pick any others
    batch_size : rows at a time, or "auto": as many tokens as fit in memory
    memory_limit : bytes of autograd graph that may be kept between products

    Texts are tokenised once, and outputs made once, for the tables last seen; a table is known by
    its identity, so give a new one rather than change it in place.
    """

    _added = 0  # tokens that the model puts into each row by itself

    def __init__(
        self,
        module: nn.Module,
        *,
        parameters: str | Sequence[str] = "trainable",
        batch_size: int | str = "auto",
        memory_limit: int = 2**28,
    ) -> None:
        super().__init__(
            module, parameters=parameters, batch_size=batch_size, memory_limit=memory_limit
        )
        config = getattr(module, "config", None)
        self._pad = getattr(config, "pad_token_id", None)
        about_head = None if _has_own_head(module) else config
        self.class_names = _class_names(about_head)
        self.loss_name = _loss_name(about_head)
        self._tokenise = getattr(module, "tokenise", None)
        self._budget, self._probed = 1, 0
        self._tokens: Recent[Tokens] = Recent(TABLES)
        self._fitted_outputs: Recent[Tensor] = Recent(2)
        self._edited_outputs: Recent[Tensor] = Recent(4)  # of the edits last judged
        # a frozen part in half precision: run so, with the edited parameters kept in full
        self._mixed = any(t.dtype is torch.bfloat16 for t in self._fixed.values())

    def call(self, parameters: Sequence[Tensor], batch: Any) -> Tensor:
        kernels = [SDPBackend.MATH] if torch.is_grad_enabled() else WITHOUT_PLANS
        with (
            torch.autocast(self.device.type, torch.bfloat16, enabled=self._mixed),
            sdpa_kernel(kernels),
        ):
            return super().call(parameters, batch).to(self.dtype)

    def prepare(self, X: Any) -> Tokens:
        def make() -> Tokens:
            return token_rows(X, device=self.device, pad=self._pad, tokenise=self._tokenise)

        return self._tokens.made(X, make)

    def batches(self, X: Any) -> Iterator[Tokens]:
        if isinstance(self._batch_size, int):
            for start in range(0, n_rows(X), self._batch_size):
                part = {name: t[start : start + self._batch_size] for name, t in X.items()}
                yield from bucketed(part, n_rows(part) * part["input_ids"].shape[1])
            return
        if self._probed < min(n_rows(X), PROBE_ROWS):  # so far seen on fewer rows, or on none
            self._budget, self._probed = self._tokens_that_fit(X), min(n_rows(X), PROBE_ROWS)
        multiple = MASK_WIDTH if self.device.type == "cuda" else 1
        yield from bucketed(X, self._budget, added=self._added, multiple=multiple)

    def halve_batches(self, X: Any) -> bool:
        if isinstance(self._batch_size, int):
            return super().halve_batches(X)
        longest = int(lengths(X).max()) + self._added
        if self._budget <= longest:  # it is a batch by itself
            return False
        self._budget = min(self._budget, n_rows(X) * longest) // 2
        return True

    def _tokens_that_fit(self, X: Tokens) -> int:
        """Tokens a batch, by the graph of a few rows; halved later where memory runs out."""
        probe = next(bucketed({n: t[:PROBE_ROWS] for n, t in X.items()}, 2**62))
        leaves = [p.detach().requires_grad_() for p in self._fitted.values()]
        with torch.enable_grad():
            used = saved_bytes(lambda: self.call(leaves, probe), [*leaves, *probe.values()])
        room = GRAPH_BYTES.get(self.device.type, GRAPH_BYTES["cpu"])
        rows, width = probe["input_ids"].shape
        return max(room * rows * (width + self._added) // max(used, 1), 1)

    def linearize(self, X: Any, *, keep: bool = True) -> Linearization:  # type: ignore[override]
        tokens = self.prepare(X)
        order = longest_first(tokens)
        limit = self._memory_limit if keep else 0
        return InGivenOrder(TorchLinearization(self, take_rows(tokens, order), limit), order)

    def evaluator(self, X: Any) -> Evaluator:  # type: ignore[override]
        return TokenEvaluator(self, X)

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        at = self.theta if theta is None else theta.to(self._like())

        recent = self._fitted_outputs if torch.equal(at, self.theta) else self._edited_outputs
        return recent.made(X, lambda: self.run(self.prepare(X), at), at)

    def run(self, tokens: Tokens, theta: Tensor) -> Tensor:
        """The outputs of rows of tokens; in smaller batches where memory runs out."""
        return retried(lambda: self.forward(tokens, theta), lambda: self.halve_batches(tokens))

    def forward(self, tokens: Tokens, theta: Tensor) -> Tensor:
        """One pass over all rows, whatever is known of them."""
        order, parameters = longest_first(tokens), self.split(theta)
        with torch.no_grad():
            z = [self.call(parameters, batch) for batch in self.batches(take_rows(tokens, order))]
        return torch.cat(z)[torch.argsort(order)]


def _has_own_head(module: Any) -> bool:
    """Whether the head is another than that of which the settings speak, as behind triggers."""
    return any(hasattr(part, "triggers") for part in (module, getattr(module, "model", None)))


def _class_names(config: Any) -> tuple[str, ...]:
    """The labels by name, in the order of the outputs; none where the model has one output."""
    names = getattr(config, "id2label", None) or {}
    return tuple(str(names[i]) for i in sorted(names)) if len(names) > 1 else ()


def _loss_name(config: Any) -> str | None:
    """The loss that transformers itself trains on for this kind of problem; None for the usual."""
    kind = getattr(config, "problem_type", None)
    if kind == "multi_label_classification":
        raise InvalidInputError(
            "The model must give one label a row, but its config.problem_type is "
            "'multi_label_classification', several answers at once: edit a model of one of them."
        )
    return "squared_error" if kind == "regression" else None


@dataclass(frozen=True)
class TokenEvaluator(EvaluatorDefaults):
    """A forward pass an edit."""

    model: TransformersEditable
    X: Any

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        theta = self.model.theta
        steps = [scale * direction.to(theta) for scale in scales.tolist()]
        return torch.stack([self.model.outputs(self.X, theta + step) for step in steps])


class InGivenOrder(LinearizationDefaults):
    """A linearisation of rows that were put in another order, seen in the order given."""

    def __init__(self, inner: TorchLinearization, order: Tensor) -> None:
        self._inner, self._order, self._place = inner, order, torch.argsort(order)
        self.mode = inner.mode

    @cached_property
    def outputs(self) -> Tensor:
        return self._inner.outputs[self._place]

    def jvp(self, direction: Tensor) -> Tensor:
        return self._inner.jvp(direction)[self._place]

    def vjp(self, weights: Tensor) -> Tensor:
        return self._inner.vjp(weights[self._order])

    def sandwich(self, direction: Tensor, middle: Middle) -> Tensor:
        def reordered(part: Tensor, rows: Some) -> Tensor:
            return middle(part, self._order[rows])

        return self._inner.sandwich(direction, reordered)

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        return self._inner.second_order(weights[self._order], direction)

    def rows(self, index: Tensor) -> Tensor:
        """Row by row: the mask code of transformers does not run under vmap."""
        jacobians = []
        for row in index.split(1):
            single = self.restrict(row)
            z = single.outputs
            units = torch.eye(z.numel(), dtype=z.dtype, device=z.device)
            jacobians.append(torch.stack([single.vjp(unit.view_as(z)) for unit in units]))
        return torch.stack(jacobians)

    def restrict(self, index: Tensor, *, keep: bool = False) -> InGivenOrder:
        places = self._place[index.to(self._place.device)].sort()
        return InGivenOrder(self._inner.restrict(places.values, keep=keep), places.indices)

    def moved(self, by: Tensor) -> InGivenOrder:
        return InGivenOrder(self._inner.moved(by), self._order)
