"""Hugging Face classifiers, with or without `peft` adapters, on rows of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fairij.data.rows import n_rows, take_rows
from fairij.errors import InvalidInputError
from fairij.models.base import (
    Evaluator,
    EvaluatorDefaults,
    Factors,
    Linearization,
    Middle,
    Some,
)
from fairij.models.recent import Recent
from fairij.models.text.heads import OneLayer, linear_head
from fairij.models.text.replayed import KeptHead, replayed_head
from fairij.models.text.tokens import (
    Tokens,
    bucketed,
    check_lengths,
    lengths,
    longest_first,
    token_rows,
    tokens_at_once,
)
from fairij.models.text.triggers import TriggerTokens
from fairij.models.torch.autograd import MODES, saved_bytes
from fairij.models.torch.batches import retried
from fairij.models.torch.checkpointing import asks_for_it, recompute
from fairij.models.torch.linearization import PROBE_ROWS, TorchLinearization
from fairij.models.torch.module import TorchEditable

GRAPH_BYTES = {"cpu": 2**28, "cuda": 2**33}  # the most that the graph of one batch may use
GRAPH_ROWS = 4  # whose graph is made to tell its size: more could take gigabytes
SHARE_OF_FREE = 0.2  # of a GPU, whose memory other work and other processes need as well
# Plain outputs use any kernel but cuDNN's, which makes a plan for every new shape of a batch.
WITHOUT_PLANS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
ROUNDED = 0.1  # how closely products agree if the frozen part is in bfloat16
FORCES = "make_inputs_require_grads"  # a hook of transformers for another form of checkpointing
MASK_WIDTH = 8  # GPU kernels copy the mask in every layer unless its width is a multiple of this


@runtime_checkable
class TakesTexts(Protocol):
    """A model with its own tokenizer, such as `fairij.language.TextClassifier`."""

    @property
    def model(self) -> Any:
        """The classifier itself."""

    def tokenise(self, texts: list[str]) -> Mapping[str, Any]:
        """Texts as columns of tokens."""


class TransformersEditable(TorchEditable):
    """A classifier on tokens, seen through some of its parameters.

    Rows run in batches of similar length. Derivatives use the attention kernel that can be
    differentiated twice, so that ``J r`` is exact; plain outputs use the fastest kernel. Tokens and
    outputs of the last tables are kept, so tables must not be changed in place. Options are those
    of `TorchEditable`; an automatic batch takes as many tokens as fit in memory.
    """

    _added = 0  # tokens that the model adds to each row

    def __init__(self, module: nn.Module, **options: Any) -> None:
        super().__init__(module, **options)
        config = getattr(module, "config", None)
        self._pad = getattr(config, "pad_token_id", None)
        classifier = module.model if isinstance(module, TakesTexts) else module
        self._classifier = classifier
        # with triggers, the encoder's settings do not describe the head
        about_head = None if isinstance(classifier, TriggerTokens) else config
        self.class_names = _class_names(about_head)
        self.loss_name = _loss_name(about_head)
        self._tokenise = module.tokenise if isinstance(module, TakesTexts) else None
        self._budget, self._probed = 1, 0
        self._tokens: Recent[Tokens] = Recent()
        self._heads: Recent[tuple[OneLayer | KeptHead | None]] = Recent()
        self._fitted_outputs: Recent[Tensor] = Recent(2)
        self._edited_outputs: Recent[Tensor] = Recent(4)  # of the last edits judged
        # a frozen part in half precision runs so; the edited parameters stay in full precision
        self._mixed = any(t.dtype is torch.bfloat16 for t in self._fixed.values())
        if self._mixed:
            self.modes = dict.fromkeys(MODES, ROUNDED)
        _prepare(self._module)
        if asks_for_it(module) and recompute(self._module, _differentiable):
            self.modes = {"forward": self.modes["forward"], **self.modes}  # it keeps no graph

    def call(self, parameters: Sequence[Tensor], batch: Any) -> Tensor:
        kernels = [SDPBackend.MATH] if torch.is_grad_enabled() else WITHOUT_PLANS
        with (
            torch.autocast(self.device.type, torch.bfloat16, enabled=self._mixed),
            sdpa_kernel(kernels),
        ):
            return super().call(parameters, batch).to(self.dtype)

    def prepare(self, X: Any) -> Tokens:
        return self._tokens.get(X, lambda: self._rows_of_tokens(X))

    def _rows_of_tokens(self, X: Any) -> Tokens:
        tokens = token_rows(X, device=self.device, pad=self._pad, tokenise=self._tokenise)
        check_lengths("X", tokens, self._classifier)
        return tokens

    def batch_of(self, X: Tokens, rows: Tensor) -> Tokens:
        some = {name: part[rows.to(part.device)] for name, part in X.items()}
        return next(bucketed(some, 2**62))

    def batches(self, X: Any) -> Iterator[Tokens]:
        if isinstance(self._batch_size, int):
            for start in range(0, n_rows(X), self._batch_size):
                part = {name: t[start : start + self._batch_size] for name, t in X.items()}
                yield from bucketed(part, n_rows(part) * part["input_ids"].shape[1])
            return
        if self._probed < min(n_rows(X), PROBE_ROWS):  # probed on fewer rows so far, or on none
            self._budget, self._probed = self._tokens_that_fit(X), min(n_rows(X), PROBE_ROWS)
        multiple = MASK_WIDTH if self.device.type == "cuda" else 1
        yield from bucketed(X, self._budget, added=self._added, multiple=multiple)

    def halve_rows(self, X: Any) -> bool:
        if isinstance(self._batch_size, int):
            return super().halve_rows(X)
        longest = int(lengths(X).max()) + self._added
        if self._budget <= longest:  # the longest row already fills a batch
            return False
        self._budget = min(self._budget, n_rows(X) * longest) // 2
        return True

    def _tokens_that_fit(self, X: Tokens) -> int:
        """Tokens per batch, judged by the graph of a few rows; a frozen part has none."""
        probe = next(bucketed({n: t[:GRAPH_ROWS] for n, t in X.items()}, 2**62))
        leaves = [p.detach().requires_grad_() for p in self._fitted.values()]
        with torch.enable_grad():
            used = saved_bytes(lambda: self.call(leaves, probe), [*leaves, *probe.values()])
        room = graph_room(self.device)
        rows, width = probe["input_ids"].shape
        by_graph = room * rows * (width + self._added) // max(used, 1)
        return max(min(by_graph, tokens_at_once(self.device)), 1)

    def linearize(self, X: Any, *, keep: bool = True) -> Linearization:  # type: ignore[override]
        (head,) = self._heads.get(X, lambda: (self._head(self.ready(X)),))
        if head is not None:
            return head.linearize(keep=keep)
        tokens = self.ready(X)
        order = longest_first(tokens)
        limit = self.memory_limit if keep else 0
        return InGivenOrder(TorchLinearization(self, take_rows(tokens, order), limit), order)

    def evaluator(self, X: Any) -> Evaluator:  # type: ignore[override]
        (head,) = self._heads.get(X, lambda: (self._head(self.ready(X)),))
        return TokenEvaluator(self, X) if head is None else head.evaluator()

    def _head(self, tokens: Tokens) -> OneLayer | KeptHead | None:
        """What an edited head reads, if nothing else is edited."""
        if self._mixed:  # the head is rounded too
            return None
        order = longest_first(tokens)
        ordered = take_rows(tokens, order)

        def work() -> OneLayer | KeptHead | None:
            batches = list(self.batches(ordered))
            linear = linear_head(self, batches, len(order))
            if linear is not None:
                return OneLayer(linear, self.theta)
            return replayed_head(self, list(self._fixed.values()), batches, len(order))

        found = retried(work, lambda: self.halve_rows(tokens))
        return None if found is None else found.restrict(torch.argsort(order))

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        at = self.theta if theta is None else theta.to(self.device, self.dtype)
        (head,) = self._heads.find(X) or (None,)
        if head is not None:
            return head.outputs(at)
        recent = self._fitted_outputs if torch.equal(at, self.theta) else self._edited_outputs
        return recent.get(X, lambda: self.run(self.ready(X), at), at)

    def run(self, tokens: Tokens, theta: Tensor) -> Tensor:
        """The outputs of rows of tokens, in smaller batches if memory runs out."""
        order, parameters = longest_first(tokens), self.split(theta)
        ordered = take_rows(tokens, order)

        def work() -> Tensor:
            return torch.cat([self.call(parameters, batch) for batch in self.batches(ordered)])

        with torch.no_grad():
            return retried(work, lambda: self.halve_rows(tokens))[torch.argsort(order)]


def graph_room(device: torch.device) -> int:
    """The most bytes for the graph of one batch; on a GPU at most a share of what is free there."""
    if device.type != "cuda":
        return GRAPH_BYTES["cpu"]
    free, _ = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return min(GRAPH_BYTES["cuda"], int(SHARE_OF_FREE * (free + unused)))


def _prepare(copied: nn.Module) -> None:
    """Take off what serves training and the writing of texts: forced gradients, and the cache."""
    for part in copied.modules():
        config: Any = getattr(part, "config", None)
        if getattr(config, "use_cache", False):
            config.use_cache = False
        hooks = part._forward_hooks
        forced = [key for key, hook in hooks.items() if FORCES in getattr(hook, "__qualname__", "")]
        for key in forced:
            del hooks[key]


def _differentiable() -> Any:
    return sdpa_kernel([SDPBackend.MATH])


def _class_names(config: Any) -> tuple[str, ...]:
    """The names of the classes in the order of the outputs; none for a single output."""
    names = getattr(config, "id2label", None) or {}
    return tuple(str(names[i]) for i in sorted(names)) if len(names) > 1 else ()


def _loss_name(config: Any) -> str | None:
    """The loss that transformers uses for this kind of problem; None for the usual one."""
    kind = getattr(config, "problem_type", None)
    if kind == "multi_label_classification":
        raise InvalidInputError(
            "The model must predict one label per row, but its config.problem_type is "
            "'multi_label_classification', which predicts several: name one of them, as in "
            "TextClassifier(model, tokenizer, label='insult'), and edit label by label."
        )
    return "squared_error" if kind == "regression" else None


@dataclass(frozen=True)
class TokenEvaluator(EvaluatorDefaults):
    """One forward pass per edit."""

    model: TransformersEditable
    X: Any

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        theta = self.model.theta
        steps = [scale * direction.to(theta) for scale in scales.tolist()]
        return torch.stack([self.model.outputs(self.X, theta + step) for step in steps])


class InGivenOrder:
    """A linearisation of rows ``X[order]``, seen as one of ``X``."""

    def __init__(self, inner: Linearization, order: Tensor) -> None:
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
        return self._inner.sandwich(direction, lambda part, rows: middle(part, self._order[rows]))

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        return self._inner.second_order(weights[self._order], direction)

    def rows(self, index: Tensor) -> Tensor:
        """Row by row, because the mask code of transformers does not run under vmap."""
        jacobians = []
        for single in map(self.restrict, index.split(1)):
            z = single.outputs
            units = torch.eye(z.numel(), dtype=z.dtype, device=z.device)
            jacobians.append(torch.stack([single.vjp(unit.view_as(z)) for unit in units]))
        return torch.stack(jacobians)

    def restrict(self, index: Tensor, *, keep: bool = False) -> InGivenOrder:
        places = self._places(index).sort()
        return InGivenOrder(self._inner.restrict(places.values, keep=keep), places.indices)

    def moved(self, by: Tensor) -> InGivenOrder:
        return InGivenOrder(self._inner.moved(by), self._order)

    def sums(self, weights: Tensor, pieces: list[Tensor]) -> Tensor:
        inner_pieces = [self._places(piece).sort().values for piece in pieces]
        return self._inner.sums(weights[self._order], inner_pieces)

    def gram(self, middle: Tensor) -> Tensor | None:
        return self._inner.gram(middle[self._order])

    def diagonal(self, middle: Callable[[Some], Tensor]) -> Tensor | None:
        return self._inner.diagonal(lambda rows: middle(self._order[rows]))

    def row_squares(self) -> Tensor | None:
        squares = self._inner.row_squares()
        return None if squares is None else squares[self._place]

    def row_products(self) -> Tensor | None:
        products = self._inner.row_products()
        return None if products is None else products[self._place][:, self._place]

    def factors(self) -> list[Factors] | None:
        layers, place = self._inner.factors(), self._place
        if layers is None:
            return None
        return [replace(f, inputs=f.inputs[place], slopes=f.slopes[place]) for f in layers]

    def held_bytes(self) -> int | None:
        return self._inner.held_bytes()

    def with_outputs(self, outputs: Tensor) -> InGivenOrder | None:
        there = self._inner.with_outputs(outputs[self._order])
        return None if there is None else InGivenOrder(there, self._order)

    def _places(self, index: Tensor) -> Tensor:
        """Where the inner linearisation has these rows."""
        return self._place[index.to(self._place.device)]
