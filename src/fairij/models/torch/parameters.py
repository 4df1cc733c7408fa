"""Which parameters of a torch module may be edited, and all of them as one vector."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fairij.errors import InvalidInputError


def choose_parameters(module: nn.Module, wanted: str | Sequence[str]) -> list[str]:
    """The names of the floating-point parameters that ``wanted`` means, in module order."""
    lazy = [n for n, p in module.named_parameters() if is_lazy(p)]
    if lazy:
        raise InvalidInputError(
            f"The module's parameters must exist, but {lazy[0]!r} is created at the first forward "
            "pass: run the module once on a row of data."
        )
    named = {n: p for n, p in module.named_parameters() if p.is_floating_point()}
    if not named:
        raise InvalidInputError("The module has no floating-point parameters, so nothing to edit.")
    cure = ""
    if wanted == "all":
        chosen = list(named)
    elif wanted == "trainable":
        chosen = [name for name, p in named.items() if p.requires_grad]
        cure = "set requires_grad on some, or pass parameters='all' or a name pattern"
        if hasattr(module, "peft_config"):
            cure += "; adapters are loaded for training by PeftModel.from_pretrained(..., "
            cure += "is_trainable=True)"
    else:
        listed = isinstance(wanted, Sequence) and not isinstance(wanted, str)
        patterns: list[Any] = list(wanted) if listed else [wanted]
        if not all(isinstance(pattern, str) for pattern in patterns) or not patterns:
            raise InvalidInputError(
                "`parameters` must be 'trainable', 'all', a name, a pattern or several of those; "
                f"got {wanted!r}."
            )
        for pattern in patterns:
            if not any(_matches(name, pattern) for name in named):
                inner = [f"*.{pattern}"] if any(_matches(n, f"*.{pattern}") for n in named) else []
                raise InvalidInputError(
                    f"`parameters` pattern {pattern!r} matches no parameter of the module; "
                    + (f"did you mean {inner[0]!r}? All: " if inner else "there are: ")
                    + f"{', '.join(named)}."
                )
        chosen = [name for name in named if any(_matches(name, p) for p in patterns)]
        cure = f"choose from: {', '.join(named)}"
    if not chosen:
        raise InvalidInputError(f"`parameters`={wanted!r} leaves no parameter to edit: {cure}.")
    kinds = {named[name].dtype for name in chosen}
    if not kinds <= {torch.float32, torch.float64} or len(kinds) != 1:
        raise InvalidInputError(
            "The edited parameters must all be float32 or all float64, got "
            f"{sorted(str(kind) for kind in kinds)}; convert them first, as in `part.float()`. The "
            "other parameters may have any precision."
        )
    return chosen


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern) or name.startswith(pattern + ".")


def flatten(pieces: Iterable[Tensor]) -> Tensor:
    return torch.cat([piece.detach().reshape(-1) for piece in pieces])
