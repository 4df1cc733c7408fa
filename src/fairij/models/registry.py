"""Families of models, and `adapt`, which finds the family of a model.

A family is one line in `FAMILIES`. A model is recognised by the names of its classes, so that no
library is imported before one of its models is given.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from fairij.errors import InvalidInputError
from fairij.models.base import Editable, EditableDefaults, members
from fairij.models.refused import reason


class Family(NamedTuple):
    """One kind of model."""

    name: str  # for messages
    recognises: Callable[[Any], bool]
    make: Callable[..., Editable]


def of_class(library: str, *names: str) -> Callable[[Any], bool]:
    """A test whether a model's class or one of its parents has such a name in the library."""

    def recognises(model: Any) -> bool:
        return any(
            kind.__name__ in names and kind.__module__.split(".")[0] == library
            for kind in type(model).__mro__
        )

    return recognises


def lazily(module: str, name: str) -> Callable[..., Editable]:
    """``name`` of ``fairij.models.module``, imported when it is first called."""

    def make(model: Any, **options: Any) -> Editable:
        adapter: Callable[..., Editable] = getattr(import_module(f"fairij.models.{module}"), name)
        return adapter(model, **options)

    return make


def on_tokens(model: Any) -> bool:
    """Whether a model belongs to transformers or peft, or is one of ours made of such a model."""
    return (
        of_class("transformers", "PreTrainedModel")(model)
        or of_class("peft", "PeftModel")(model)
        or of_class("fairij", "TriggerTokens", "TextClassifier")(model)
    )


def _sklearn(names: str, module: str, adapter: str = "editable") -> Family:
    return Family(names, of_class("sklearn", *names.split(", ")), lazily(module, adapter))


BOOSTED = "GradientBoostingClassifier, GradientBoostingRegressor"
HISTOGRAM = "HistGradientBoostingClassifier, HistGradientBoostingRegressor"
LINEAR = "LogisticRegression, SGDClassifier, SGDRegressor, Ridge, RidgeCV, LinearRegression"
LIGHTGBM = of_class("lightgbm", "Booster", "LGBMModel", "CVBooster")
LIGHTGBM_NAMES = "LightGBM's Booster, LGBMClassifier, LGBMRegressor"
XGBOOST = of_class("xgboost", "Booster", "XGBModel")
XGBOOST_NAMES = "XGBoost's Booster, XGBClassifier, XGBRegressor"
ON_TOKENS = "transformers' and peft's models"
SEARCH = of_class("sklearn", "BaseSearchCV")

FAMILIES: list[Family] = [
    Family(ON_TOKENS, on_tokens, lazily("text.trigger_editable", "editable")),
    Family("torch.nn.Module", of_class("torch", "Module"), lazily("torch.module", "TorchEditable")),
    _sklearn(LINEAR, "sklearn.linear", "LinearEditable"),
    _sklearn("MLPClassifier, MLPRegressor", "sklearn.perceptron", "PerceptronEditable"),
    Family(LIGHTGBM_NAMES, LIGHTGBM, lazily("trees.lightgbm", "editable")),
    Family(XGBOOST_NAMES, XGBOOST, lazily("trees.xgboost", "editable")),
    _sklearn(HISTOGRAM, "trees.hist_gradient_boosting"),
    _sklearn(BOOSTED, "trees.gradient_boosting"),
    _sklearn("Pipeline", "sklearn.pipeline", "pipeline"),
    Family("GridSearchCV and its like", SEARCH, lazily("sklearn.pipeline", "search")),
    _sklearn("FrozenEstimator", "sklearn.pipeline", "frozen"),
]


def adapt(model: Any, **options: Any) -> Editable:
    """Wrap a fitted model of any supported family; an `Editable` is returned as it is.

    Parameters
    ----------
    model : object
        A fitted model of a family in `FAMILIES`, or an object with every member of `Editable`.
    **options
        Settings of the family, such as ``parameters``, ``batch_size`` and ``memory_limit``.

    Returns
    -------
    Editable
        The model, seen through the parameters that may be edited.
    """
    for family in FAMILIES:
        if family.recognises(model):
            return family.make(model, **options)
    missing = [name for name in members(Editable) if not hasattr(model, name)]
    if not missing:
        editable: Editable = model
        return editable
    if why := reason(model):
        raise InvalidInputError(f"A {type(model).__name__} cannot be edited: {why}.")
    own = [name for name in members(Editable) if not hasattr(EditableDefaults, name)]
    if not set(own) <= set(missing):
        raise InvalidInputError(
            f"{type(model).__name__!r} must have every member of `fairij.models.Editable`, but "
            f"lacks {', '.join(missing)}. Inherit `fairij.models.EditableDefaults` for what the "
            "model does not know, and write the rest."
        )
    raise InvalidInputError(
        f"No family of models recognises {type(model).__name__!r}; supported are "
        f"{', '.join(family.name for family in FAMILIES)}. For anything else write an adapter: an "
        f"object with the members of `fairij.models.Editable` ({', '.join(own)}; the rest from "
        "`EditableDefaults`). Give that object to FairIJ."
    )
