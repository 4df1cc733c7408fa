"""Pages and plots of a result, loaded on demand: the charting library takes a moment."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairij.report.page import write_report
    from fairij.report.plots import frontier, group_rates, influence_curve

__all__ = ["frontier", "group_rates", "influence_curve", "write_report"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fairij.report' has no attribute {name!r}")
    module = "page" if name == "write_report" else "plots"
    return getattr(import_module(f"fairij.report.{module}"), name)
