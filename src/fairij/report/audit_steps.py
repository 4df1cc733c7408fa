"""What to do next after an audit."""

from __future__ import annotations

from collections.abc import Iterator

from fairij.fairness import Audit
from fairij.fairness.missing import SMALL_CELL
from fairij.report.audit_readings import readings
from fairij.report.audit_words import of_measure

NOTICED = 0.02  # scores that are off by less are not mentioned
MOST_NAMED = 5  # groups in a sentence


def next_steps(audit: Audit) -> list[tuple[str, str, str]]:
    """What to do next: a heading, why and how, and a command if there is one."""
    return [
        *_about_gaps(audit),
        *_about_rows(audit),
        *_about_scores(audit),
        *_about_subgroups(audit),
        (
            "Keep watch",
            "Let your pipeline stop when a gap comes back. The command ends with exit code 5 if a "
            "gap is above its limit, or if it cannot be measured. Audit again whenever the model "
            "or the people it is used on change.",
            "fairij audit … --max-gap equal_opportunity=0.05 --min-ratio 0.8",
        ),
    ]


def _about_gaps(audit: Audit) -> Iterator[tuple[str, str, str]]:
    clear = [reading for reading in readings(audit) if reading.verdict == "red"]
    if clear:
        names = ", ".join(reading.rate for reading in clear)
        yield (
            "Find out why",
            f"Groups clearly differ in: {names}. Ask first whether the labels can be trusted for "
            "every group, whether a feature stands in for the group, and whether the difference "
            "has a reason that the people concerned and the law accept. Rarely can all of these "
            "differences be closed together: decide which one matters here.",
            "",
        )
        yield (
            "Make it smaller",
            "If there is no such reason, fairij can lower one of these gaps in the model that you "
            "have, without training it again.",
            f"fairij mitigate … --constraints {clear[0].constraint}",
        )


def _about_rows(audit: Audit) -> Iterator[tuple[str, str, str]]:
    sizes = audit.by_group["count"]
    few = sizes[sizes < 10 * SMALL_CELL]
    if len(few):
        named = ", ".join(
            f"{name} ({size:.0f})" for name, size in few.nsmallest(MOST_NAMED).items()
        )
        more = f", and {len(few) - MOST_NAMED:,} more" if len(few) > MOST_NAMED else ""
        yield (
            "Get more rows of small groups",
            f"These groups have fewer than {10 * SMALL_CELL} rows: {named}{more}. Four times as "
            "many rows make an interval half as wide.",
            "",
        )
    if audit.undefined:
        yield ("Fill what is missing", " ".join(audit.undefined), "")


def _about_scores(audit: Audit) -> Iterator[tuple[str, str, str]]:
    if not len(audit.scores):
        if audit.positive_label is not None:
            yield (
                "Give scores too",
                "With the score of each row this page also has AUC, Brier score and calibration "
                "of each group. In Python: give scores as predictions.",
                "fairij audit … --score COLUMN",
            )
        return
    off = of_measure(audit.group_scores, "calibration_bias")
    sure = off[((off["low"] > 0) | (off["high"] < 0)) & (off["value"].abs() >= NOTICED)]
    if len(sure):
        worst = sure["value"].sort_values(key=abs, ascending=False).head(MOST_NAMED)
        named = "; ".join(
            f"{group}: {100 * abs(value):.1f} points too {'high' if value > 0 else 'low'}"
            for group, value in worst.items()
        )
        yield (
            "Calibrate the scores",
            f"For these groups scores do not mean what they say: {named}. Who reads a score as a "
            "chance is misled. Calibrate the model on new rows, then audit again.",
            "",
        )


def _about_subgroups(audit: Audit) -> Iterator[tuple[str, str, str]]:
    found = audit.subgroups
    met = [] if found is None else [a for a in found.found["attributes"] if len(a) > 1]
    if met:
        yield (
            "Look where attributes meet",
            f"The search found groups where {' and '.join(met[0])} meet that differ more than "
            "each attribute alone shows. Take them as the groups of an audit.",
            f"fairij audit … {' '.join(f'--sensitive {name}' for name in met[0])}",
        )
