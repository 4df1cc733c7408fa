"""Group fairness: rates, gaps between groups, constraints, and audits with intervals.

Names are loaded when they are first used: the table of gaps needs neither torch nor pandas.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fairij.fairness.gaps import GAPS, Gap
from fairij.fairness.rates import RATES, Rate

if TYPE_CHECKING:  # what `__getattr__` finds, for type checkers and editors
    from fairij.fairness.audits import Audit, audit, audit_regression, bootstrap
    from fairij.fairness.constraints import CONSTRAINTS, Constraint, get_constraint
    from fairij.fairness.contract import check_constraint
    from fairij.fairness.groups import Groups, encode_groups
    from fairij.fairness.metrics import (
        accuracy,
        balanced_accuracy,
        demographic_parity_difference,
        demographic_parity_ratio,
        equal_opportunity_difference,
        equal_opportunity_ratio,
        equalized_odds_difference,
        equalized_odds_ratio,
        equalized_odds_sum,
        group_rates,
        mean_error_difference,
        mean_prediction_difference,
    )

_NAMES = {
    "audits": "Audit audit audit_regression bootstrap",
    "constraints": "CONSTRAINTS Constraint get_constraint",
    "contract": "check_constraint",
    "groups": "Groups encode_groups",
    "metrics": "accuracy balanced_accuracy group_rates",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "CONSTRAINTS",
    "GAPS",
    "RATES",
    "Audit",
    "Constraint",
    "Gap",
    "Groups",
    "Rate",
    "accuracy",
    "audit",
    "audit_regression",
    "balanced_accuracy",
    "bootstrap",
    "check_constraint",
    "demographic_parity_difference",
    "demographic_parity_ratio",
    "encode_groups",
    "equal_opportunity_difference",
    "equal_opportunity_ratio",
    "equalized_odds_difference",
    "equalized_odds_ratio",
    "equalized_odds_sum",
    "get_constraint",
    "group_rates",
    "mean_error_difference",
    "mean_prediction_difference",
]


def __getattr__(name: str) -> Any:
    """Load a public name, or a metric that is generated from the table of gaps."""
    if name.startswith("__"):
        raise AttributeError(name)
    module = import_module(f"fairij.fairness.{_MODULES.get(name, 'metrics')}")
    if name not in _MODULES and name not in module.METRICS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *import_module("fairij.fairness.metrics").METRICS})
