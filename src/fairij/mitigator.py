"""`FairIJ`: the scikit-learn-style face of the whole flow."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Literal

from sklearn.utils.validation import check_is_fitted

from fairij.data.checks import data_of
from fairij.data.former import renamed
from fairij.data.hashing import data_fingerprint, in_background
from fairij.data.rows import as_source, is_streamed, n_rows, processes, remember_columns
from fairij.errors import Notice
from fairij.fairness.decisions import TopShare
from fairij.fairness.groups import MissingGroups
from fairij.fairness.joint import Asked
from fairij.method.curvature import CurvatureName
from fairij.method.engine import Engine
from fairij.method.preparation import (
    Drop,
    ValidationUse,
    check_batches,
    check_seed,
    check_settings,
    prepare,
)
from fairij.method.refit import refits_of
from fairij.method.results import attributes_of, choice_of, undefined_notices
from fairij.method.rules import RuleName
from fairij.method.run import Progress, Run, silent, timed
from fairij.method.search import SearchName
from fairij.method.search.base import Search
from fairij.method.selection import Selection
from fairij.method.settle import settled
from fairij.models import adapt
from fairij.models.base import Editable
from fairij.models.doubts import Outputs, outputs_asked
from fairij.models.losses import Loss, LossName
from fairij.models.sklearn.meta_estimator import EditingEstimator
from fairij.solvers import SolverName
from fairij.solvers.base import Solver
from fairij.storage.edits import edit_of


@renamed(validation="validation_use")
@dataclass(eq=False, repr=False)
class FairIJ(EditingEstimator):
    """Edit a fitted model so that a gap between groups shrinks, without training it again.

    Scores the training rows by how they push the gap up. Then moves the model's parameters to where
    the gap is small and the training loss as low as it can be there, or (``search="grid"``) as if
    the worst rows had been left out. Groups are needed on validation rows only.

    Parameters
    ----------
    estimator : object
        The fitted model. It is never changed.
    constraints : str, Constraint, callable or list, default="demographic_parity"
        The gap to make small: a name in `fairij.CONSTRAINTS`, a differentiable function of
        (outputs, y, groups), or a list of names and `Counterfactual`, closed together.
    selection : str or Selection, default="budget"
        Which edit to take: the smallest gap that costs little (`Budget`), or "lowest_gap".
    search : str or Search, default="auto"
        Which edits to try. "auto" takes the form of "constrained" that suits the model.
        "constrained" and "path" go in small steps; "grid" (k by scale, as in the paper),
        "all_positive" and "sequential" drop rows; "reweight" lowers the weights of harmful rows.
    threshold : float, TopShare or None, default=None
        Accept rows whose chance of ``pos_label`` is at least this, or a share of the rows.
    pos_label : label or None, default=None
        The favourable label of two. None: the second.
    validation_fraction : float, default=0.3
        The share of the training rows to split off if no validation rows are given.
    holdout_fraction : float, default=0.0
        The share of the validation rows that neither gradient nor choice may see.
    random_state : int or None, default=0
        The seed of every random choice. None draws one; ``edit_`` keeps it.
    verbose : bool or "auto", default="auto"
        Whether to show progress. "auto": if the work is long, a bar on a terminal, else a line of
        text every minute.

    Other Parameters
    ----------------
    solver : str or Solver, default="cg"
        How to solve with the curvature: a name in `fairij.SOLVERS`, or a solver object.
    damping : float, sequence of float or "auto", default=1e-2
        Added to the diagonal of the curvature. Of several values the best is chosen. "auto" is a
        hundredth of the largest eigenvalue: only for features of one scale.
    curvature : {"ggn", "empirical_fisher", "hessian"}, default="ggn"
        Which second derivative of the training loss to use.
    drop : {"fairness", "loss_aware"}, default="fairness"
        "loss_aware" drops only rows that also raise the validation loss. Not for "path".
    validation_use : {"auto", "reuse", "split", "cross_fit"}, default="auto"
        "reuse" takes gradient and choice from the same validation rows, as the paper does. "split"
        gives half of them to each. "cross_fit" judges each fold by edits made without it. "auto":
        "split" for the error or loss of the worst group, "reuse" otherwise.
    temperature : float or "auto", default="auto"
        Sharpness T of the soft score sigmoid(T z). "auto": 3 for a `BlackBox`, 1 otherwise.
    confidence : float, default=0.95
        The level of the intervals.
    missing_groups : {"error", "ignore"}, default="error"
        "ignore": rows without a group count for the performance only.
    marginals : bool, default=False
        Of several sensitive columns: close the gap of each column, not of their combinations.
    loss : str or Loss, default="auto"
        The training loss of the model: a name in `fairij.LOSSES`, or a loss object.
    outputs : {"auto", "logits", "probabilities"}, default="auto"
        What a torch module returns. "auto" finds out, and asks where it cannot tell.
    classes : sequence or None, default=None
        The labels in the order of the outputs, the negative of two first. None: as the model says.
    weight_decay : float, default=0.0
        The L2 term ``weight_decay |theta|^2 / 2`` of the training loss, besides the model's own.
    parameters : str or sequence of str, default="trainable"
        Which parameters may be edited (torch): "trainable", "all", names or patterns.
    batch_size : int or "auto", default="auto"
        Rows per batch.
    memory_limit : int, default=2**28
        Bytes to keep between passes. With 0, per-row vectors are stored in temporary files.
    checkpoint : path or None, default=None
        A folder for results of finished work. The same fit with the same folder continues there.

    Attributes
    ----------
    estimator_ : object
        The edited copy, of the same type as ``estimator``.
    influence_ : ndarray of shape (N,)
        To first order, how far dropping a training row lowers the smooth gap. NaN: split off.
    joint_influence_, loss_influence_ : ndarray of shape (N,) or None
        With three or more groups, or a balanced constraint: the score by which rows are dropped,
        for all gaps together. With ``drop="loss_aware"``: the score for the validation loss.
    direction_ : Tensor of shape (D,)
        ``(H + damping I)^-1 grad M``, from which any row's influence follows.
    dropped_, predicted_refits_ : ndarray of int, list of PredictedRefit
        The dropped rows, most harmful first, if the search drops any; what `predict_refit` found.
    candidates_, chosen_, moves_ : DataFrame, int, ndarray of shape (R, D) or None
        All edits that were tried, the row of the one taken; if no rows are dropped, each change.
    before_, after_, holdout_before_, holdout_after_ : Audit
        Metrics on the rows of the choice (so they are optimistic), and on held-out rows if any.
    honest_gap_ : HonestGap or None
        The gap to expect of an audit on as many new rows, with an interval, where that is known.
    edit_, threshold_ : Edit, float
        The edit, which can be saved, applied and undone; the cut-off of ``predict``.
    search_, diagnostics_ : Search, dict
        The search that was taken; damping, residuals, surrogates, seconds; with ``search="auto"``
        also why it was taken (``search_reason``).

    Examples
    --------
    >>> fair = FairIJ(model, verbose=False)
    >>> fair = fair.fit(X, y, X_val=X_val, y_val=y_val, sensitive_features_val=groups_val)
    >>> gap = "demographic_parity_difference"
    >>> bool(fair.after_[gap] < fair.before_[gap])
    True
    """

    estimator: Any
    _: KW_ONLY
    # what most people set
    constraints: Asked | Sequence[Asked] = "demographic_parity"
    selection: RuleName | Selection = "budget"
    search: SearchName | Search = "auto"
    threshold: float | TopShare | None = None
    pos_label: Any = None
    validation_fraction: float = 0.3
    holdout_fraction: float = 0.0
    random_state: int | None = 0
    verbose: bool | Literal["auto"] = "auto"
    # how edits are made and judged
    solver: SolverName | Solver = "cg"
    damping: float | Sequence[float] | Literal["auto"] = 1e-2
    curvature: CurvatureName = "ggn"
    drop: Drop = "fairness"
    validation_use: ValidationUse = "auto"
    temperature: float | Literal["auto"] = "auto"
    confidence: float = 0.95
    missing_groups: MissingGroups = "error"
    marginals: bool = False
    # what the model does not say of itself
    loss: Literal["auto"] | LossName | Loss = "auto"
    outputs: Outputs = "auto"
    classes: Sequence[Any] | None = None
    weight_decay: float = 0.0
    parameters: str | Sequence[str] = "trainable"
    # how the work is done
    batch_size: int | Literal["auto"] = "auto"
    memory_limit: int = 2**28
    checkpoint: str | os.PathLike[str] | None = None

    def fit(
        self, X: Any, y: Any, *, X_val: Any = None, y_val: Any = None,
        sensitive_features_val: Any = None, sensitive_features: Any = None,
        sample_weight: Any = None, sample_weight_val: Any = None, control_features_val: Any = None,
    ) -> FairIJ:  # fmt: skip
        """Score the training rows, try edits, keep the chosen one.

        Give training rows, and validation rows with groups (groups of training rows then also help
        to find the edit); or only training rows with ``sensitive_features``, to split a share off.
        A `Source` may name columns of labels, weights, groups. ``sample_weight``: as fitted with;
        ``sample_weight_val``: what validation rows count in all that is measured (surveys).
        ``control_features_val``: groups are compared within each stratum of these columns only.
        """
        run = run_for(X, X_val, checkpoint=self.checkpoint)
        train = X, y, sample_weight, sensitive_features
        validation = X_val, y_val, sample_weight_val, sensitive_features_val
        strata = control_features_val
        for notice in run.together(lambda: self._fit(run, train, validation, strata)):
            warnings.warn(notice.text, notice.category, stacklevel=2)
        return self

    def _fit(
        self, run: Run, train: tuple[Any, ...], validation: tuple[Any, ...], strata: Any
    ) -> list[Notice]:
        asked, seconds = self.get_params(deep=False), dict[str, float]()
        settings = check_settings(asked, run.seed(check_seed(self.random_state)))  # settings
        X, X_val = as_source(train[0]), as_source(validation[0])  # rows
        rows, held = (X, *train[1:]), (X_val, *validation[1:])
        how = (settings.split, run.column, self.missing_groups, strata)
        data = data_of(rows, held, *how, marginals=self.marginals)
        editable = self._adapted(run, self._laid_out(data), self.parameters)  # model
        settings = settings.suited_to(editable)
        editable, settings = run.recorded(editable, data, settings, asked)  # identity
        fingerprint = in_background(partial(data_fingerprint, X, data.y_as_given), X)
        with timed(seconds, "linearize"):
            prepared = prepare(editable, data, settings)
        with shown(settings.verbose) as progress:
            settings, why = settled(editable, prepared, settings, seconds)
            outcome = Engine(editable, prepared, settings, progress).run()  # engine
        run.finish()
        seconds |= outcome.diagnostics["seconds"]  # results
        outcome.diagnostics |= {"search_reason": why} if why else {}
        found = attributes_of(editable, prepared, settings, outcome, data.rows, n_rows(X), seconds)
        self.__dict__.update(found)
        self.edit_ = edit_of(editable, outcome, settings, found, fingerprint())
        self.estimator_ = editable.edited(self.edit_.after.to(editable.theta))
        self._honest_gap, self._choice = None, choice_of(outcome, settings)
        self._refits = refits_of(data.X, data.rows, prepared, settings, outcome)
        remember_columns(self, X)
        return [*data.notices, *prepared.notices, *outcome.notices, *undefined_notices(found)]

    def editable(self) -> Editable:
        """The model as it was given, seen through the parameters that were edited."""
        check_is_fitted(self, "estimator_")
        return self._adapted(run_for(plain=False), self._model, self.edit_.parameter_names)

    def _editable_for(self, estimator: Any, X: Any) -> Editable:
        return self._adapted(run_for(X), estimator, self.edit_.parameter_names)

    def _adapted(self, run: Run, estimator: Any, parameters: str | Sequence[str]) -> Editable:
        batch_size, limit = check_batches(self.batch_size, self.memory_limit)
        options = {"outputs": outputs_asked(self.outputs, self.loss), "parameters": parameters}
        model = adapt(estimator, batch_size=batch_size, memory_limit=limit, **options)
        return run.editable(model, limit)

    @property
    def _report(self) -> Any:
        check_is_fitted(self, "edit_")
        from fairij import report  # loads the drawing library

        return report

    def _html_repr(self) -> str:  # for scikit-learn's display in notebooks
        if not hasattr(self, "edit_"):
            return str(super()._html_repr())
        from fairij.report.headline import summary_html

        return summary_html(self)


def run_for(*tables: Any, checkpoint: Any = None, plain: bool = True) -> Run:
    """A plain run, unless rows are streamed, there are several processes, or a checkpoint."""
    if plain and checkpoint is None and processes() == 1 and not any(map(is_streamed, tables)):
        return Run()
    from fairij.scale.run import ScaledRun

    return ScaledRun(checkpoint)


def shown(verbose: bool | str) -> AbstractContextManager[Progress]:
    """Progress if it is asked for, or for "auto" if the work is long: a bar, or a line a minute."""
    if verbose is False:
        return nullcontext(silent)
    from fairij.report.progress import bar, lines

    if verbose == "auto" and not sys.stderr.isatty():
        return nullcontext(lines(ends=False))
    return bar(delay=0.0 if verbose is True else 2.0)
