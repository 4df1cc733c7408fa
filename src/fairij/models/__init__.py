"""Families of models behind one protocol, `Editable`; `adapt` finds the right one."""

from fairij.models.base import (
    Editable,
    EditableDefaults,
    Evaluator,
    EvaluatorDefaults,
    Linearization,
    LinearizationDefaults,
)
from fairij.models.contract import check_editable, check_wrapper
from fairij.models.registry import FAMILIES, Family, adapt, of_class
from fairij.models.torch.module import TorchEditable

__all__ = [
    "FAMILIES",
    "Editable",
    "EditableDefaults",
    "Evaluator",
    "EvaluatorDefaults",
    "Family",
    "Linearization",
    "LinearizationDefaults",
    "TorchEditable",
    "adapt",
    "check_editable",
    "check_wrapper",
    "of_class",
]
