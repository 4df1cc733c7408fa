"""How a fitted `FairIJ` shows itself: plots for notebooks, and a short summary in a cell.

What draws is loaded only when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    import altair as alt


class Display:
    """Plots and the notebook summary, for a class that has the attributes of `FairIJ`."""

    def plot_frontier(self, *, performance: str | None = None) -> alt.LayerChart:
        """Every candidate's gap against its accuracy (or R^2) on validation rows."""
        from fairij.report.plots import frontier

        found: Any = self._fitted()
        table = found.candidates_.reset_index(drop=True)
        return frontier(table, found.chosen_, performance=performance)

    def plot_influence(self) -> alt.LayerChart:
        """The sorted influence of the training rows, those dropped shaded."""
        from fairij.report.plots import influence_curve

        found: Any = self._fitted()
        in_order = found.edit_.settings["drop"] == "fairness"
        return influence_curve(found.influence_, marked=len(found.dropped_) if in_order else 0)

    def plot_group_rates(self) -> alt.HConcatChart:
        """Each group's rates before and after on validation rows, with intervals."""
        from fairij.report.plots import group_rates

        found: Any = self._fitted()
        return group_rates(found.before_.group_intervals, found.after_.group_intervals)

    def _fitted(self) -> Any:
        check_is_fitted(self, "edit_")
        return self

    def _html_repr(self) -> str:
        """What scikit-learn's own notebook display asks for."""
        if not hasattr(self, "edit_"):
            return str(super()._html_repr())  # type: ignore[misc]
        from fairij.report.summary import summary_html

        return summary_html(self)
