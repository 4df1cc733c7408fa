"""Trigger tokens: trained embeddings in front of each text of a frozen encoder, and a head."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from fairij.data.checks import one_of, whole_number
from fairij.errors import InvalidInputError
from fairij.models.text import trigger_files

Pooling = Literal["mean", "pooler"]
T5_LIKE = ("t5", "mt5", "umt5")  # their texts have no special first token


def pooled(out: Any, mask: Tensor, pooling: Pooling) -> Tensor:
    """One vector per text, ``(N, H)``, in float32 or wider: its tokens' mean, or the pooler."""
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
    """A frozen encoder with ``n_tokens`` trained embeddings in its input, and a trained head.

    Parameters
    ----------
    encoder : torch.nn.Module
        A BERT-like encoder or T5's (`T5EncoderModel`). It is frozen and always run without
        dropout. It may be in bfloat16; triggers and head stay in float32.
    n_tokens : int
        How many triggers. They follow the first token, [CLS], of a BERT-like encoder, and precede
        all tokens for T5.
    head : torch.nn.Module, default=None
        Maps the pooled vector to outputs. By default one linear layer with one output.
    pooling : {"mean", "pooler"}, default="mean"
        The mean of the last layer over the text's tokens, without triggers; or the encoder's own
        pooler.
    seed : int, default=0
        Seed for the triggers, drawn from the encoder's own embeddings, and for the linear head.

    Examples
    --------
    >>> from fairij.language import TriggerTokens
    >>> tokens = TriggerTokens(encoder, n_tokens=2)
    >>> sum(p.numel() for p in tokens.parameters() if p.requires_grad) > 0
    True
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
        """The pooled vectors; ``prompts``, ``(N, n, H)``, gives each row its own triggers."""
        if attention_mask is None:
            attention_mask = input_ids != (-1 if self.pad is None else self.pad)
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
                "`token_type_ids` must be 0 throughout, because triggers work with single texts, "
                "not with pairs: leave them out, or join each pair into one text."
            )
        return self.head(self.features(input_ids, attention_mask))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write triggers and head to a folder (safetensors and JSON), without the encoder.

        The encoder's name and a hash of its parameters are kept with them.
        """
        trigger_files.write(Path(folder), self)

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, encoder: Any, head: nn.Module | None = None
    ) -> TriggerTokens:
        """Read what `save_pretrained` wrote, for the same encoder.

        Parameters
        ----------
        folder : path
            The folder.
        encoder : torch.nn.Module
            The encoder that the triggers were trained for, as `load_encoder` gives it.
        head : torch.nn.Module, default=None
            A head of the same form, if it is not one linear layer.
        """
        settings, tensors = trigger_files.read(Path(folder))
        trigger_files.check_encoder(settings, encoder)
        if head is None:
            if isinstance(settings["head"], str):
                raise InvalidInputError(
                    f"`head` must be given, as the head in {folder} is no linear layer but a "
                    f"{settings['head']}: make one of the same form."
                )
            outputs, has_bias = settings["head"]
            head = nn.Linear(encoder.config.hidden_size, outputs, bias=has_bias)
        module = cls(encoder, settings["n_tokens"], head, pooling=settings["pooling"])
        found = module.load_state_dict(_fitting(folder, module, tensors), strict=False)
        if found.unexpected_keys or any(not n.startswith("encoder.") for n in found.missing_keys):
            raise InvalidInputError(
                f"`head` must have the form of the one in {folder}, whose tensors are "
                f"{sorted(tensors)}."
            )
        return module

    def __deepcopy__(self, memo: dict[int, Any]) -> TriggerTokens:
        """A copy that shares the frozen encoder, which takes most of the memory."""
        clone = copy.copy(self)
        memo[id(self)] = clone
        clone._modules = dict(self._modules)
        clone._modules["head"] = copy.deepcopy(self.head, memo)
        clone._parameters = {n: copy.deepcopy(p, memo) for n, p in self._parameters.items()}
        return clone


def _fitting(
    folder: str | Path, module: nn.Module, tensors: dict[str, Tensor]
) -> dict[str, Tensor]:
    """The tensors; raises if one has another shape than in the module."""
    there = module.state_dict()
    for name, tensor in tensors.items():
        if name in there and there[name].shape != tensor.shape:
            raise InvalidInputError(
                f"`head` must have the form of the one in {folder}: {name!r} is "
                f"{tuple(tensor.shape)} there, and {tuple(there[name].shape)} here."
            )
    return tensors


def _check(encoder: Any, n_tokens: Any, pooling: Any) -> None:
    headed = any(hasattr(encoder, head) for head in ("classifier", "score", "lm_head"))
    if headed or not hasattr(encoder, "get_input_embeddings"):
        raise InvalidInputError(
            "`encoder` must be a model of transformers without a head, as "
            f"fairij.language.load_encoder gives it; got {type(encoder).__name__}."
        )
    whole_number("n_tokens", n_tokens, 1)
    one_of("pooling", pooling, get_args(Pooling))
