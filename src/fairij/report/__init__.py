"""Pages and plots of a result, loaded on demand: the charting library takes a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairij import load_later

if TYPE_CHECKING:
    from fairij.report.audit_page import write_audit
    from fairij.report.card import model_card
    from fairij.report.page import write_report
    from fairij.report.plots import frontier, group_rates, influence_curve

__all__ = [
    "frontier", "group_rates", "influence_curve", "model_card", "write_audit", "write_report",
]  # fmt: skip
_NAMES = {
    "audit_page": "write_audit",
    "card": "model_card",
    "page": "write_report",
    "plots": "frontier group_rates influence_curve",
}
__getattr__ = load_later(__name__, _NAMES)
