"""`FairIJ`: the scikit-learn-style face of the whole flow."""

from __future__ import annotations

import copy
import os
import re
import warnings
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_regressor
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from fairij._version import __version__
from fairij.data.checks import (
    Data,
    dampings,
    has_method,
    number_between,
    one_of,
    vector,
    whole_number,
)
from fairij.data.labels import (
    check_constraint,
    check_precision,
    check_runs,
)
from fairij.data.rows import Columns, n_rows
from fairij.data.sources import as_source
from fairij.errors import FairIJWarning, InvalidInputError, SeenRowsWarning
from fairij.fairness.audit import Audit
from fairij.fairness.constraints import Constraint, Surrogate, get_constraint
from fairij.fairness.optimism import HonestGap
from fairij.method.curvature import CURVATURES
from fairij.method.display import Display
from fairij.method.engine import Mitigation
from fairij.method.losses import LOSSES, Loss, get_loss
from fairij.method.preparation import prepare
from fairij.method.progress import reporter, timed
from fairij.method.results import audited, by_given_row, choice_of, edit_of
from fairij.method.search.base import Search
from fairij.method.search.dropping import get_search
from fairij.method.search.reweighting import Path
from fairij.method.selection import Selection, get_selection
from fairij.method.types import Drop, Outcome, Reuse, Rows, Settings
from fairij.models import adapt
from fairij.models.base import Editable
from fairij.scale.agreement import check_agreement, shared_seed
from fairij.scale.checkpoints import Journal, JournaledEditable
from fairij.scale.collectives import all_or_none, from_all, processes
from fairij.scale.fingerprints import data_fingerprint, fingerprint, meanwhile
from fairij.scale.sharding import DistributedEditable, whole_column
from fairij.scale.streaming import StreamedEditable
from fairij.solvers import SOLVERS, Solver, get_solver

NOT_FACTS = ("estimator", "checkpoint", "verbose", "confidence", "constraints")


class FairIJ(Display, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Edit a fitted model so that a group gap shrinks, without training it again.

    Finds the training rows that push the gap up and moves the model's parameters as if it had
    been trained without the worst k of them. The group is needed on validation rows only.

    Parameters
    ----------
    estimator : the fitted model; it is never changed
    constraints : what to make small: a name in `fairij.CONSTRAINTS` or a function of
        (outputs, y, groups) that returns a differentiable scalar
    solver : how to solve with the curvature: a name in `fairij.SOLVERS` or a solver object
    damping : added to the curvature's diagonal; several values are tried and chosen among on
        validation rows; "auto" is a hundredth of the largest eigenvalue
    curvature : "ggn", "empirical_fisher" or "hessian"
    search : which edits to try: "grid" (k by scale), "all_positive" or "sequential" drop rows;
        "reweight" lowers each row's weight in proportion to its influence, "path" goes in many
        small steps; or an object, as in ``Grid(max_k=500)``
    selection : which edit to take: "lowest_gap" (whatever it costs), `LowestGap(slack=...)`,
        `AccuracyBudget`, `TargetGap`
    drop : "fairness", or "loss_aware" to drop (or reweight) only points that also raise the
        validation loss; not with "path"
    validation : "reuse" all validation rows for the gradient and the choice (the paper), "split"
        them into halves, or "cross_fit": five folds, each judged by edits made without it (two for
        "sequential", regression and one's own constraints); these two choose on rows that the
        gradient did not see
    validation_fraction : split off the training rows when no validation rows are given
    temperature : sharpness T of the soft score sigmoid(T z) in the surrogate
    loss : the loss that the model was trained on, or "auto"
    weight_decay : the L2 term ``weight_decay |theta|^2 / 2`` that the training loss had; it adds
        to what a scikit-learn estimator says of itself (C, alpha)
    parameters : which parameters may be edited (torch): "trainable", "all", names or patterns
    batch_size, memory_limit : rows at a time; bytes kept between passes, of graphs (torch) and, of
        streamed rows, of the rows or their leaves; with 0 (torch) vectors with an entry a row lie
        in temporary files, ``influence_`` too, as they do for streamed rows
    confidence : level of the bootstrap intervals in `before_` and `after_`
    random_state : seed of every random choice; None for one drawn anew and kept in ``edit_``
    verbose : True, False, or "auto": a progress bar on a terminal when the work is long
    checkpoint : a folder in which the work is written down as it is done; the same fit with the
        same folder goes on where it was stopped, and ends with the same bits
    holdout_fraction : of the validation rows, kept away from the gradient and from the choice

    Attributes
    ----------
    estimator_ : the edited copy, of the same type as ``estimator``
    influence_ : (N,) score of each row of X; positive: dropping it lowers the gap; NaN for rows
        that were split off for validation
    direction_ : (D,) ``(H + damping I)^-1 grad M``, from which any row can be scored
    loss_influence_ : (N,) the same on validation loss, with ``drop="loss_aware"``, else None
    dropped_ : the rows of X dropped, the most harmful first
    candidates_ : DataFrame of all edits tried; ``chosen_`` is the row taken
    moves_ : (R, D) the change of the parameters by each candidate, with "reweight" and "path"
        (where no row is dropped whole, and ``dropped_`` is empty) unless "cross_fit", else None
    before_, after_ : `Audit` on the rows that the choice was made on, hence optimistic
    honest_gap_ : what to expect of the chosen edit's gap on fresh rows, with an interval, by making
        the choice (not the edits) again on resamples: with "reuse" it does not know of rows that
        the gradient fitted, see `fairij.fairness.optimism`; None with "cross_fit", in regression,
        for one's own constraints and for more than 131,072 rows of the choice
    holdout_before_, holdout_after_ : `Audit` on rows that played no part, with
        ``holdout_fraction``, else None
    edit_ : the `Edit`, which can be saved, applied and undone
    diagnostics_ : damping, residuals, gradient norm, predicted and actual surrogate, seconds
    """

    def __init__(
        self,
        estimator: Any,
        *,
        constraints: str | Constraint | Surrogate = "demographic_parity",
        solver: str | Solver = "cg",
        damping: float | Sequence[float] | str = 1e-2,
        curvature: str = "ggn",
        search: str | Search = "grid",
        selection: str | Selection = "lowest_gap",
        drop: str = "fairness",
        validation: str = "reuse",
        validation_fraction: float = 0.3,
        temperature: float = 1.0,
        loss: str | Loss = "auto",
        weight_decay: float = 0.0,
        parameters: str | Sequence[str] = "trainable",
        batch_size: int | str = "auto",
        memory_limit: int = 2**28,
        confidence: float = 0.95,
        random_state: int | None = 0,
        verbose: bool | str = "auto",
        checkpoint: str | os.PathLike[str] | None = None,
        holdout_fraction: float = 0.0,
    ) -> None:
        self.estimator = estimator
        self.constraints = constraints
        self.solver = solver
        self.damping = damping
        self.curvature = curvature
        self.search = search
        self.selection = selection
        self.drop = drop
        self.validation = validation
        self.validation_fraction = validation_fraction
        self.temperature = temperature
        self.loss = loss
        self.weight_decay = weight_decay
        self.parameters = parameters
        self.batch_size = batch_size
        self.memory_limit = memory_limit
        self.confidence = confidence
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.holdout_fraction = holdout_fraction

    @all_or_none
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
        """Score the training rows, search the edits, keep the chosen one.

        Give the rows that the model was trained on, and validation rows with their groups; or
        only training rows with ``sensitive_features``, of which a fraction is then split off.
        Rows may be a `fairij.data.sources.Source`, which is read as it is needed; labels, weights
        and groups are then arrays or the names of columns.
        ``sample_weight`` is what the model was fitted with; an estimator's own ``class_weight``
        is taken into account by itself.
        """
        seed = shared_seed(self._seed())
        choices = self._choices(seed)
        X, X_val = as_source(X), as_source(X_val)
        y = whole_column(X, y)
        data = self._data(
            X, y, sample_weight, sensitive_features, X_val, y_val, sensitive_features_val, seed=seed
        )
        editable = self._adapt(self.estimator, self.parameters)
        facts = cache(partial(self._facts, editable, data, choices))  # all rows may be read for it
        check_agreement(facts)
        journal = None if self.checkpoint is None else Journal.open(self.checkpoint, facts())
        if journal is not None:
            editable = JournaledEditable(editable, journal)
            choices["solver"] = copy.deepcopy(choices["solver"])  # one that knows of no other fit
        seconds: dict[str, float] = {}
        rows = meanwhile(partial(data_fingerprint, X, y), X)
        with timed(seconds, "linearize"):
            given = prepare(
                editable,
                data,
                loss=self.loss,
                weight_decay=self.weight_decay,
                reused=self.validation == "reuse",
                holdout_fraction=self.holdout_fraction,
                seed=seed,
            )
        for caveat in given.caveats:
            warnings.warn(caveat, FairIJWarning, stacklevel=3)
        labels, groups = given.labels, given.validation.groups
        constraint = get_constraint(self.constraints)
        check_constraint(constraint, labels, groups, stacklevel=3)
        check_precision(constraint, labels, groups, choices["selection"], stacklevel=3)
        settings = Settings(
            constraint, labels.loss, n_classes=len(labels.classes), seed=seed, **choices
        )
        with reporter(self.verbose if self.verbose == "auto" else bool(self.verbose)) as progress:
            outcome = Mitigation(
                editable, given.objective, given.validation, settings, progress
            ).run()
        if journal is not None:
            journal.write()
        self.loss_, self.classes_ = labels.loss, labels.classes
        self._remember_columns(X)
        self._keep_scores(outcome, data.rows, n_rows(X))
        seconds |= outcome.diagnostics["seconds"]
        with timed(seconds, "fingerprints"):
            self.edit_ = edit_of(
                editable,
                outcome,
                settings,
                dropped=self.dropped_,
                data=rows(),
                weight_decay=self.weight_decay,
            )
            self.estimator_ = editable.edited(self.edit_.after.to(editable.theta))
        with timed(seconds, "audits"):
            self._keep_audits(editable, outcome.judged, given.held, seed)
        self._honest_gap: HonestGap | None = None
        self._choice = choice_of(outcome, settings, self.confidence)
        self.diagnostics_ |= {"seconds": seconds, "caveats": list(given.caveats)}
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels (or values) by the edited model; no group is needed."""
        z = self._outputs(X)
        index = self.loss_.predict(z).cpu().numpy()
        return self.classes_[index] if self.loss_.is_classification else index

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Class probabilities by the edited model, columns as in ``classes_``."""
        z = self._outputs(X)
        if not self.loss_.is_classification:
            raise InvalidInputError("A regression model has no class probabilities; use `predict`.")
        if z.ndim == 1:
            p = torch.sigmoid(z)
            return torch.stack([1 - p, p], 1).cpu().numpy()
        return torch.softmax(z, 1).cpu().numpy()

    def decision_function(self, X: Any) -> NDArray[Any]:
        """The edited model's outputs: the log-odds of the second of two classes, or one a class."""
        z = self._outputs(X)
        if z.ndim == 2 and z.shape[1] == 2:
            z = z[:, 1] - z[:, 0]
        return z.cpu().numpy()

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy, or R^2 in regression."""
        predicted, truth = self.predict(X), vector("y", y, n_rows(X))
        metric = accuracy_score if self.loss_.is_classification else r2_score
        return float(metric(truth, predicted, sample_weight=sample_weight))

    def editable(self) -> Editable:
        """The model as it was given, seen through the parameters that were edited."""
        check_is_fitted(self, "estimator_")
        return self._adapt(self.estimator, self.edit_.parameter_names)

    def _outputs(self, X: Any) -> Tensor:
        check_is_fitted(self, "estimator_")
        X = as_source(X)
        if n_rows(X) == 0:
            raise InvalidInputError("`X` must not be empty: there are 0 rows to predict.")
        Columns(
            (self.n_features_in_,) if hasattr(self, "n_features_in_") else (),
            tuple(getattr(self, "feature_names_in_", ())),
        ).check("X", X)
        editable = self._adapt(self.estimator_, self.edit_.parameter_names)
        check_runs("X", editable, X)
        return editable.outputs(X)

    def _adapt(self, estimator: Any, parameters: str | Sequence[str]) -> Editable:
        batch = self.batch_size
        limit = whole_number("memory_limit", self.memory_limit, 0)
        editable = adapt(
            estimator,
            parameters=parameters,
            batch_size=batch
            if isinstance(batch, str) and batch == "auto"
            else whole_number("batch_size", batch, 1, otherwise=" or 'auto'"),
            memory_limit=limit,
        )
        return DistributedEditable(StreamedEditable(editable, limit))

    def _facts(self, editable: Editable, data: Data, choices: dict[str, Any]) -> dict[str, str]:
        """What a run depends on, by name, as short texts."""
        kept = self.checkpoint is not None
        if len(set(from_all(kept))) > 1:
            raise InvalidInputError(
                "`checkpoint` must be given on all processes or on none, but some have one and "
                "others have none: pass the same folder on each."
            )
        if kept and self.random_state is None:
            raise InvalidInputError(
                "`random_state` must be a whole number where there is a `checkpoint`, got None: "
                "each run would draw a seed of its own, and none could go on with another's work. "
                "Pass random_state=0, or any other."
            )
        asked = {n: v for n, v in self.get_params(deep=False).items() if n not in NOT_FACTS}
        settings = asked | choices | {"constraints": get_constraint(self.constraints).name}
        weights = torch.ones(1) if data.weight is None else data.weight
        return {
            "model": editable.frame_fingerprint()[:16],
            "parameters": fingerprint(editable.theta),
            "training rows": data_fingerprint(data.X, data.y, every_row=kept)[:16],
            "sample weights": fingerprint(weights),
            "validation rows": data_fingerprint(data.X_val, data.y_val, every_row=kept)[:16],
            "groups": fingerprint(torch.as_tensor(data.groups.codes)),
            "settings": re.sub("0x[0-9a-f]+", "", repr(settings)),  # an address is not a setting
            "processes": str(processes()),
            "device": str(editable.theta.device),
            "versions": f"fairij {__version__}, torch {torch.__version__}",
        }

    def _data(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        sensitive_features: Any,
        X_val: Any,
        y_val: Any,
        sensitive_features_val: Any,
        *,
        seed: int,
    ) -> Data:
        """Rows for training and validation, those given or some split off."""
        weight = whole_column(X, sample_weight)
        truth_val = whole_column(X_val, y_val)
        groups_val = whole_column(X_val, sensitive_features_val)
        groups, fraction = whole_column(X, sensitive_features), self.validation_fraction
        if X_val is None and truth_val is None and groups_val is None:
            data = Data.split(X, y, weight, groups, fraction=fraction, seed=seed)
            warnings.warn(
                "The validation rows are split off `X`. If the model was trained on them too, it "
                "knows them, and what is measured and chosen on them flatters it: give rows that "
                "it was not trained on as `X_val`, `y_val` and `sensitive_features_val`.",
                SeenRowsWarning,
                stacklevel=4,
            )
            return data
        return Data.given(X, y, weight, X_val, truth_val, groups_val)

    def _remember_columns(self, X: Any) -> None:
        """``n_features_in_`` and ``feature_names_in_``, as scikit-learn has them."""
        columns = Columns.of(X)
        for name, value in (
            ("n_features_in_", columns.width[0] if len(columns.width) == 1 else None),
            ("feature_names_in_", np.array(columns.names, object) if columns.names else None),
        ):
            if value is not None:
                setattr(self, name, value)
            elif hasattr(self, name):  # from an earlier fit
                delattr(self, name)

    def _seed(self) -> int:
        """``random_state``, or one drawn now (and recorded in ``edit_``) where it is None."""
        if self.random_state is None:
            return int(np.random.default_rng().integers(2**31))
        return whole_number("random_state", self.random_state, 0, otherwise=" or None")

    def _choices(self, seed: int) -> dict[str, Any]:
        """The settings that need no data to be checked."""
        number_between("confidence", self.confidence, 0, 1)
        number_between("weight_decay", self.weight_decay, 0, including_low=True)
        one_of("verbose", self.verbose, (True, False, "auto"))
        get_constraint(self.constraints)
        if not (isinstance(self.loss, str) and self.loss == "auto"):
            allowed = f"one of {sorted(LOSSES)}, 'auto' or a loss object"
            has_method("loss", get_loss(self.loss), "slope", allowed)
        solver = has_method(
            "solver",
            get_solver(self.solver),
            "prepare",
            f"one of {sorted(SOLVERS)} or a solver object, as in Woodbury(rows=500)",
        )
        if isinstance(self.solver, str):
            solver = solver.seeded(seed)
        search = get_search(self.search)
        if isinstance(search, Path) and self.drop == "loss_aware":
            raise InvalidInputError(
                "`drop`='loss_aware' must have a search that goes row by row, but search='path' "
                "has no say in which rows it reweights: use 'reweight', or one that drops rows."
            )
        return {
            "solver": solver,
            "curvature": one_of("curvature", self.curvature, sorted(CURVATURES)),
            "dampings": dampings(self.damping),
            "search": search,
            "selection": get_selection(self.selection),
            "drop": one_of("drop", self.drop, get_args(Drop)),
            "validation": one_of("validation", self.validation, get_args(Reuse)),
            "temperature": number_between("temperature", self.temperature, 0),
        }

    def _keep_scores(
        self, outcome: Outcome, train_rows: NDArray[np.int64] | None, rows: int
    ) -> None:
        on_loss = outcome.loss_influence
        self.influence_ = by_given_row(outcome.influence, train_rows, rows)
        self.loss_influence_ = None if on_loss is None else by_given_row(on_loss, train_rows, rows)
        self.dropped_ = outcome.dropped if train_rows is None else train_rows[outcome.dropped]
        self.direction_ = outcome.direction
        self.candidates_ = outcome.candidates
        self.chosen_ = outcome.chosen
        self.moves_ = None if outcome.moves is None else outcome.moves.cpu().numpy()
        self.diagnostics_ = outcome.diagnostics

    def _keep_audits(self, editable: Editable, judged: Rows, held: Rows | None, seed: int) -> None:
        before, after = editable.theta, self.edit_.after.to(editable.theta)

        def taken(theta: Tensor, rows: Rows) -> Audit:
            return audited(
                editable,
                theta,
                rows,
                loss=self.loss_,
                classes=self.classes_,
                confidence=self.confidence,
                seed=seed,
            )

        self.before_, self.after_ = taken(before, judged), taken(after, judged)
        self.holdout_before_, self.holdout_after_ = (
            None if held is None else taken(theta, held) for theta in (before, after)
        )

    @property
    def honest_gap_(self) -> HonestGap | None:
        """Made when it is first asked for."""
        check_is_fitted(self, "estimator_")
        if self._honest_gap is None and self._choice is not None:
            self._honest_gap, self._choice = self._choice.honest_gap(), None
        return self._honest_gap

    def __sklearn_clone__(self) -> FairIJ:
        """A new FairIJ with the same settings; the fitted model stays fitted."""
        clone = type(self)(
            **{
                name: value if name == "estimator" else copy.copy(value)
                for name, value in self.get_params(deep=False).items()
            }
        )
        if hasattr(self, "_metadata_request"):  # what set_fit_request asked for
            clone._metadata_request = copy.deepcopy(self._metadata_request)
        return clone

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        loss = LOSSES.get(self.loss) if isinstance(self.loss, str) else self.loss
        if getattr(loss, "is_classification", not _is_regressor(self.estimator)):
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        return tags


def _is_regressor(estimator: Any) -> bool:
    return hasattr(estimator, "__sklearn_tags__") and is_regressor(estimator)
