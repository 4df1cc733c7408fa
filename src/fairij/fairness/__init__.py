"""Group fairness: rates, gaps between groups, constraints, and audits with intervals.

Names are loaded when they are first used: the table of gaps needs neither torch nor pandas.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fairij.fairness.rates import GAPS as GAPS
from fairij.fairness.rates import RATES as RATES
from fairij.fairness.rates import Gap as Gap
from fairij.fairness.rates import Rate as Rate

if TYPE_CHECKING:  # what `__getattr__` finds, for type checkers and editors
    from fairij.fairness.audits import Audit as Audit
    from fairij.fairness.audits import audit as audit
    from fairij.fairness.audits import audit_regression as audit_regression
    from fairij.fairness.constraints import CONSTRAINTS as CONSTRAINTS
    from fairij.fairness.constraints import Constraint as Constraint
    from fairij.fairness.constraints import get_constraint as get_constraint
    from fairij.fairness.contract import check_constraint as check_constraint
    from fairij.fairness.counterfactual import Counterfactual as Counterfactual
    from fairij.fairness.decisions import TopShare as TopShare
    from fairij.fairness.gates import Gate as Gate
    from fairij.fairness.gates import gate as gate
    from fairij.fairness.groups import GroupChances as GroupChances
    from fairij.fairness.groups import Groups as Groups
    from fairij.fairness.groups import encode_groups as encode_groups
    from fairij.fairness.resampling import bootstrap as bootstrap

_NAMES = {
    "audits": "Audit audit audit_regression",
    "constraints": "CONSTRAINTS Constraint get_constraint",
    "contract": "check_constraint",
    "counterfactual": "Counterfactual",
    "decisions": "TopShare",
    "gates": "Gate gate",
    "groups": "GroupChances Groups encode_groups",
    "resampling": "bootstrap",
    "metrics": "accuracy balanced_accuracy group_rates",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


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
