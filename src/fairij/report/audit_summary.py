"""An audit in a notebook cell."""

from __future__ import annotations

from fairij.fairness import Audit
from fairij.report.audit_readings import readings
from fairij.report.audit_sections import groups_table
from fairij.report.audit_words import first_words
from fairij.report.render import render

MOST_LINES = 12  # of groups in a cell


def summary_html(audit: Audit) -> str:
    """An HTML fragment. Every value in it is escaped."""
    table = groups_table(audit)
    return render(
        "audit_summary.html",
        words=first_words(audit),
        readings=readings(audit),
        heads=table["heads"],
        lines=table["lines"][:MOST_LINES],
        left_out=max(0, len(table["lines"]) - MOST_LINES),
        said=[*audit.undefined, *audit.notes],
        percent=f"{100 * audit.confidence:g}",
        positive_label=audit.positive_label,
    )
