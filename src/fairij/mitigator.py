"""`FairIJ`: the scikit-learn-style face of the whole flow."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from fairij._version import __version__
from fairij.edits import Edit, data_fingerprint
from fairij.errors import InvalidInputError, SmallGroupWarning
from fairij.fairness.audit import Audit, audit, audit_regression
from fairij.fairness.constraints import Constraint, Surrogate, get_constraint
from fairij.fairness.groups import encode_groups
from fairij.losses import Loss, get_loss, infer_loss
from fairij.mitigation import Mitigation, Outcome, Rows, Settings
from fairij.models import adapt
from fairij.models.base import Editable
from fairij.models.rows import n_rows, take_rows
from fairij.objective import Objective, normalised_weights
from fairij.progress import reporter
from fairij.search import Search, get_search
from fairij.selection import Selection, get_selection
from fairij.solvers import Solver, get_solver

SMALL_CELL = 30


class FairIJ(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
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
    search : which edits to try: "grid" (k by scale), "all_positive", "sequential", or an object
    selection : which edit to take: "lowest_gap", `AccuracyBudget`, `TargetGap`
    drop : "fairness", or "loss_aware" to drop only points that also raise the validation loss
    validation : "reuse" all validation rows for the gradient and the choice (the paper), "split"
        them, or "cross_fit" both halves; the latter two choose on rows the gradient did not see
    validation_fraction : split off the training rows when no validation rows are given
    temperature : sharpness T of the soft score sigmoid(T z) in the surrogate
    loss : the loss that the model was trained on, or "auto"
    weight_decay : the L2 term ``weight_decay |theta|^2 / 2`` that the training loss had
    parameters : which parameters may be edited (torch): "trainable", "all", names or patterns
    batch_size, memory_limit : rows at a time; bytes of graph kept between products
    confidence : level of the bootstrap intervals in `before_` and `after_`
    random_state : seed of every random choice
    verbose : True, False, or "auto": a progress bar on a terminal when the work is long

    Attributes
    ----------
    estimator_ : the edited copy, of the same type as ``estimator``
    influence_ : (N,) score of each training row; positive: dropping it lowers the gap
    loss_influence_ : (N,) the same on validation loss, with ``drop="loss_aware"``, else None
    dropped_ : the rows dropped, the most harmful first
    candidates_ : DataFrame of all edits tried; ``chosen_`` is the row taken
    before_, after_ : `Audit` on the rows that the choice was made on, hence optimistic
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
        memory_limit: int = 2**30,
        confidence: float = 0.95,
        random_state: int = 0,
        verbose: bool | str = "auto",
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
        """
        labels = _vector("y", y, n_rows(X))
        weight = (
            None if sample_weight is None else _vector("sample_weight", sample_weight, len(labels))
        )
        if X_val is None:
            X, labels, weight, X_val, y_val, sensitive_features_val = self._split_off(
                X, labels, weight, sensitive_features
            )
        elif y_val is None or sensitive_features_val is None:
            raise InvalidInputError(
                "Validation rows need labels and groups: pass `y_val` and "
                "`sensitive_features_val` with `X_val`."
            )
        editable = adapt(
            self.estimator,
            parameters=self.parameters,
            batch_size=self.batch_size,
            memory_limit=self.memory_limit,
        )
        model = editable.linearize(X)
        targets = self._targets(model.outputs, labels, _vector("y_val", y_val, n_rows(X_val)))
        groups = encode_groups(sensitive_features_val, expected_rows=n_rows(X_val))
        rows = Rows(X_val, targets[1], groups)
        constraint = self._checked_constraint(rows)
        theta = editable.theta
        objective = Objective(
            model,
            targets[0],
            self.loss_,
            normalised_weights(_weight_tensor(weight), len(labels), theta),
            theta,
            torch.as_tensor(self._checked_weight_decay(), dtype=theta.dtype, device=theta.device),
        )
        with reporter(self.verbose) as progress:
            settings = self._settings(constraint)
            outcome = Mitigation(editable, objective, rows, settings, progress).run()
        self._keep(editable, outcome, data_fingerprint(X, targets[0]))
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels (or values) by the edited model; no group is needed."""
        index = self.loss_.predict(self._outputs(X)).cpu().numpy()
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
        """The edited model's outputs: one logit, or one per class."""
        return self._outputs(X).cpu().numpy()

    def score(self, X: Any, y: Any) -> float:
        """Accuracy, or R^2 in regression."""
        predicted, truth = self.predict(X), np.asarray(y)
        if self.loss_.is_classification:
            return float((predicted == truth).mean())
        return float(1 - ((predicted - truth) ** 2).mean() / truth.var())

    def _outputs(self, X: Any) -> Tensor:
        check_is_fitted(self, "estimator_")
        return adapt(self.estimator_, parameters="all", batch_size=self.batch_size).outputs(X)

    def _targets(self, z: Tensor, y: NDArray[Any], y_val: NDArray[Any]) -> tuple[Tensor, Tensor]:
        """Labels as the loss takes them; sets ``loss_`` and ``classes_``."""
        named = None if self.loss == "auto" else get_loss(self.loss)
        if named is not None and not named.is_classification:
            self.loss_, self.classes_ = named, np.empty(0)
            encoded: list[NDArray[Any]] = [
                _real(name, v) for name, v in (("y", y), ("y_val", y_val))
            ]
        else:
            self.classes_ = _classes(y, y_val, z)
            encoded = [_encode(name, v, self.classes_) for name, v in (("y", y), ("y_val", y_val))]
        tensors = [torch.as_tensor(v, dtype=z.dtype, device=z.device) for v in encoded]
        self.loss_ = named or infer_loss(z, tensors[0])
        self.loss_.check(z, tensors[0])
        self.loss_.check(z[:1].expand(len(tensors[1]), *z.shape[1:]), tensors[1])
        if not bool(torch.isfinite(z).all()):
            raise InvalidInputError(
                "The model's outputs on the training rows must be finite; found NaN or infinity."
            )
        return tensors[0], tensors[1]

    def _checked_constraint(self, rows: Rows) -> Constraint:
        constraint = get_constraint(self.constraints)
        if not constraint.takes_outputs:
            if constraint.is_classification != self.loss_.is_classification:
                kind = "classification" if self.loss_.is_classification else "regression"
                raise InvalidInputError(
                    f"The constraint {constraint.name!r} is not defined for {kind}."
                )
            _check_groups(rows, constraint, len(self.classes_))
        return constraint

    def _checked_weight_decay(self) -> float:
        if not self.weight_decay >= 0:
            raise InvalidInputError(
                f"`weight_decay` must not be negative, got {self.weight_decay}."
            )
        return self.weight_decay

    def _settings(self, constraint: Constraint) -> Settings:
        for name, value, allowed in (
            ("drop", self.drop, ("fairness", "loss_aware")),
            ("validation", self.validation, ("reuse", "split", "cross_fit")),
        ):
            if value not in allowed:
                raise InvalidInputError(f"`{name}` must be one of {allowed}, got {value!r}.")
        if not self.temperature > 0:
            raise InvalidInputError(f"`temperature` must be positive, got {self.temperature}.")
        damping: Any = self.damping
        if isinstance(damping, str):
            if damping != "auto":
                raise InvalidInputError(
                    f"`damping` must be a positive number, several, or 'auto', got {damping!r}."
                )
        else:
            damping = tuple(float(d) for d in np.atleast_1d(damping))
        return Settings(
            constraint=constraint,
            loss=self.loss_,
            solver=get_solver(self.solver),
            curvature=self.curvature,
            dampings=damping,
            search=get_search(self.search),
            selection=get_selection(self.selection),
            drop=self.drop,  # type: ignore[arg-type]
            validation=self.validation,  # type: ignore[arg-type]
            temperature=self.temperature,
            n_classes=len(self.classes_),
            seed=self.random_state,
        )

    def _keep(self, editable: Editable, outcome: Outcome, data: str) -> None:
        theta = editable.theta
        delta = outcome.delta.to(theta)
        row: dict[str, Any] = outcome.candidates.iloc[outcome.chosen].to_dict()  # type: ignore[assignment]
        self.influence_ = outcome.influence.cpu().numpy()
        self.loss_influence_ = (
            None if outcome.loss_influence is None else outcome.loss_influence.cpu().numpy()
        )
        self.dropped_ = outcome.dropped
        self.candidates_ = outcome.candidates
        self.chosen_ = outcome.chosen
        self.diagnostics_ = outcome.diagnostics
        self.edit_ = Edit(
            before=theta.cpu().clone(),
            delta=delta.cpu().clone(),
            dropped=outcome.dropped,
            parameter_names=tuple(editable.parameter_names),
            frame=editable.frame_fingerprint(),
            data=data,
            settings={
                "constraint": get_constraint(self.constraints).name,
                "k": int(row["k"]),
                "scale": float(row["scale"]),
                "damping": float(row["damping"]),
                "solver": outcome.diagnostics["solver"],
                "curvature": outcome.diagnostics["curvature"],
                "temperature": self.temperature,
                "random_state": self.random_state,
                "version": __version__,
            },
        )
        self.estimator_ = editable.edited(self.edit_.after.to(theta))
        self.before_ = self._audit(editable, theta, outcome.judged)
        self.after_ = self._audit(editable, self.edit_.after.to(theta), outcome.judged)

    def _audit(self, editable: Editable, theta: Tensor, rows: Rows) -> Audit:
        predicted = self.loss_.predict(editable.outputs(rows.X, theta)).cpu().numpy()
        take: Any = audit if self.loss_.is_classification else audit_regression
        truth = rows.y.cpu().numpy()
        if self.loss_.is_classification:
            predicted, truth = self.classes_[predicted], self.classes_[truth.astype(int)]
        named = np.array(rows.groups.names, dtype=object)[rows.groups.codes]
        return take(
            truth,
            predicted,
            sensitive_features=named,
            confidence=self.confidence,
            random_state=self.random_state,
        )

    def _split_off(
        self, X: Any, y: NDArray[Any], weight: NDArray[Any] | None, sensitive_features: Any
    ) -> tuple[Any, ...]:
        if sensitive_features is None:
            raise InvalidInputError(
                "Groups are needed on some rows: pass validation rows (`X_val`, `y_val`, "
                "`sensitive_features_val`), or `sensitive_features` for the training rows."
            )
        if not 0 < self.validation_fraction < 1:
            raise InvalidInputError(
                f"`validation_fraction` must lie between 0 and 1, got {self.validation_fraction}."
            )
        groups = encode_groups(sensitive_features, expected_rows=len(y))
        rng = np.random.default_rng(self.random_state)
        held = np.zeros(len(y), dtype=bool)
        for code in range(len(groups.names)):
            members = rng.permutation(np.flatnonzero(groups.codes == code))
            held[members[: max(1, round(self.validation_fraction * len(members)))]] = True
        inside, outside = np.flatnonzero(~held), np.flatnonzero(held)
        return (
            take_rows(X, inside),
            y[inside],
            None if weight is None else weight[inside],
            take_rows(X, outside),
            y[outside],
            groups.take(outside),
        )

    def __sklearn_clone__(self) -> FairIJ:
        """A new FairIJ with the same settings; the fitted model stays fitted."""
        settings = self.get_params(deep=False)
        return type(self)(
            **{
                name: copy.copy(value) if name != "estimator" else value
                for name, value in settings.items()
            }
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        regression = self.loss == "squared_error"
        tags.estimator_type = "regressor" if regression else "classifier"
        return tags


def _check_groups(rows: Rows, constraint: Constraint, n_classes: int) -> None:
    groups = rows.groups
    if groups.absent:
        raise InvalidInputError(
            f"The group(s) {', '.join(groups.absent)} have no validation row, so their gap is "
            "unknown: add rows of theirs, or remove the unused categories."
        )
    if len(groups.names) < 2:
        raise InvalidInputError(
            "A gap needs at least two groups on the validation rows, found only "
            f"{groups.names[0]!r}."
        )
    cells = {name: int(n) for name, n in zip(groups.names, groups.sizes, strict=True)}
    if constraint.needs_truth:
        needed = range(n_classes) if n_classes > 2 or "odds" in constraint.name else [1]
        truth = rows.y.cpu().numpy()
        cells = {
            f"{name} with label {label}": int(((groups.codes == code) & (truth == label)).sum())
            for code, name in enumerate(groups.names)
            for label in needed
        }
    few = {name: n for name, n in cells.items() if n < 2}
    if few:
        raise InvalidInputError(
            "Every group needs at least two validation rows"
            + (" of each label that the constraint looks at" if constraint.needs_truth else "")
            + "; found "
            + ", ".join(f"{n} of {name!r}" for name, n in few.items())
            + ". Add validation rows, merge groups, or choose another constraint."
        )
    small = {name: n for name, n in cells.items() if n < SMALL_CELL}
    if small:
        warnings.warn(
            "Few validation rows: "
            + ", ".join(f"{n} of {name!r}" for name, n in small.items())
            + f". Rates over fewer than {SMALL_CELL} rows are very uncertain; see the intervals "
            "in `before_` and `after_`.",
            SmallGroupWarning,
            stacklevel=4,
        )


def _vector(name: str, values: Any, rows: int) -> NDArray[Any]:
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (rows,):
        raise InvalidInputError(
            f"`{name}` must have one value per row of its features: expected {rows}, got shape "
            f"{array.shape}."
        )
    if rows == 0:
        raise InvalidInputError(f"`{name}` must not be empty.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InvalidInputError(
            f"`{name}` must be finite: row {int(np.flatnonzero(~np.isfinite(array))[0])} is not."
        )
    return array


def _weight_tensor(weight: NDArray[Any] | None) -> Tensor | None:
    if weight is None:
        return None
    values = _real("sample_weight", weight)
    if (values < 0).any() or values.sum() == 0:
        raise InvalidInputError("`sample_weight` must not be negative and not all zero.")
    return torch.as_tensor(values)


def _real(name: str, values: NDArray[Any]) -> NDArray[np.float64]:
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"`{name}` must be numbers, got {values.dtype}.") from None


def _classes(y: NDArray[Any], y_val: NDArray[Any], z: Tensor) -> NDArray[Any]:
    """The class labels in the order of the model's outputs."""
    found = np.unique(y.astype(object).astype(str) if y.dtype.kind == "O" else y)
    if z.ndim == 2:
        indices = np.arange(z.shape[1])
        if found.dtype.kind in "iufb" and np.isin(found, indices).all():
            return indices
        if len(found) == z.shape[1]:
            return found
        raise InvalidInputError(
            f"The model has {z.shape[1]} outputs, so labels must be 0 to {z.shape[1] - 1} or have "
            f"as many distinct values; found {found[:8].tolist()}."
        )
    if len(found) == 2:
        return found
    if len(found) == 1:
        raise InvalidInputError(
            f"The training labels must hold both classes, found only {found[0]!r}."
        )
    raise InvalidInputError(
        f"A model with one output takes two classes, found {len(found)} label values "
        f"({found[:5].tolist()}...); pass loss='squared_error' for regression."
    )


def _encode(name: str, y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    values = y.astype(str) if classes.dtype.kind == "U" else y
    place = np.searchsorted(classes, values).clip(0, len(classes) - 1)
    unknown = classes[place] != values
    if unknown.any():
        raise InvalidInputError(
            f"`{name}` holds label {values[unknown][0]!r}, which is none of {classes.tolist()}."
        )
    return place.astype(np.int64)
