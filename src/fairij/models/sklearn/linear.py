"""scikit-learn's linear models on dense or sparse rows; theta is ``coef_`` and ``intercept_``.

``z = X coef^T + intercept``, so the Jacobian consists of the features, and the GGN is the whole
Hessian. A sparse ``X`` stays sparse.

What the estimators minimise, in the engine's terms ``sum w_n l_n / W + l2 |coef|^2 / 2``:

* `LogisticRegression`: ``sum w l + |coef|^2 / 2C``, so l2 = 1 / (C W); liblinear also penalises the
  intercept, as the weight of a constant feature ``intercept_scaling``;
* `SGDClassifier`, `SGDRegressor`: ``sum w l / n + alpha |coef|^2 / 2``, so l2 = alpha n / W;
* `PoissonRegressor`, `GammaRegressor`, `TweedieRegressor`: ``sum w l / W + alpha |coef|^2 / 2``
  with half the deviance l of a mean ``exp(z)``, so l2 = alpha;
* `LinearDiscriminantAnalysis`: nothing of this kind. It is taken for a logistic regression that
  stopped at its coefficients, which predicts the same;
* `Ridge`, `RidgeCV`: ``sum w (z - y)^2 + alpha |coef|^2``, so l2 = alpha / W; `LinearRegression`:
  none.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from fairij.data.hashing import state_fingerprint
from fairij.data.rows import to_tensors
from fairij.errors import InvalidInputError
from fairij.models.base import EditableDefaults
from fairij.models.constant import ConstantLinearization, FeatureJacobian
from fairij.models.sklearn.estimators import caveats_of, check_columns, class_weighted, usual_loss
from fairij.models.whole import real_numbers


class LinearEditable(EditableDefaults):
    """A fitted linear estimator, seen through its coefficients."""

    def __init__(self, estimator: Any, *, parameters: str | Sequence[str] = "all", **_: Any):
        check_is_fitted(estimator)
        parents = {kind.__name__ for kind in type(estimator).__mro__}
        self._kind = next(KINDS[name] for name in KINDS if name in parents)
        _check(estimator, self._kind)
        self._estimator = estimator
        self._coef = real_numbers("coef_", estimator.coef_, 1, 2)
        self._n_outputs = 1 if self._coef.ndim == 1 else len(self._coef)
        self._has_intercept = bool(getattr(estimator, "fit_intercept", True))
        self.parameter_names = ["coef_", "intercept_"][: 1 + self._has_intercept]
        if parameters not in ("trainable", "all") and list(parameters) != self.parameter_names:
            raise InvalidInputError(
                "`parameters` must be 'all' or 'trainable' for a linear model, whose "
                f"{self.parameter_names} are edited together; got {parameters!r}."
            )
        pieces = [self._coef, real_numbers("intercept_", estimator.intercept_, 0, 1)]
        pieces = pieces[: len(self.parameter_names)]
        if self._has_intercept and pieces[1].size != self._n_outputs:
            raise InvalidInputError(
                f"The model's `intercept_` must have one value for each of its {self._n_outputs} "
                f"outputs, got {pieces[1].size}: load it from the file that its training saved."
            )
        self.theta = torch.cat([torch.tensor(piece).reshape(-1) for piece in pieces])
        self.classes = getattr(estimator, "classes_", None)
        usual = usual_loss(self.classes, self._n_outputs)
        self.loss_name = self._kind.loss(estimator) if self._kind.loss else usual
        self.caveats = (*caveats_of(estimator), *self._kind.caveats)
        self.l2(1, 1.0)  # raises if its settings are no numbers

    def row_weights(self, y: Tensor, weight: Tensor | None) -> Tensor | None:
        given, balance = getattr(self._estimator, "class_weight", None), self._kind.balance_weights
        return class_weighted(given, self.classes, y, weight, balance_weights=balance)

    def l2(self, rows: int, weight_sum: float) -> Tensor:
        on_coef, on_intercept = self._kind.l2(self._estimator, rows, weight_sum)
        l2 = torch.full_like(self.theta, on_coef)
        l2[self._coef.size :] = on_intercept
        return l2

    def linearize(self, X: Any, *, keep: bool = True) -> ConstantLinearization:
        jacobian = self._jacobian(X)
        return ConstantLinearization(jacobian.times(self.theta), jacobian)

    evaluator = linearize

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        theta = self.theta if theta is None else theta.to(self.theta)
        return self._jacobian(X).times(theta)

    def edited(self, theta: Tensor) -> Any:
        clone = copy.deepcopy(self._estimator)
        start = 0
        for name in self.parameter_names:
            old = np.asarray(getattr(clone, name))
            new = theta[start : start + old.size].detach().cpu().numpy().reshape(old.shape)
            # SGD has float32 coefficients of float32 rows, and a float64 intercept: widen them if
            # needed, and take them back where nothing is lost, as in undoing
            is_sgd = name == "coef_" and type(clone).__name__.startswith("SGD")
            stored = new.astype(np.float32 if is_sgd else old.dtype)
            stored = stored if np.array_equal(stored, new) else new.copy()
            setattr(clone, name, stored if old.ndim else stored[()])
            start += old.size
        return clone

    def frame_fingerprint(self) -> str:
        kept = {k: v for k, v in vars(self._estimator).items() if k not in self.parameter_names}
        return state_fingerprint(type(self._estimator).__name__, self._coef.shape, kept)

    def _jacobian(self, X: Any) -> FeatureJacobian:
        check_columns(self._estimator, X)
        if issparse(X):
            rows = _sparse_rows(X, self.theta.numpy().dtype)
        else:
            rows = to_tensors(X, dtype=self.theta.dtype, device=self.theta.device).to(self.theta)
        if rows.ndim != 2 or rows.shape[1] != self._coef.shape[-1]:
            raise InvalidInputError(
                f"`X` must have the {self._coef.shape[-1]} columns that the model was trained on; "
                f"got shape {tuple(rows.shape)}."
            )
        return FeatureJacobian(rows, self._n_outputs, self._has_intercept)


def _sparse_rows(X: Any, dtype: np.dtype[Any]) -> Any:
    rows = X.tocsr().astype(dtype)
    if not np.isfinite(rows.data).all():
        row = int(np.searchsorted(rows.indptr, np.flatnonzero(~np.isfinite(rows.data))[0], "right"))
        raise InvalidInputError(
            f"`X` must be finite: row {row - 1} holds NaN or infinity; impute such values, or drop "
            "those rows."
        )
    return rows


class Kind(NamedTuple):
    """What an estimator of one class minimises."""

    l2: Callable[[Any, int, float], tuple[float, float]]  # for coefficients, for the intercept
    losses: tuple[str, ...] = ()  # values of its `loss` setting that the engine supports
    one_output: bool = True
    balance_weights: bool = True
    loss: Callable[[Any], str] | None = None  # its name, if it is not the usual one
    caveats: tuple[str, ...] = ()


GENERATIVE = (
    "Linear discriminant analysis was fitted by means and a covariance, not by a loss of its "
    "predictions. An edit takes it for a logistic regression with these coefficients. Its means, "
    "covariance and `transform` stay as they were."
)
POWERS = {1.0: "poisson_deviance", 1.5: "tweedie_deviance", 2.0: "gamma_deviance"}


def _deviance(model: Any) -> str:
    """The loss of a generalised linear model."""
    names = {"PoissonRegressor": 1.0, "GammaRegressor": 2.0}
    kinds = [names[kind.__name__] for kind in type(model).__mro__ if kind.__name__ in names]
    power = kinds[0] if kinds else float(model.power)
    link = getattr(model, "link", "log")
    if power == 0 and link in ("auto", "identity"):
        return "squared_error"
    if power not in POWERS or link == "identity":
        raise InvalidInputError(
            f"A TweedieRegressor must have power 0, 1, 1.5 or 2 and its usual link, got "
            f"power={model.power:g} and link={model.link!r}: train it with one of those."
        )
    return POWERS[power]


def _glm(model: Any, rows: int, weight_sum: float) -> tuple[float, float]:
    return float(model.alpha), 0.0


def _logistic(model: Any, rows: int, weight_sum: float) -> tuple[float, float]:
    C = float(np.ravel(model.C_)[0]) if hasattr(model, "C_") else float(model.C)
    l2 = 0.0 if model.penalty is None else 1 / (C * weight_sum)
    on_intercept = l2 / model.intercept_scaling**2 if model.solver == "liblinear" else 0.0
    return l2, on_intercept


def _descent(model: Any, rows: int, weight_sum: float) -> tuple[float, float]:
    return 0.0 if model.penalty is None else float(model.alpha) * rows / weight_sum, 0.0


def _ridge(model: Any, rows: int, weight_sum: float) -> tuple[float, float]:
    alpha = model.alpha_ if hasattr(model, "alpha_") else model.alpha
    return float(np.ravel(alpha)[0]) / weight_sum, 0.0


KINDS: dict[str, Kind] = {
    "LogisticRegression": Kind(_logistic, one_output=False),  # and LogisticRegressionCV
    "SGDClassifier": Kind(_descent, ("log_loss",), balance_weights=False),
    "SGDRegressor": Kind(_descent, ("squared_error",)),
    "Ridge": Kind(_ridge),
    "RidgeCV": Kind(_ridge),
    "PoissonRegressor": Kind(_glm, loss=_deviance),
    "GammaRegressor": Kind(_glm, loss=_deviance),
    "TweedieRegressor": Kind(_glm, loss=_deviance),
    "LinearDiscriminantAnalysis": Kind(
        lambda model, rows, weight_sum: (0.0, 0.0), one_output=False, caveats=(GENERATIVE,)
    ),
    "LinearRegression": Kind(lambda model, rows, weight_sum: (0.0, 0.0)),
}


def _check(model: Any, kind: Kind) -> None:
    """Refuse a model that is not at the minimum of a smooth loss that the engine supports."""
    reason = None
    if issparse(model.coef_):
        reason = "its coefficients are sparse: call its `densify()` first"
    elif kind.losses and model.loss not in kind.losses:
        reason = f"its loss is {model.loss!r}, and only {', '.join(kind.losses)} can be edited"
    elif l1_share(model) > 0:
        reason = (
            "its L1 penalty has no derivative at zero coefficients, so the effect of dropping rows "
            "cannot be estimated: train it with an L2 penalty"
        )
    elif getattr(model, "positive", False):
        reason = "positive=True holds coefficients at a bound, and an edit would move them off it"
    elif _one_vs_rest(model, kind):
        reason = (
            "it is one-vs-rest, which has a separate model and loss for each class; train "
            "LogisticRegression(solver='lbfgs'), which is multinomial"
            if hasattr(model, "classes_")
            else f"it predicts {len(model.coef_)} targets at once: train one model per target"
        )
    elif getattr(model, "multi_class", None) == "multinomial" and len(model.coef_) == 1:
        reason = "multi_class='multinomial' on two classes halves its logit; leave it out"
    if reason:
        raise InvalidInputError(f"This {type(model).__name__} cannot be edited: {reason}.")


def _one_vs_rest(model: Any, kind: Kind) -> bool:
    several = np.ndim(model.coef_) == 2 and len(model.coef_) > 1
    apart = kind.one_output or model.solver == "liblinear"
    return several and (apart or getattr(model, "multi_class", None) == "ovr")


def l1_share(model: Any) -> float:
    """The L1 part of the penalty, 0 to 1, by scikit-learn's older and newer settings."""
    penalty = getattr(model, "penalty", None)
    if penalty not in ("elasticnet", "deprecated"):
        return float(penalty == "l1")
    ratio: Any = getattr(model, "l1_ratio_", getattr(model, "l1_ratio", 0.0))
    return float(np.ravel(ratio)[0] or 0.0)
