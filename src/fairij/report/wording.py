"""Names, numbers and edits in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairij.fairness.rates import GAPS, UNCOUNTED
from fairij.fairness.views import SUFFIX, Kind, metric_name

if TYPE_CHECKING:
    from fairij.method.search.base import Account
    from fairij.mitigator import FairIJ

NOT_DEFINED = "not defined"  # a rate over no rows
UNKNOWN, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
# columns of the table of candidates
PERFORMANCE = ("accuracy", "balanced_accuracy", "r2")
SCORES = ("auc", "log_loss", "brier", "calibration_error", "mean_squared_error")

LABELS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "r2": "R²",
    "mean_squared_error": "mean squared error",
    "auc": "AUC",
    "log_loss": "log loss",
    "brier": "Brier score",
    "calibration_error": "calibration error",
} | {gap.metric_name: gap.words for gap in GAPS.values()}

# the metric of an audit that a constraint is judged by
GAP_METRIC = {gap.name: gap.metric_name for gap in GAPS.values()}
VIEWED: dict[Kind, str] = {
    "strata": "within strata, mean",
    "marginals": "of each column, sum",
}
LABELS |= {
    metric_name(kind, gap.metric_name): f"{gap.words} ({words})"
    for kind, words in VIEWED.items()
    for gap in GAPS.values()
}
GAP_METRIC |= {
    f"{gap.name} {SUFFIX[kind]}": metric_name(kind, gap.metric_name)
    for kind in VIEWED
    for gap in GAPS.values()
}


# what audits do not measure, in words
GAP_WORDS = {name: name.replace("_", " ") for name in UNCOUNTED}


def plain(name: Any) -> str:
    """``true_positive_rate`` as "true positive rate"; metrics by their usual name."""
    text = str(name)
    if text in LABELS:
        return LABELS[text]
    kind, bracket, rest = text.partition("[")  # the name of a class stays as it is
    return kind.replace("_", " ") + (f" of {rest.removesuffix(']')}" if bracket else "")


def number(value: float) -> str:
    """A number in few digits; a dash if it is not known."""
    if math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if value == int(value) and abs(value) < 1e12:
        return f"{int(value):,}".replace("-", MINUS)
    is_plain = 1e-4 <= abs(value) < 1e6
    return (f"{value:,.4f}" if is_plain else f"{value:.2e}").replace("-", MINUS)


def value_text(value: float) -> str:
    """A number from a table as it stands there, as it may be a code: 1122, not 1,122."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return f"{int(value)}".replace("-", MINUS)
    return number(value)


def amount(value: float) -> str:
    """A number that is compared with others; with four digits it may be a year."""
    if abs(value) >= 1000 and math.isfinite(value):
        value = float(round(value))  # no decimals next to so many digits
    return value_text(value) if abs(value) < 10_000 else number(value)


def measured(value: float) -> str:
    """A rate or gap, always with the same number of digits."""
    if math.isnan(value):
        return NOT_DEFINED
    if not math.isfinite(value) or abs(value) >= 1e6:
        return number(value)
    return f"{value:,.4f}".replace("-", MINUS)


def brief(value: float) -> str:
    """A number in about three digits, as people write it."""
    if not math.isfinite(value) or abs(value) >= 1e9 or 0 < abs(value) < 1e-4:
        return number(value)
    digits = 2 - (math.floor(math.log10(abs(value))) if value else 0)
    return f"{value:,.{min(max(digits, 0), 6)}f}".replace("-", MINUS)


def signed(change: float) -> str:
    """A change, always with its sign."""
    return f"{'+' if change > 0 else ''}{measured(change)}"


def changed_by(change: float, low: float, high: float) -> str:
    """A change with its interval in brackets, if it has one."""
    return signed(change) + ("" if math.isnan(low) else f" ({interval(low, high)})")


def interval(low: float, high: float) -> str:
    if math.isnan(low) and math.isnan(high):
        return NOT_DEFINED
    return f"{measured(low)} to {measured(high)}"


def listed(names: Sequence[str], most: int = 4) -> str:
    """``a, b and c``; only the count if there are more than ``most``."""
    if len(names) > most:
        return f"{len(names)} groups"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def shortened(value: Any, most: int = 120) -> str:
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def is_edited(fitted: FairIJ) -> bool:
    """Whether an edit was chosen, not the model as it was."""
    return _rows_changed(fitted) > 0


def account(fitted: FairIJ) -> Account:
    """The chosen edit in the words of the search that found it."""
    scale, rows = float(fitted.edit_.settings["scale"]), int(fitted.diagnostics_["n_train"])
    return fitted.search_.account(_rows_changed(fitted), scale, rows)


def on_other_rows(fitted: FairIJ) -> str:
    """Why the gap may be larger on rows other than the validation rows, and the gap to expect."""
    reused = fitted.edit_.settings["validation"] == "reuse"
    text = (
        "The edit was computed and chosen on the same validation rows, so on other rows the gap "
        "may be larger."
        if reused
        else "The edit was chosen among many on the validation rows, so on other rows the gap may "
        "be somewhat larger."
    )
    found = fitted.honest_gap_
    if found is None:
        return text
    text += (
        " The choice was repeated on random samples of these rows. By that, the gap to expect on "
        f"new rows is {measured(found.expected)} ({interval(found.low, found.high)})."
    )
    if reused:
        text += (
            " This does not include what the edit learned from these very rows. Only held-out rows "
            "show that."
        )
    return text


def _rows_changed(fitted: FairIJ) -> int:
    return int(fitted.candidates_["k"].iloc[fitted.chosen_])
