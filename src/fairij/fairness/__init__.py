"""Group fairness: hard metrics, smooth surrogates, constraints, audits with intervals."""

from fairij.fairness.audit import Audit, audit, audit_regression, bootstrap
from fairij.fairness.constraints import CONSTRAINTS, Constraint, get_constraint
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

__all__ = [
    "CONSTRAINTS",
    "Audit",
    "Constraint",
    "Groups",
    "accuracy",
    "audit",
    "audit_regression",
    "balanced_accuracy",
    "bootstrap",
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
