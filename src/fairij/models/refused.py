"""Known models that cannot be edited, by class name, each with the reason and the cure."""

from __future__ import annotations

from typing import Any

_AFTERWARDS = (
    "it changes the scores of a trained classifier; edit that classifier first, then wrap the "
    "edited one, as in "
    "CalibratedClassifierCV(FrozenEstimator(fair.estimator_))"
)
_THRESHOLD = (
    "it moves the threshold of a trained classifier; edit that classifier (its `estimator_`), then "
    "choose the threshold of the edited one, as in "
    "FixedThresholdClassifier(FrozenEstimator(fair.estimator_))"
)
_MANY_MODELS = (
    "it consists of several models, each with its own loss; edit them one by one, or train a "
    "multinomial LogisticRegression"
)
_AVERAGED = (
    "it averages models that were fitted apart, each to its own sample, so it has no single "
    "training loss; train a boosted ensemble instead, such as HistGradientBoostingClassifier"
)
_KINKS = "its L1 penalty has no derivative at zero coefficients; train Ridge instead"
_NO_SCORE = "its loss gives no probabilities; train LogisticRegression instead"

REFUSED: dict[str, str] = {
    "CalibratedClassifierCV": _AFTERWARDS,
    "FixedThresholdClassifier": _THRESHOLD,
    "TunedThresholdClassifierCV": _THRESHOLD,
    "TransformedTargetRegressor": "its predictions are transformed after they are made; edit its "
    "`regressor_` on the transformed target",
    "OneVsRestClassifier": _MANY_MODELS,
    "OneVsOneClassifier": _MANY_MODELS,
    "MultiOutputClassifier": _MANY_MODELS,
    "BaseForest": _AVERAGED,
    "BaseBagging": _AVERAGED,
    "Lasso": _KINKS,
    "LassoCV": _KINKS,
    "ElasticNet": _KINKS,
    "ElasticNetCV": _KINKS,
    "LinearSVC": _NO_SCORE,
    "RidgeClassifier": _NO_SCORE,
    "RidgeClassifierCV": _NO_SCORE,
}


def reason(model: Any) -> str:
    """Why a model is refused and what to do instead; empty for an unknown model."""
    names = (kind.__name__ for kind in type(model).__mro__)
    return next((REFUSED[name] for name in names if name in REFUSED), "")
