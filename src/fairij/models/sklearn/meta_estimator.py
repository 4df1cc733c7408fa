"""What scikit-learn expects of an estimator: predictions, a score, clones, tags; and refits."""

from __future__ import annotations

import copy
import copyreg
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from fairij.data.checks import Data, vector, whole_number
from fairij.data.forked import one_thread_if_forked
from fairij.data.rows import Columns, as_source, n_rows
from fairij.data.sparse import check_sparse
from fairij.errors import InvalidInputError
from fairij.fairness.decisions import OWN, Decision
from fairij.fairness.optimism import Choice, HonestGap
from fairij.models.base import Editable
from fairij.models.labels import check_runs
from fairij.models.losses import LOSSES, Loss
from fairij.models.registry import shaped


class Refits(Protocol):
    """What a fit keeps by reference to predict refits; `fairij.method.refit.Refits`."""

    @property
    def training(self) -> Any: ...

    def predict(self, editable: Editable, ks: list[int]) -> list[Any]: ...


class EditingEstimator(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator that edits another one; `fairij.FairIJ` says how."""

    estimator: Any
    loss: str | Loss
    loss_: Loss
    classes_: NDArray[Any]
    decisions_: tuple[Decision, Decision] = (OWN, OWN)  # of the model before and after
    _choice: Choice | None
    _honest_gap: HonestGap | None
    _refits: Refits | None = None  # in the object that was fitted, not in copies
    estimator_: Any
    dropped_: NDArray[np.int64]
    joint_influence_: NDArray[np.float64] | None
    predicted_refits_: list[Any]
    edit_: Any
    influence_: NDArray[np.float64]
    candidates_: Any
    chosen_: int
    before_: Any
    after_: Any
    changes_: Any = None  # of results read from folders of 0.1.0 they are not known
    holdout_changes_: Any = None
    _report: Any  # the room that draws
    _given: Any = None  # the model with its parameters laid out, if `fit` did that
    _columns = Columns((), None)  # of the rows of `fit`; unknown in a result read from files

    @abstractmethod
    def _editable_for(self, estimator: Any, X: Any) -> Editable:
        """The model, as it was given or edited, able to take ``X``."""

    @property
    def _model(self) -> Any:
        """The model that was edited."""
        return self.estimator if self._given is None else self._given

    def _laid_out(self, data: Data) -> Any:
        """The model that is edited, with its parameters laid out for these rows."""
        asked = self.get_params(deep=False)
        self._given = shaped(self.estimator, data, asked["threshold"], asked["pos_label"])
        return self._given

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels (or values) by the edited model; no group is needed.

        Decisions are made at the cut-off ``threshold_``. A share that was asked for is turned into
        the cut-off that it has on the validation rows.
        """
        z = self._outputs(X)  # first: it says so if nothing was fitted
        accepted = self.loss_.predict(self.decision_.outputs(z))
        index = self.decision_.labels(accepted).cpu().numpy()
        return self.classes_[index] if self.loss_.is_classification else index

    @property
    def decision_(self) -> Decision:
        """How the edited model's outputs become decisions."""
        return self.decisions_[1]

    @property
    def threshold_(self) -> float:
        """The chance of the favourable label from which on `predict` accepts a row."""
        check_is_fitted(self, "estimator_")
        return self.decision_.cut_off

    def thresholded(self) -> Any:
        """``estimator_`` with the cut-off built in: scikit-learn's `FixedThresholdClassifier`.

        For classifiers of scikit-learn that give probabilities. It is fitted already.
        """
        check_is_fitted(self, "estimator_")
        if not hasattr(self.estimator_, "predict_proba") or len(self.classes_) != 2:
            raise InvalidInputError(
                "`thresholded` needs a classifier of two labels with `predict_proba`, got "
                f"{type(self.estimator_).__name__}: use `predict` of this object."
            )
        favourable = self.estimator_.classes_[self.decision_.favourable]
        made = FixedThresholdClassifier(
            FrozenEstimator(self.estimator_),
            threshold=self.threshold_,
            pos_label=favourable,
            response_method="predict_proba",
        )
        made.estimator_ = FrozenEstimator(self.estimator_)
        return made

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
        """The outputs: log-odds of the second of two classes, or one column per class."""
        z = self._outputs(X)
        if z.ndim == 2 and z.shape[1] == 2:
            z = z[:, 1] - z[:, 0]
        return z.cpu().numpy()

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy, or R^2 in regression."""
        predicted, truth = self.predict(X), vector("y", y, n_rows(X))
        metric = accuracy_score if self.loss_.is_classification else r2_score
        return float(metric(truth, predicted, sample_weight=sample_weight))

    def predict_refit(self, k: int | Sequence[int] | None = None) -> list[Any]:
        """What a model trained again without the k most harmful rows would do, for each k.

        Predicts its parameters, its gap and its accuracy on the rows that the edit was chosen on.
        Default: the rows that the edit drops. Costs about as much as a fit's solve, and a shorter
        one for each k. Needs the rows of the fit, which copies and pickles do not hold.

        Returns
        -------
        list of PredictedRefit
            One for each k; also kept in ``predicted_refits_``.
        """
        check_is_fitted(self, "estimator_")
        ks = self._numbers_of_rows(k)
        if self._refits is None:
            raise InvalidInputError(
                "A refit is predicted from the training rows, which this object does not hold, as "
                "it is a copy or was read from files. Call `predict_refit` on the object that was "
                "fitted."
            )
        self.predicted_refits_ = self._refits.predict(
            self._editable_for(self._model, self._refits.training), ks
        )
        return self.predicted_refits_

    def _numbers_of_rows(self, k: Any) -> list[int]:
        if k is None and len(self.dropped_) == 0:
            raise InvalidInputError(
                "`k` must be a number of rows, as the chosen edit drops none: pass k=200 for the "
                "200 most harmful rows."
            )
        several = isinstance(k, Sequence | np.ndarray) and not isinstance(k, str)
        asked = [len(self.dropped_)] if k is None else list(k) if several else [k]
        return [whole_number("k", one, 1) for one in asked]

    def plot_frontier(self, *, performance: str | None = None) -> Any:
        """Every candidate's gap against its accuracy (or R^2) on validation rows."""
        return self._report.frontier(self.candidates_, self.chosen_, performance=performance)

    def plot_influence(self) -> Any:
        """The sorted influence of the training rows, with the dropped ones shaded."""
        return self._report.influence_curve(self.influence_, marked=self._dropped_in_order)

    def plot_group_rates(self) -> Any:
        """Each group's rates before and after on validation rows, with intervals."""
        return self._report.group_rates(self.before_.group_intervals, self.after_.group_intervals)

    def model_card(self, **about: Any) -> str:
        """A model card in Markdown; `fairij.report.model_card` says what ``about`` may hold."""
        return str(self._report.model_card(self, **about))

    @property
    def _dropped_in_order(self) -> int:
        """How many rows were dropped, if they are those of the highest ``influence_``; else 0."""
        is_order = self.edit_.settings["drop"] == "fairness" and self.joint_influence_ is None
        return len(self.dropped_) * is_order

    @property
    def honest_gap_(self) -> HonestGap | None:
        """Computed when it is first asked for."""
        check_is_fitted(self, "estimator_")
        if self._honest_gap is None and self._choice is not None:
            self._honest_gap, self._choice = self._choice.honest_gap(), None
        return self._honest_gap

    def __getstate__(self) -> dict[str, Any]:
        """All but the rows of the fit, so that none travels with a copy or a pickle."""
        state: dict[str, Any] = super().__getstate__()
        return state | {"_refits": None} if "_refits" in state else state

    def __reduce_ex__(self, protocol: Any) -> Any:
        """For pickle, joblib and copies: all but the rows of the fit."""
        return copyreg.__newobj__, (type(self),), self.__getstate__()  # type: ignore[attr-defined]

    def __reduce__(self) -> Any:
        """Asked for by skops, which knows no tables, so it could not keep a result."""
        if hasattr(self, "edit_"):
            raise InvalidInputError(
                f"skops cannot keep a fitted {type(self).__name__}, as it knows no tables. Dump "
                "the edited model, `skops.io.dump(fair.estimator_, 'model.skops')`, and save the "
                "edit, `fair.edit_.save('edit.safetensors')`; or dump all of it by joblib."
            )
        return super().__reduce__()

    def __sklearn_clone__(self) -> Any:
        """A new object with the same settings; the fitted model stays fitted."""
        settings = self.get_params(deep=False)
        copied = {name: copy.copy(value) for name, value in settings.items() if name != "estimator"}
        clone = type(self)(estimator=self.estimator, **copied)
        if hasattr(self, "_metadata_request"):  # what set_fit_request asked for
            clone._metadata_request = copy.deepcopy(self._metadata_request)
        return clone

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        loss = LOSSES.get(self.loss) if isinstance(self.loss, str) else self.loss
        tagged = hasattr(self.estimator, "__sklearn_tags__")
        regression = tagged and is_regressor(self.estimator)
        if regression if loss is None else not loss.is_classification:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        else:
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        tags.input_tags.sparse = True
        return tags

    def _check_columns(self, X: Any) -> None:
        """Raise unless ``X`` has the columns of the training rows, in scikit-learn's words."""
        width = (self.n_features_in_,) if hasattr(self, "n_features_in_") else ()
        expected = Columns(width, tuple(getattr(self, "feature_names_in_", ())))
        found = Columns.of(X)
        if len(expected.width) == 1 and isinstance(X, np.ndarray) and X.ndim == 1:
            raise InvalidInputError(
                f"`X` must have one row per data point, got an array of shape {X.shape}. Reshape "
                "your data: X.reshape(1, -1) is one row, X.reshape(-1, 1) is one column."
            )
        if len(expected.width) == len(found.width) == 1 and expected.width != found.width:
            raise InvalidInputError(
                f"X has {found.width[0]} features, but {type(self).__name__} is expecting "
                f"{expected.width[0]} features as input: `X` must have the columns of the training "
                "rows, prepared in the same way."
            )
        expected.check("X", X)

    @one_thread_if_forked()
    def _outputs(self, X: Any) -> Tensor:
        check_is_fitted(self, "estimator_")
        X = as_source(X)
        if n_rows(X) == 0:
            raise InvalidInputError("`X` must not be empty: there are 0 rows to predict.")
        self._check_columns(X)
        check_sparse("X", X)
        editable = self._editable_for(self.estimator_, X)
        check_runs("X", editable, X)
        return editable.outputs(X)
