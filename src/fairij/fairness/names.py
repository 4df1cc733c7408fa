"""Names of constraints that other libraries use, and what they are read as."""

from __future__ import annotations

from fairij.fairness.rates import GAPS, UNCOUNTED

OWN = (*GAPS, *UNCOUNTED)

# by our name: the same question in fairlearn, error-parity and AIF360
_OTHERS = {
    "demographic_parity": "DemographicParity selection_rate selection_rate_parity "
    "selection_rate_difference demographic_parity_difference statistical_parity "
    "statistical_parity_difference",
    "demographic_parity_ratio": "selection_rate_ratio disparate_impact disparate_impact_ratio",
    # fairlearn's differences of odds are the worse of two
    "equalized_odds_worst_case": "EqualizedOdds equalized_odds_difference equalized_odds_diff",
    "equalized_odds_mean": "average_odds_difference",
    "equal_opportunity": "TruePositiveRateParity true_positive_rate_parity true_positive_rate "
    "true_positive_rate_difference equal_opportunity_difference EqualOpportunity tpr recall",
    "equal_opportunity_ratio": "true_positive_rate_ratio",
    "predictive_equality": "FalsePositiveRateParity false_positive_rate_parity fpr "
    "false_positive_rate false_positive_rate_difference true_negative_rate_parity "
    "true_negative_rate true_negative_rate_difference tnr",
    "predictive_equality_ratio": "false_positive_rate_ratio",
    "false_negative_rate_parity": "FalseNegativeRateParity false_negative_rate fnr "
    "false_negative_rate_difference",
    "accuracy_parity": "accuracy accuracy_score_parity accuracy_score_difference",
    "error_rate_parity": "ErrorRateParity error_rate zero_one_loss_difference",
    "predictive_parity": "PredictiveParity precision ppv positive_predictive_value "
    "precision_score_difference",
    "negative_predictive_parity": "npv negative_predictive_value",
    "worst_group_error": "zero_one_loss_group_max",
    "worst_group_loss": "BoundedGroupLoss bounded_group_loss",
    "mean_prediction": "mean_prediction_difference",
}
OTHERS = {other: own for own, others in _OTHERS.items() for other in others.split()}


def read_as(name: str) -> str | None:
    """The constraint that a name stands for; None if it is not known."""
    if name in OWN:
        return name
    if name in OTHERS:
        return OTHERS[name]
    found = {_plain(known): own for known, own in {**OTHERS, **{o: o for o in OWN}}.items()}
    return found.get(_plain(name))


def said(asked: object) -> str | None:
    """A sentence, if a constraint was given by a name of others."""
    own = read_as(asked) if isinstance(asked, str) else None
    if own is None or own == asked:
        return None
    words, formula = UNCOUNTED[own] if own in UNCOUNTED else (GAPS[own].words, GAPS[own].formula)
    return f"`constraints`={asked!r} was read as {own!r}: {words}, {formula}."


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
