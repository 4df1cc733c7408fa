"""statsmodels' fitted models: linear, logistic and generalised linear ones; theta is ``params``.

``z = X params``, with a constant among the columns of ``X`` if the model has one. The loss is the
negative log likelihood of the family, up to what does not depend on ``params``. There is no
penalty. A formula's columns are made by statsmodels itself.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.hashing import state_fingerprint
from fairij.data.rows import to_tensors
from fairij.errors import InvalidInputError
from fairij.models.base import EditableDefaults
from fairij.models.constant import ConstantLinearization, FeatureJacobian

NAME = "params"
MODELS = {  # classes of models -> the loss
    "OLS": "squared_error",
    "WLS": "squared_error",
    "Logit": "binary_cross_entropy",
    "Poisson": "poisson_deviance",
}
FAMILIES = {  # families and links of GLM -> the loss
    ("Gaussian", "Identity"): "squared_error",
    ("Binomial", "Logit"): "binary_cross_entropy",
    ("Poisson", "Log"): "poisson_deviance",
    ("Gamma", "Log"): "gamma_deviance",
}
TWEEDIE = 1.5
WEIGHTS = {"GLM": ("freq_weights", "var_weights"), "WLS": ("weights",)}
OF_THE_FIT = (
    "Standard errors, p-values and other inference of the edited results are those of the model as "
    "it was fitted. Only the parameters, and so the predictions, change."
)


class StatsmodelsEditable(EditableDefaults):
    """Results of statsmodels, seen through their parameters."""

    def __init__(self, results: Any, *, parameters: str | Sequence[str] = "all", **_: Any) -> None:
        wanted = [parameters] if isinstance(parameters, str) else list(parameters)
        if wanted not in (["trainable"], ["all"], [NAME]):
            raise InvalidInputError(
                f"`parameters` must be 'all' or 'trainable' for a model of statsmodels, whose "
                f"params are edited together; got {parameters!r}."
            )
        self._results = results
        self.loss_name = _loss(results)
        params = np.asarray(results.params, dtype=np.float64)
        if params.ndim != 1 or not np.isfinite(params).all():
            raise InvalidInputError(
                "The results' `params` must be finite, one for each column of the rows; got shape "
                f"{params.shape}. Columns that are copies of each other have no finite parameters: "
                "leave one out."
            )
        self.theta = torch.from_numpy(params.copy())
        self.parameter_names = [NAME]
        self.caveats = (OF_THE_FIT,)

    def row_weights(self, y: Tensor, weight: Tensor | None) -> Tensor | None:
        own = _weights(self._results.model)
        if own is None or weight is not None:
            return weight
        if len(own) != len(y):
            raise InvalidInputError(
                "`sample_weight` must be given, because the model was fitted with weights, and "
                f"knows them for {len(own)} rows, not for these {len(y)}."
            )
        return torch.from_numpy(own)

    def linearize(self, X: Any, *, keep: bool = True) -> ConstantLinearization:
        jacobian = self._jacobian(X)
        return ConstantLinearization(jacobian.times(self.theta), jacobian)

    evaluator = linearize

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        return self._jacobian(X).times(self.theta if theta is None else theta.to(self.theta))

    def edited(self, theta: Tensor) -> Any:
        clone = copy.deepcopy(self._results)
        inner = getattr(clone, "_results", clone)
        inner.params = theta.detach().cpu().double().numpy().copy()
        inner._cache = {}  # fitted values and residuals are made again, by the new parameters
        return clone

    def frame_fingerprint(self) -> str:
        model = self._results.model
        return state_fingerprint(type(model).__name__, {"columns": list(model.exog_names)})

    def _jacobian(self, X: Any) -> FeatureJacobian:
        if _has_formula(self._results.model):
            X = self._designed(X)
        rows = to_tensors(X, dtype=torch.float64, device=self.theta.device).to(self.theta)
        if rows.ndim != 2 or rows.shape[1] != len(self.theta):
            names = ", ".join(map(str, self._results.model.exog_names[:8]))
            raise InvalidInputError(
                f"`X` must have the {len(self.theta)} columns that the model was fitted on "
                f"({names}), the constant among them if there is one; got shape "
                f"{tuple(rows.shape)}. statsmodels.api.add_constant(X) adds a constant."
            )
        return FeatureJacobian(rows, 1, False)

    def _designed(self, X: Any) -> NDArray[np.float64]:
        """The columns of a formula."""
        try:
            made, _ = self._results._transform_predict_exog(X, transform=True)
        except Exception as error:  # patsy and formulaic raise errors of many kinds
            text = " ".join(str(error).split())[:300].rstrip(".")
            raise InvalidInputError(
                f"`X` must be a frame with the columns of the model's formula, but statsmodels "
                f"says: {text}."
            ) from None
        found: NDArray[np.float64] = np.asarray(made, dtype=np.float64)
        if len(found) != len(X):
            raise InvalidInputError(
                f"`X` must have no missing values in the columns of the model's formula; "
                f"{len(X) - len(found)} of {len(X)} rows have some: drop or fill them."
            )
        return found


def _loss(results: Any) -> str:
    """The loss that the model was fitted by; raises if it cannot be edited."""
    model: Any = getattr(results, "model", None)
    kind = type(model).__name__
    found, why = MODELS.get(kind), f"it holds a {kind}"
    if kind == "GLM":
        family, link = type(model.family).__name__, type(model.family.link).__name__
        found, why = FAMILIES.get((family, link)), f"its family is {family} with the link {link}"
        if family == "Tweedie" and link == "Log" and model.family.var_power == TWEEDIE:
            found = "tweedie_deviance"
    if found is None:
        raise InvalidInputError(
            f"Results of statsmodels must be of OLS, WLS, Logit, Poisson, or of a GLM whose family "
            "is Gaussian, Binomial, Poisson, Gamma or Tweedie(var_power=1.5) with its usual link "
            f"(log for Gamma); {why}. Of anything that gives chances a correction can be edited: "
            "FairIJ(BlackBox(lambda X: results.predict(X)))."
        )
    if any("Regularized" in one.__name__ or "L1" in one.__name__ for one in type(results).__mro__):
        raise InvalidInputError(
            "Results of statsmodels must be fitted without a penalty, by `fit` and not by "
            "`fit_regularized`. For an L2 penalty train scikit-learn's LogisticRegression or Ridge."
        )
    for name in ("offset", "exposure"):
        value = getattr(model, name, None)
        if value is not None and np.any(np.asarray(value) != 0):
            raise InvalidInputError(
                f"Results of statsmodels must be fitted without `{name}`, which is no part of the "
                "rows: make it a column, or leave it out."
            )
    return found


def _weights(model: Any) -> NDArray[np.float64] | None:
    """The weights that the model was fitted with; None if all rows counted alike."""
    total: NDArray[np.float64] | None = None
    for name in WEIGHTS.get(type(model).__name__, ()):
        value = getattr(model, name, None)
        if value is None or np.ndim(value) != 1 or np.all(np.asarray(value) == 1):
            continue
        each = np.asarray(value, dtype=np.float64)
        total = each if total is None else total * each
    return total


def _has_formula(model: Any) -> bool:
    return getattr(model, "formula", None) is not None


def named_columns(results: Any) -> tuple[str, ...] | None:
    """The columns of a table that the rows are made of; None if the model knows no names.

    The constant of `add_constant` is not among them: `with_constant` adds it again.
    """
    model = results.model
    if _has_formula(model):
        frame = getattr(model.data, "frame", None)
        right = str(model.formula).partition("~")[2]
        known = [] if frame is None else map(str, frame.columns)
        return tuple(name for name in known if _is_in(name, right)) or None
    if not hasattr(getattr(model.data, "orig_exog", None), "columns"):
        return None
    names = [str(name) for name in model.exog_names]
    place = _constant_place(model)
    return tuple(name for at, name in enumerate(names) if at != place or name != "const")


def with_constant(results: Any, rows: NDArray[Any]) -> NDArray[np.float64]:
    """Rows of a table as `predict` takes them: with the constant, where the table has none."""
    found, place = np.asarray(rows, dtype=np.float64), _constant_place(results.model)
    if place is None or found.shape[1] != len(results.params) - 1:
        return found
    return np.insert(found, place, 1.0, axis=1)


def _constant_place(model: Any) -> int | None:
    """Where a column of ones is; None if there is none."""
    place, columns = getattr(model.data, "const_idx", None), getattr(model, "exog", None)
    if place is None or columns is None or not np.all(np.asarray(columns)[:, place] == 1):
        return None
    return int(place)


def _is_in(name: str, formula: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", formula) is not None


def takes_frames(results: Any) -> bool:
    """Whether a formula makes the rows, from a frame with words in it."""
    return _has_formula(results.model)
