"""Trigger tokens: a few free embeddings in front of every text of a frozen encoder, and a head.

Each row can be given a copy of the prompt of its own; the gradient of the summed outputs with
respect to those copies is then every row's own Jacobian, by one ordinary backward pass (no vmap).
As there are few such parameters, the whole Jacobian is kept where it fits, and every product with
it costs next to nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from fairij.data.rows import take_rows
from fairij.errors import InvalidInputError
from fairij.models.base import Evaluator, EvaluatorDefaults, Linearization
from fairij.models.constant import ConstantLinearization, JacobianDefaults
from fairij.models.recent import Recent
from fairij.models.text.tokens import Tokens, longest_first
from fairij.models.text.transformers import TransformersEditable
from fairij.models.torch.module import canonical_outputs
from fairij.models.torch.out_of_memory import retried

Pooling = Literal["mean", "pooler"]
Screening = Literal["linear", "exact"]
T5_LIKE = ("t5", "mt5", "umt5")  # texts do not begin with a token of their own


def pooled(out: Any, mask: Tensor, pooling: Pooling) -> Tensor:
    """One vector a text, (N, H), float32 at least: its tokens' mean, or the encoder's pooler."""
    if pooling == "pooler":
        if getattr(out, "pooler_output", None) is None:
            raise InvalidInputError("This encoder has no pooler: use pooling='mean'.")
        return _wide(out.pooler_output)
    hidden = _wide(out.last_hidden_state)
    weight = mask.to(hidden)[..., None]
    return (hidden * weight).sum(1) / weight.sum(1).clamp_min(1.0)


def _wide(t: Tensor) -> Tensor:
    return t.to(torch.promote_types(t.dtype, torch.float32))


class TriggerTokens(nn.Module):
    """A frozen encoder whose input has ``n_tokens`` trained embeddings, and a trained head on it.

    Parameters
    ----------
    encoder : a BERT-like encoder or T5's (`T5EncoderModel`); it is frozen here and always run
        without dropout; it may be in bfloat16 while triggers and head stay in float32
    n_tokens : how many triggers; they stand behind the first token of a BERT-like encoder, which
        is [CLS], and in front of everything for T5
    head : from the pooled vector to outputs; one linear layer with one output unless given
    pooling : "mean" of the last layer over the text's tokens (triggers left out), or the
        encoder's "pooler"
    seed : of the triggers (drawn from the encoder's own embeddings) and the linear head
    """

    def __init__(
        self,
        encoder: Any,
        n_tokens: int,
        head: nn.Module | None = None,
        *,
        pooling: Pooling = "mean",
        seed: int = 0,
    ) -> None:
        super().__init__()
        _check(encoder, n_tokens, pooling)
        self.encoder = encoder.requires_grad_(False)
        self.config = encoder.config
        self.pooling: Pooling = pooling
        self.pad = getattr(encoder.config, "pad_token_id", None)
        self._first = 0 if encoder.config.model_type in T5_LIKE else 1
        words = encoder.get_input_embeddings().weight
        draws = torch.Generator().manual_seed(seed)
        chosen = torch.randint(words.shape[0], (n_tokens,), generator=draws)
        self.triggers = nn.Parameter(words[chosen.to(words.device)].detach().float().clone())
        if head is None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                head = nn.Linear(encoder.config.hidden_size, 1)
        self.head = head.to(words.device)

    def train(self, mode: bool = True) -> TriggerTokens:
        super().train(mode)
        self.encoder.eval()
        return self

    def features(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, prompts: Tensor | None = None
    ) -> Tensor:
        """The pooled vectors; ``prompts`` (N, n, H) gives each row its own triggers."""
        if attention_mask is None:
            attention_mask = (
                torch.ones_like(input_ids) if self.pad is None else input_ids != self.pad
            )
        mask = attention_mask != 0
        words = self.encoder.get_input_embeddings()(input_ids)
        own = self.triggers.expand(len(words), -1, -1) if prompts is None else prompts
        at, extra = self._first, own.shape[1]
        embedded = torch.cat([words[:, :at], own.to(words.dtype), words[:, at:]], 1)
        text = torch.cat([mask[:, :at], mask.new_zeros(len(mask), extra), mask[:, at:]], 1)
        seen = text.clone()
        seen[:, at : at + extra] = True
        out = self.encoder(inputs_embeds=embedded, attention_mask=seen.long())
        return pooled(out, text, self.pooling)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        if token_type_ids is not None and bool(token_type_ids.any()):
            raise InvalidInputError(
                "`token_type_ids` must be 0 throughout: triggers are put into single texts, not "
                "into pairs; leave them out, or join the pair to one text."
            )
        return self.head(self.features(input_ids, attention_mask))

    def __deepcopy__(self, memo: dict[int, Any]) -> TriggerTokens:
        """A copy that shares the frozen encoder, which is most of the memory."""
        clone = copy.copy(self)
        memo[id(self)] = clone
        clone._modules = dict(self._modules)
        clone._modules["head"] = copy.deepcopy(self.head, memo)
        clone._parameters = {n: copy.deepcopy(p, memo) for n, p in self._parameters.items()}
        return clone


def _check(encoder: Any, n_tokens: Any, pooling: Any) -> None:
    headed = any(hasattr(encoder, head) for head in ("classifier", "score", "lm_head"))
    if headed or not hasattr(encoder, "get_input_embeddings"):
        raise InvalidInputError(
            "`encoder` must be a model of transformers without a head, as "
            f"fairij.language.load_encoder gives it; got {type(encoder).__name__}."
        )
    if not isinstance(n_tokens, int) or n_tokens < 1:
        raise InvalidInputError(
            f"`n_tokens` must be a whole number of at least 1; got {n_tokens!r}."
        )
    if pooling not in get_args(Pooling):
        raise InvalidInputError(
            f"`pooling` must be one of {list(get_args(Pooling))}, got {pooling!r}."
        )


@dataclass(frozen=True)
class DenseJacobian(JacobianDefaults):
    """``J`` as one array, (N, C, D)."""

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


@dataclass(frozen=True)
class TriggerLinearization(ConstantLinearization):
    """Products with a kept Jacobian; z is not linear, so the second order asks the model again."""

    model: TriggerEditable = field(repr=False)
    tokens: Tokens = field(repr=False)
    mode = "per_row"

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        return self.model.by_graphs(self.tokens).second_order(weights, direction)

    def moved(self, by: Tensor) -> TriggerLinearization:  # z is not linear: its J changes
        return self.model.at(by).per_row(self.tokens)

    def restrict(self, index: Tensor, *, keep: bool = False) -> TriggerLinearization:
        return TriggerLinearization(
            self.outputs[index],
            self.jacobian.take(index),
            self.model,
            take_rows(self.tokens, index),
        )


@dataclass
class ScreeningEvaluator(EvaluatorDefaults):
    """Many scales at once by a parabola; a single one, the edit to be taken, by the model.

    The parabola is ``z + c J d``, bent as far as an edit that the model has run was seen to be: of
    those the one whose ``J d`` is nearest. Edits that drop more rows or fewer go much the same way.
    """

    linear: TriggerLinearization
    exact: Evaluator
    # J d, and what it leaves out; the latest first
    runs: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    estimates: bool = field(default=True, init=False)

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        z = self.linear.along(direction, scales)
        if not direction.any():
            return z
        if len(scales) > 1:
            return self._bent(z)
        seen = self.exact.along(direction, scales)
        self._learn(z[0], seen[0])
        return seen

    def confirm(self, direction: Tensor, scale: float, *, everywhere: bool) -> Tensor:
        """One edit, ``(1, N)``: run on all rows, or only on rows whose label is in doubt.

        A label is in doubt if a bend as large as the whole step would change it.
        """
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

    def _learn(self, z: Tensor, seen: Tensor) -> None:
        if torch.isfinite(seen).all() and torch.isfinite(z).all():
            self.runs.insert(0, (z - self.linear.outputs, seen - z))

    def _bent(self, z: Tensor) -> Tensor:
        """``z + c J d`` of some scales, (S, N) or (S, N, C), bent as the nearest run was."""
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
    """Which rows, (N,), would have another label if their outputs moved as far again."""
    if z.ndim == 1:
        return ~(z.abs() > moved.abs())
    first, second = z.topk(2, -1).values.unbind(-1)
    return ~(first - second > 2 * moved.abs().amax(-1))


class TriggerEditable(TransformersEditable):
    """`TriggerTokens` seen through triggers and head.

    Parameters
    ----------
    memory_limit : bytes of Jacobian that may be kept; where it does not fit, products go through
        kept and rebuilt graphs as for any other model
    screening : how the many candidates of a search are judged: "linear", by the kept Jacobian of
        the validation rows, or "exact", by a forward pass each. The candidate that is taken is
        judged by a forward pass in any case, which also corrects the screening of the others, and
        taken only if it is still the best; but with ``validation="cross_fit"`` it is judged so
        only in the audit
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
        self._mixed = False  # the module itself sees to its precisions
        self._added = len(module.triggers)
        self._jacobians: Recent[TriggerLinearization] = Recent(2)  # training and validation rows

    def linearize(self, X: Any, *, keep: bool = True) -> Linearization:  # type: ignore[override]
        return self._kept(X) or super().linearize(X, keep=keep)

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        """Of the fitted parameters those that came with the Jacobian, where it was made."""
        known = self._jacobians.known(X, self.theta if theta is None else theta.to(self.theta))
        return super().outputs(X, theta) if known is None else known.outputs

    def _kept(self, X: Any) -> TriggerLinearization | None:
        """The rows with their Jacobian, if it fits; those of two tables are not made twice."""
        tokens = self.prepare(X)
        if self._jacobians.known(X, self.theta) is None and not self._fits(tokens):
            return None
        return self._jacobians.made(X, lambda: self.per_row(tokens), self.theta)

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
        """Outputs and Jacobian of every row; with less memory where it runs out."""
        return retried(lambda: self._per_row(tokens), lambda: self.halve_batches(tokens))

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
        while jacobians:  # freed one by one, so that there is only one whole copy
            part = jacobians.pop(0)
            array[order[start : start + len(part)]] = part
            start += len(part)
        return TriggerLinearization(z, DenseJacobian(array, z.ndim == 1), self, tokens)

    def _batch_jacobian(self, batch: Tokens) -> tuple[Tensor, Tensor]:
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
    """The right adapter for a classifier on tokens."""
    kind = TriggerEditable if isinstance(module, TriggerTokens) else TransformersEditable
    return kind(module, **options)
