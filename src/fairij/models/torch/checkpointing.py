"""Activation checkpointing: inner values of repeated layers are computed again in backward passes.

A layer runs with the parameters that it was called with, also when it is run again: edits replace
parameters for one call only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, is_grad_enabled, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

FEWEST = 2  # layers of one class, for them to be repeated ones
Context = Callable[[], AbstractContextManager[Any]]


def asks_for_it(module: nn.Module) -> bool:
    """Whether ``gradient_checkpointing_enable()`` was called on a model of transformers."""
    return any(getattr(part, "gradient_checkpointing", False) is True for part in module.modules())


def recompute(module: nn.Module, within: Context = nullcontext) -> int:
    """Make the repeated layers of a module run again in backward passes; returns their number.

    Both runs are made ``within`` a context, such as that of an attention kernel. Without gradients,
    and in forward mode, layers run as they did.
    """
    layers = repeated_layers(module)
    for layer in layers:
        layer.forward = _Recomputed(layer, layer.forward, within)
    return len(layers)


def repeated_layers(module: nn.Module) -> list[nn.Module]:
    """The members of the longest list of layers of one class."""
    lists = [list(part) for part in module.modules() if isinstance(part, nn.ModuleList)]
    alike = [
        some for some in lists if len(some) >= FEWEST and len({type(one) for one in some}) == 1
    ]
    return max(alike, key=len, default=[])


class _Recomputed:
    """The forward of a layer."""

    def __init__(self, layer: nn.Module, plain: Callable[..., Any], within: Context) -> None:
        self._layer, self._plain, self._within = layer, plain, within
        self._inside = False

    def __call__(self, *given: Any, **options: Any) -> Any:
        state = dict(self._layer.named_parameters()) | dict(self._layer.named_buffers())
        tensors = [part for part in (*given, *state.values()) if isinstance(part, Tensor)]
        needed = is_grad_enabled() and any(part.requires_grad for part in tensors)
        if self._inside or not needed:
            return self._plain(*given, **options)

        def run(*inputs: Any) -> Any:
            self._inside = True
            try:
                with self._within():
                    return functional_call(self._layer, state, inputs, options)
            finally:
                self._inside = False

        return checkpoint(run, *given, use_reentrant=False, preserve_rng_state=False)
