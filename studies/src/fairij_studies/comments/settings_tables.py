"""The page's part on settings for equalized odds: chosen on training comments, then reported."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from fairij_studies.comments.fear import BUDGET, FEAR
from fairij_studies.comments.fear_tables import ASKED, RULES
from fairij_studies.comments.settings import CHOSEN_ON, SETTINGS, TRIED

AIMS = {"LC": 0.14, "NC": 0.12}
PLAIN = "constrained"  # the default
HEADING = """## Equalized odds for “{identity}”: what can be had

The aim was a gap of at most {aims} on test comments, within
{budget:.2f} of balanced accuracy. The same part of the comments as above, and edits by several
settings of `FairIJ`. All edits lose at most {budget:.2f} of balanced accuracy on validation
comments. The setting is chosen on seeds {first} to {last}, which are not reported, by the gap on
*training* comments. Their groups take no part in edits, except where the name says so, and they
mention the group twice as often as the test comments. Test comments play no part in the choice.
What mentions a group is known of training comments too, if words tell it, as here. Then their
groups can take part, as in the last lines.
"""


def settings_section(records: pd.DataFrame, mentions: pd.DataFrame) -> str:
    """Return a table per model, with the setting that was chosen. Empty without records."""
    found = records[records[ASKED] == SETTINGS]
    if found.empty:
        return ""
    aims = " and ".join(f"{gap:.2f} ({model})" for model, gap in AIMS.items())
    first, *_, last = CHOSEN_ON
    identity = found["identity"].iloc[0]
    parts = [
        HEADING.format(identity=identity, aims=aims, budget=BUDGET, first=first, last=last),
    ]
    for model, block in found.groupby("model"):
        parts += [f"### {model}, settings\n", _table(block), _verdict(str(model), block, mentions)]
    parts.append(_edits_above(records))
    return "\n".join(part for part in parts if part)


def chosen(block: pd.DataFrame) -> str | None:
    """Return the setting of the lowest gap on training comments, by the seeds for choosing.

    It must not know the groups of training comments, and must lose no more than the budget there.
    """
    tried = block[block["seed"].isin(CHOSEN_ON)]
    if block["seed"].isin(CHOSEN_ON).all():
        return None
    means = _by_rule(tried)[["training_balanced_accuracy", "training_equalized_odds"]]
    if means.empty or "" not in means.index:
        return None
    enough = means["training_balanced_accuracy"] >= (
        means.loc["", "training_balanced_accuracy"] - BUDGET
    )
    own = [rule for rule in means.index[enough] if rule and not TRIED[rule].groups]
    return min(own, key=lambda rule: means.loc[rule, "training_equalized_odds"]) if own else None


def _by_rule(some: pd.DataFrame) -> Any:  # a frame
    """Return means over seeds by setting; the unedited model has the name ""."""
    return some.assign(rule=some["rule"].fillna("")).groupby("rule").mean(numeric_only=True)


def _table(block: pd.DataFrame) -> str:
    lines = [
        "| setting | BA, training | ΔEO, training | seeds | BA, test | ΔEO, test | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    taken = chosen(block)
    rules = block["rule"].fillna("")
    for rule in ["", *[name for name in TRIED if name in set(rules)]]:
        rows = block[rules == rule]
        own = rows["seed"].isin(CHOSEN_ON)
        cells = _cells(rows[own], "training_") + _cells(rows[~own], "")
        name = "**" + rule + "** (chosen)" if rule and rule == taken else rule or "as trained"
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cells(rows: pd.DataFrame, prefix: str) -> list[str]:
    if rows.empty:
        return ["-", "-", "0"]
    accuracy, gap = rows[f"{prefix}balanced_accuracy"], rows[f"{prefix}equalized_odds"]
    return [_spread(100 * accuracy, 1), _spread(gap, 3), str(rows["seed"].nunique())]


def _spread(values: pd.Series, digits: int) -> str:
    mean = f"{values.mean():.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {values.std():.{digits}f}"


def _verdict(model: str, block: pd.DataFrame, mentions: pd.DataFrame) -> str:
    """Say whether the chosen setting meets the aim, and what the test comments cannot tell."""
    taken, reported = chosen(block), block[~block["seed"].isin(CHOSEN_ON)]
    if reported.empty:
        best = 100 * block["training_balanced_accuracy"].max()
        return (
            "The settings were not run on the seeds that the tables report, so none is chosen. "
            "Edits of this model may learn training comments by heart (up to a balanced accuracy "
            f"of {best:.1f} there), which then say little about others.\n"
        )
    if taken is None:
        return ""
    means, aim = _by_rule(reported), AIMS[model]
    gap, lost = means.loc[taken, "equalized_odds"], _lost(means, taken, "")
    met = "meets the aim" if gap <= aim and lost <= 100 * BUDGET else "misses the aim"
    by = f" by {gap - aim:.3f}" if gap > aim else ""
    said = [
        f"The chosen setting ({taken}) {met}{by}: {gap:.3f}, at {lost:.1f} points of balanced "
        f"accuracy; the default ({PLAIN}) has {means.loc[PLAIN, 'equalized_odds']:.3f}."
    ]
    noise = _noise(means.loc[taken], str(block["identity"].iloc[0]), mentions)
    if noise:
        said.append(
            f"The test comments alone give such a gap a deviation of {noise:.3f}, which no "
            "deviation over seeds shows."
        )
    return " ".join(said) + "\n"


def _edits_above(records: pd.DataFrame) -> str:
    """Say how near the edits of the tables on sentences come to the aim, on the same seeds."""
    run = (records[ASKED] == FEAR) & (records["constraint"] == "equalized_odds")
    lines = []
    for model, aim in AIMS.items():
        own = records[run & (records["model"] == model)]
        edits = own[own["method"].isin(["erm", "fair-ij"])]
        if edits.empty:
            continue
        means = _by_rule(edits)
        for rule, name in RULES.items():
            if rule not in means.index:
                continue
            gap, lost = means.loc[rule, "equalized_odds"], _lost(means, rule, "")
            kept = "yes" if gap <= aim and lost <= 100 * BUDGET else "no"
            lines.append(f"| {model} | {name} | {gap:.3f} | {lost:.2f} | {kept} |")
    if not lines:
        return ""
    head = ["| model | edit | ΔEO | points of BA lost | within the aim |", "|---|---|---|---|---|"]
    return "The edits of the tables above:\n\n" + "\n".join([*head, *lines]) + "\n"


def _lost(means: Any, rule: str, plain: str) -> float:
    """Return the points of balanced accuracy that an edit loses on test comments."""
    accuracy = means["balanced_accuracy"]
    return 100 * float(accuracy[plain] - accuracy[rule])


def _noise(rates: Any, identity: str, mentions: pd.DataFrame) -> float:
    """Return the deviation of the gap by the sampling of the test comments that mention it."""
    counts = mentions[(mentions["method"] == "mentions") & (mentions["identity"] == identity)]
    counts = counts[counts["part"] == "test"] if len(counts) else counts
    if counts.empty:
        return 0.0
    toxic = float(counts["toxic"].iloc[0])
    sizes = {
        "true_positive_rate_mentioned": toxic,
        "false_positive_rate_mentioned": float(counts["mentioned"].iloc[0]) - toxic,
    }
    return math.sqrt(sum(rates[name] * (1 - rates[name]) / size for name, size in sizes.items()))
