"""Models around another model: pipelines, searches over settings, frozen estimators.

The steps before the inner model are applied and stay as they are; only the inner model is edited.
The result is a copy of the whole wrapper with the edited model inside.
"""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor

from fairij.data.hashing import state_fingerprint
from fairij.errors import InvalidInputError
from fairij.models.base import Delegating
from fairij.models.recent import Recent
from fairij.models.registry import adapt


class WrappedEditable(Delegating):
    """The ``model`` inside ``wrapper``, on rows that ``steps`` have transformed."""

    def __init__(
        self, wrapper: Any, model: Any, steps: list[tuple[str, Any]], **options: Any
    ) -> None:
        super().__init__(adapt(model, **options))
        self._wrapper, self._model, self._steps = wrapper, model, steps
        self._prepared: Recent[Any] = Recent()

    def prepare(self, X: Any) -> Any:
        """``X`` after the steps; each table is transformed once."""
        return self._prepared.get(X, lambda: self._transform(X)) if self._steps else X

    def _transform(self, X: Any) -> Any:
        for name, step in self._steps:
            try:
                X = step.transform(X)
            except (ValueError, TypeError, KeyError, IndexError) as error:
                raise InvalidInputError(
                    f"The pipeline's step {name!r} must take `X` as it is given, but it says: "
                    f"{error} Give the columns that the pipeline was fitted on."
                ) from error
        return X

    def edited(self, theta: Tensor) -> Any:
        return copy.deepcopy(self._wrapper, {id(self._model): self._inner.edited(theta)})

    def frame_fingerprint(self) -> str:
        kind, inner = type(self._wrapper).__name__, self._inner.frame_fingerprint()
        return state_fingerprint(kind, inner, self._steps)


def pipeline(model: Any, **options: Any) -> WrappedEditable:
    """A `Pipeline`: its last step is edited."""
    *before, (name, last) = model.steps
    if last is None or isinstance(last, str):
        raise InvalidInputError(
            f"The pipeline must end in the model to be edited, but its last step {name!r} is "
            f"{last!r}: add the model."
        )
    steps = [(n, step) for n, step in before if step is not None and not isinstance(step, str)]
    for n, step in steps:
        if not hasattr(step, "transform"):
            raise InvalidInputError(
                f"The pipeline's step {n!r} ({type(step).__name__}) must have `transform`. A step "
                "that only changes the training rows, such as resampling, trains the model on rows "
                "that are not given here: resample first, and give those rows."
            )
    return WrappedEditable(model, last, steps, **options)


def search(model: Any, **options: Any) -> WrappedEditable:
    """`GridSearchCV` and similar: the best estimator, refitted on all rows, is edited."""
    if not hasattr(model, "best_estimator_"):
        raise InvalidInputError(
            f"This {type(model).__name__} must have a best_estimator_: fit it, with refit=True."
        )
    return WrappedEditable(model, model.best_estimator_, [], **options)


def frozen(model: Any, **options: Any) -> WrappedEditable:
    """`FrozenEstimator`: the estimator inside is edited."""
    return WrappedEditable(model, model.estimator, [], **options)


STACKED = (
    "The final model of a stack was trained on predictions of its models for rows that they had "
    "not seen. An edit uses their predictions as they are, which are surer on training rows."
)


class Stacked:
    """The models of a stack, without the one that is edited."""

    def __init__(self, model: Any) -> None:
        self.estimators, self.methods = model.estimators_, model.stack_method_
        self.passthrough, self._transform = model.passthrough, model.transform

    def transform(self, X: Any) -> Any:
        return self._transform(X)


class StackedEditable(WrappedEditable):
    """The final model of a stack, on the predictions of the others."""

    def __init__(self, model: Any, **options: Any) -> None:
        stack = Stacked(model)
        super().__init__(model, model.final_estimator_, [("estimators", stack)], **options)
        self.classes = getattr(model, "classes_", None)
        self.caveats = (*self.caveats, *(STACKED,) * (model.cv != "prefit"))
        self._stack = stack

    def frame_fingerprint(self) -> str:
        kind, inner = type(self._wrapper).__name__, self._inner.frame_fingerprint()
        stack = self._stack
        parts = [_fingerprint(part) for part in stack.estimators]
        return state_fingerprint(kind, inner, parts, stack.methods, stack.passthrough)


def _fingerprint(part: Any) -> str:
    """Of a model of a stack, with its parameters. Compiled trees have gaps that copies change."""
    try:
        known = adapt(part)
    except InvalidInputError:
        return state_fingerprint(part)
    return state_fingerprint(known.frame_fingerprint(), known.theta)


def stack(model: Any, **options: Any) -> StackedEditable:
    """`StackingClassifier` and `StackingRegressor`: the final model is edited."""
    if not hasattr(model, "final_estimator_"):
        raise InvalidInputError(f"This {type(model).__name__} must be fitted: call its fit.")
    return StackedEditable(model, **options)
