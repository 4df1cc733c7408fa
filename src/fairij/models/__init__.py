"""Families of models behind one face, `Editable`; `adapt` finds the right one."""

from fairij.models.base import Editable, Evaluator, Linearization
from fairij.models.registry import FAMILIES, adapt, of_class
from fairij.models.torch.module import TorchEditable

__all__ = [
    "FAMILIES",
    "Editable",
    "Evaluator",
    "Linearization",
    "TorchEditable",
    "adapt",
    "of_class",
]
