"""`FairIJ`: the scikit-learn-style face of the whole flow."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

from fairij.data.fit_data import data_of
from fairij.data.hashing import data_fingerprint, in_background
from fairij.data.processes import processes
from fairij.data.rows import n_rows
from fairij.data.sources import as_source, is_streamed
from fairij.errors import Notice
from fairij.fairness.constraints import Constraint, Surrogate
from fairij.method.engine import Engine
from fairij.method.preparation import prepare
from fairij.method.results import choice_of, results_of
from fairij.method.run import Run, timed
from fairij.method.search import Search
from fairij.method.selection import Selection
from fairij.method.settings import check_batches, check_seed, check_settings
from fairij.models import adapt
from fairij.models.base import Editable
from fairij.models.losses import Loss
from fairij.models.sklearn.meta_estimator import EditingEstimator
from fairij.solvers import Solver
from fairij.storage.edits import edit_of

if TYPE_CHECKING:
    import altair as alt


@dataclass(eq=False, repr=False)
class FairIJ(EditingEstimator):
    """Edit a fitted model so that a gap between groups shrinks, without training it again.

    Finds the training rows that push the gap up. Then moves the model's parameters as if it had
    been trained without the worst k of them. Groups are needed on validation rows only.

    Parameters
    ----------
    estimator : object
        The fitted model. It is never changed.
    constraints : str, Constraint or callable, default="demographic_parity"
        The gap to make small: a name in `fairij.CONSTRAINTS`, or a function of
        (outputs, y, groups) that returns a differentiable number.
    solver : str or Solver, default="cg"
        How to solve with the curvature: a name in `fairij.SOLVERS`, or a solver object.
    damping : float, sequence of float or "auto", default=1e-2
        Added to the diagonal of the curvature. Of several values the best on validation rows is
        chosen. "auto" is a hundredth of the largest eigenvalue.
    curvature : {"ggn", "empirical_fisher", "hessian"}, default="ggn"
        Which second derivative of the training loss to use.
    search : str or Search, default="grid"
        Which edits to try. "grid" (k by scale), "all_positive" and "sequential" drop rows.
        "reweight" lowers the weight of each harmful row. "path" moves in many small steps.
    selection : str or Selection, default="lowest_gap"
        Which edit to take. "lowest_gap" takes the smallest gap at any cost. See `LowestGap`,
        `AccuracyBudget` and `TargetGap`.
    drop : {"fairness", "loss_aware"}, default="fairness"
        "loss_aware" drops only rows that also raise the validation loss. Not for "path".
    validation : {"reuse", "split", "cross_fit"}, default="reuse"
        "reuse" takes gradient and choice from the same validation rows, as the paper does. "split"
        gives half of them to each. "cross_fit" judges each of five folds by edits made without it
        (two folds for "sequential", regression and your own constraints).
    validation_fraction : float, default=0.3
        The share of the training rows to split off if no validation rows are given.
    temperature : float, default=1.0
        Sharpness T of the soft score sigmoid(T z).
    loss : str or Loss, default="auto"
        The training loss of the model: a name in `fairij.LOSSES`, or a loss object.
    weight_decay : float, default=0.0
        The L2 term ``weight_decay |theta|^2 / 2`` of the training loss. It is added to the penalty
        that a scikit-learn estimator states itself (C, alpha).
    parameters : str or sequence of str, default="trainable"
        Which parameters may be edited (torch): "trainable", "all", names or patterns.
    batch_size : int or "auto", default="auto"
        Rows per batch.
    memory_limit : int, default=2**28
        Bytes to keep between passes. With 0, per-row vectors are stored in temporary files.
    confidence : float, default=0.95
        The level of the bootstrap intervals.
    random_state : int or None, default=0
        The seed of every random choice. None draws one and keeps it in ``edit_``.
    verbose : bool or "auto", default="auto"
        Whether to show progress. "auto" shows it on a terminal if the work is long.
    checkpoint : path or None, default=None
        A folder for results of finished work. The same fit with the same folder continues there.
    holdout_fraction : float, default=0.0
        The share of the validation rows that neither gradient nor choice may see.

    Attributes
    ----------
    estimator_ : object
        The edited copy, of the same type as ``estimator``.
    influence_ : ndarray of shape (N,)
        The score of each training row. Positive: dropping it lowers the gap. NaN for rows that
        were split off for validation.
    direction_ : Tensor of shape (D,)
        ``(H + damping I)^-1 grad M``, from which any row can be scored.
    loss_influence_ : ndarray of shape (N,) or None
        The same for the validation loss, with ``drop="loss_aware"``.
    dropped_ : ndarray of int
        The dropped rows, most harmful first. Empty for searches that drop none.
    candidates_, chosen_ : DataFrame, int
        All edits that were tried, and the row of the one that was taken.
    moves_ : ndarray of shape (R, D) or None
        The parameter change of each candidate ("reweight" and "path" only).
    before_, after_ : Audit
        Metrics on the rows that the choice was made on. The choice makes them optimistic.
    honest_gap_ : HonestGap or None
        The gap to expect on new rows, estimated by repeating the choice on bootstrap samples. None
        with "cross_fit", in regression, for your own constraints and above 131,072 rows.
    holdout_before_, holdout_after_ : Audit or None
        Metrics on the held-out rows, with ``holdout_fraction``.
    edit_ : Edit
        The edit, which can be saved, applied and undone.
    search_ : Search
        The search as an object.
    diagnostics_ : dict
        Damping, residuals, gradient norm, predicted and actual surrogate, seconds.
    """

    estimator: Any
    _: KW_ONLY
    constraints: str | Constraint | Surrogate = "demographic_parity"
    solver: str | Solver = "cg"
    damping: float | Sequence[float] | str = 1e-2
    curvature: str = "ggn"
    search: str | Search = "grid"
    selection: str | Selection = "lowest_gap"
    drop: str = "fairness"
    validation: str = "reuse"
    validation_fraction: float = 0.3
    temperature: float = 1.0
    loss: str | Loss = "auto"
    weight_decay: float = 0.0
    parameters: str | Sequence[str] = "trainable"
    batch_size: int | str = "auto"
    memory_limit: int = 2**28
    confidence: float = 0.95
    random_state: int | None = 0
    verbose: bool | str = "auto"
    checkpoint: str | os.PathLike[str] | None = None
    holdout_fraction: float = 0.0

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        X_val: Any = None,
        y_val: Any = None,
        sensitive_features_val: Any = None,
        sensitive_features: Any = None,
        sample_weight: Any = None,
    ) -> FairIJ:
        """Score the training rows, try edits, keep the chosen one.

        Give the rows that the model was trained on, and validation rows with their groups. Or give
        only training rows with ``sensitive_features``: then a share of them is split off. Rows may
        be a `fairij.data.sources.Source`, which is read in chunks; labels, weights and groups are
        then arrays or column names. ``sample_weight`` is what the model was fitted with. An
        estimator's own class weights are always taken into account.
        """
        run = run_for(X, X_val, checkpoint=self.checkpoint)
        train = (X, y, sample_weight, sensitive_features)
        validation = (X_val, y_val, sensitive_features_val)
        for notice in run.together(lambda: self._fit(run, train, validation)):
            warnings.warn(notice.text, notice.category, stacklevel=2)
        return self

    def _fit(self, run: Run, train: tuple[Any, ...], validation: tuple[Any, ...]) -> list[Notice]:
        from fairij.report.progress import reporter

        asked, seconds = self.get_params(deep=False), dict[str, float]()
        # settings
        settings = check_settings(asked, run.seed(check_seed(self.random_state)))
        # rows
        X, X_val = as_source(train[0]), as_source(validation[0])
        data = data_of((X, *train[1:]), (X_val, *validation[1:]), settings, run.column)
        # model
        editable = self._adapted(run, self.estimator, self.parameters)
        # identity
        editable, settings = run.recorded(editable, data, settings, asked)
        fingerprint = in_background(partial(data_fingerprint, X, data.y_as_given), X)
        # engine
        with timed(seconds, "linearize"):
            prepared = prepare(editable, data, settings)
        with reporter(settings.verbose) as progress:
            outcome = Engine(editable, prepared, settings, progress).run()
        run.finish()
        # results
        seconds |= outcome.diagnostics["seconds"]
        results = results_of(editable, prepared, settings, outcome, data.rows, n_rows(X), seconds)
        for name, value in vars(results).items():
            setattr(self, f"{name}_", value)
        self.edit_ = edit_of(editable, outcome, settings, results, data=fingerprint())
        self.estimator_ = editable.edited(self.edit_.after.to(editable.theta))
        self._remember_columns(X)
        self._honest_gap, self._choice = None, choice_of(outcome, settings)
        return [*data.notices, *prepared.notices, *outcome.notices]

    def editable(self) -> Editable:
        """The model as it was given, seen through the parameters that were edited."""
        check_is_fitted(self, "estimator_")
        return self._adapted(scaled_run(), self.estimator, self.edit_.parameter_names)

    def _edited_for(self, X: Any) -> Editable:
        return self._adapted(run_for(X), self.estimator_, self.edit_.parameter_names)

    def _adapted(self, run: Run, estimator: Any, parameters: str | Sequence[str]) -> Editable:
        batch_size, limit = check_batches(self.batch_size, self.memory_limit)
        model = adapt(estimator, parameters=parameters, batch_size=batch_size, memory_limit=limit)
        return run.editable(model, limit)

    def plot_frontier(self, *, performance: str | None = None) -> alt.LayerChart:
        """Every candidate's gap against its accuracy (or R^2) on validation rows."""
        return self._plots.frontier(self.candidates_, self.chosen_, performance=performance)

    def plot_influence(self) -> alt.LayerChart:
        """The sorted influence of the training rows, with the dropped ones shaded."""
        in_order = self._plots and self.edit_.settings["drop"] == "fairness"
        marked = len(self.dropped_) if in_order else 0
        return self._plots.influence_curve(self.influence_, marked=marked)

    def plot_group_rates(self) -> alt.HConcatChart:
        """Each group's rates before and after on validation rows, with intervals."""
        return self._plots.group_rates(self.before_.group_intervals, self.after_.group_intervals)

    @property
    def _plots(self) -> Any:
        check_is_fitted(self, "edit_")
        from fairij.report import plots  # loads the drawing library

        return plots

    def _html_repr(self) -> str:
        """What scikit-learn's notebook display asks for."""
        if not hasattr(self, "edit_"):
            return str(super()._html_repr())
        from fairij.report.summary import summary_html

        return summary_html(self)


def run_for(*tables: Any, checkpoint: Any = None) -> Run:
    """A plain run unless rows are streamed, there are several processes, or a checkpoint."""
    streamed = any(map(is_streamed, tables))
    if checkpoint is None and not streamed and processes() == 1:
        return Run()
    return scaled_run(checkpoint)


def scaled_run(checkpoint: Any = None) -> Run:
    from fairij.scale.run import ScaledRun

    return ScaledRun(checkpoint)
