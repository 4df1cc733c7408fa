"""Families of models behind one face, `Editable`; `adapt` finds the right one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from fairij.errors import InvalidInputError
from fairij.models.base import Editable, Evaluator, Linearization
from fairij.models.torch import TorchEditable

Family = tuple[str, Callable[[Any], bool], Callable[..., Editable]]

FAMILIES: list[Family] = [
    ("torch.nn.Module", lambda model: isinstance(model, nn.Module), TorchEditable),
]


def adapt(model: Any, **options: Any) -> Editable:
    """Wrap a fitted model of any supported family; an `Editable` is returned as it is."""
    for _, recognises, make in FAMILIES:
        if recognises(model):
            return make(model, **options)
    if all(hasattr(model, name) for name in ("theta", "linearize", "edited")):
        editable: Editable = model
        return editable
    raise InvalidInputError(
        f"No family of models recognises {type(model).__name__!r}; supported are "
        f"{', '.join(name for name, _, _ in FAMILIES)}. Anything else can be edited by an object "
        "with the methods of `fairij.models.Editable`."
    )


__all__ = ["FAMILIES", "Editable", "Evaluator", "Linearization", "TorchEditable", "adapt"]
