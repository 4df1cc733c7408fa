"""Families of models behind one face, `Editable`; `adapt` finds the right one."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from torch import nn

from fairij.errors import InvalidInputError
from fairij.models.base import Editable
from fairij.models.refused import reason
from fairij.models.torch.module import TorchEditable

Family = tuple[str, Callable[[Any], bool], Callable[..., Editable]]


def of_class(library: str, *names: str) -> Callable[[Any], bool]:
    """Whether a model's class, or one it is made from, has such a name; nothing is imported."""

    def recognises(model: Any) -> bool:
        return any(
            kind.__name__ in names and kind.__module__.split(".")[0] == library
            for kind in type(model).__mro__
        )

    return recognises


def lazily(module: str, name: str) -> Callable[..., Editable]:
    """``name`` of a module of this package, imported when a model is adapted."""

    def make(model: Any, **options: Any) -> Editable:
        adapter: Editable = getattr(import_module(f"fairij.models.{module}"), name)(
            model, **options
        )
        return adapter

    return make


def on_tokens(model: Any) -> bool:
    """Whether a model is one of transformers or peft, or is made of one here."""
    return (
        of_class("transformers", "PreTrainedModel")(model)
        or of_class("peft", "PeftModel")(model)
        or of_class("fairij", "TriggerTokens", "TextClassifier")(model)
    )


HISTOGRAM = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")
BOOSTED = ("GradientBoostingClassifier", "GradientBoostingRegressor")
MLP = ("MLPClassifier", "MLPRegressor")
LINEAR = (
    "LogisticRegression",
    "SGDClassifier",
    "SGDRegressor",
    "Ridge",
    "RidgeCV",
    "LinearRegression",
)

FAMILIES: list[Family] = [
    ("transformers' and peft's models", on_tokens, lazily("text.triggers", "editable")),
    ("torch.nn.Module", lambda model: isinstance(model, nn.Module), TorchEditable),
    (", ".join(LINEAR), of_class("sklearn", *LINEAR), lazily("sklearn.linear", "LinearEditable")),
    (", ".join(MLP), of_class("sklearn", *MLP), lazily("sklearn.perceptron", "PerceptronEditable")),
    (
        "LightGBM's Booster, LGBMClassifier, LGBMRegressor",
        of_class("lightgbm", "Booster", "LGBMModel", "CVBooster"),
        lazily("trees.lightgbm", "editable"),
    ),
    (
        "XGBoost's Booster, XGBClassifier, XGBRegressor",
        of_class("xgboost", "Booster", "XGBModel"),
        lazily("trees.xgboost", "editable"),
    ),
    (
        ", ".join(HISTOGRAM),
        of_class("sklearn", *HISTOGRAM),
        lazily("trees.hist_gradient_boosting", "editable"),
    ),
    (
        ", ".join(BOOSTED),
        of_class("sklearn", *BOOSTED),
        lazily("trees.gradient_boosting", "editable"),
    ),
    ("Pipeline", of_class("sklearn", "Pipeline"), lazily("sklearn.pipeline", "pipeline")),
    (
        "GridSearchCV and its like",
        of_class("sklearn", "BaseSearchCV"),
        lazily("sklearn.pipeline", "search"),
    ),
    (
        "FrozenEstimator",
        of_class("sklearn", "FrozenEstimator"),
        lazily("sklearn.pipeline", "frozen"),
    ),
]


def adapt(model: Any, **options: Any) -> Editable:
    """Wrap a fitted model of any supported family; an `Editable` is returned as it is."""
    for _, recognises, make in FAMILIES:
        if recognises(model):
            return make(model, **options)
    if all(hasattr(model, name) for name in ("theta", "linearize", "edited")):
        editable: Editable = model
        return editable
    if why := reason(model):
        raise InvalidInputError(f"A {type(model).__name__} cannot be edited: {why}.")
    raise InvalidInputError(
        f"No family of models recognises {type(model).__name__!r}; supported are "
        f"{', '.join(name for name, _, _ in FAMILIES)}. For anything else write an adapter: an "
        "object with the methods of `fairij.models.Editable` (theta, linearize, evaluator, "
        "outputs, edited, ...), and give that to FairIJ."
    )
