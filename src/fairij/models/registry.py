"""Families of models, and `adapt`, which finds the family of a model.

A family is one entry in `FAMILIES`. A model is recognised by the names of its classes, so that no
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


def family(adapter: str, name: str = "", **classes: str) -> Family:
    """A family by the names of its classes, with an adapter that is imported when it is needed.

    Parameters
    ----------
    adapter : str
        ``"module:function"`` below ``fairij.models``.
    name : str, default=""
        The name for messages; by default the classes.
    **classes : str
        The names of classes for each library, separated by commas.
    """
    tests = [of_class(library, *names.split(", ")) for library, names in classes.items()]

    def recognises(model: Any) -> bool:
        return any(test(model) for test in tests)

    def make(model: Any, **options: Any) -> Editable:
        module, _, function = adapter.partition(":")
        made: Editable = getattr(import_module(f"fairij.models.{module}"), function)(
            model, **options
        )
        return made

    return Family(name or ", ".join(classes.values()), recognises, make)


FAMILIES: list[Family] = [
    family(
        "text.trigger_editable:editable",
        "transformers' and peft's models",
        transformers="PreTrainedModel",
        peft="PeftModel",
        fairij="TriggerTokens, TextClassifier",
    ),
    family("torch.module:TorchEditable", "torch.nn.Module", torch="Module"),
    family(
        "sklearn.linear:LinearEditable",
        sklearn="LogisticRegression, SGDClassifier, SGDRegressor, Ridge, RidgeCV, LinearRegression",
    ),
    family("sklearn.perceptron:PerceptronEditable", sklearn="MLPClassifier, MLPRegressor"),
    family(
        "trees.lightgbm:editable",
        "LightGBM's Booster, LGBMClassifier, LGBMRegressor",
        lightgbm="Booster, LGBMModel, CVBooster",
    ),
    family(
        "trees.xgboost:editable",
        "XGBoost's Booster, XGBClassifier, XGBRegressor",
        xgboost="Booster, XGBModel",
    ),
    family(
        "trees.hist_gradient_boosting:editable",
        sklearn="HistGradientBoostingClassifier, HistGradientBoostingRegressor",
    ),
    family(
        "trees.gradient_boosting:editable",
        sklearn="GradientBoostingClassifier, GradientBoostingRegressor",
    ),
    family("sklearn.pipeline:pipeline", sklearn="Pipeline"),
    family("sklearn.pipeline:search", "GridSearchCV and similar", sklearn="BaseSearchCV"),
    family("sklearn.pipeline:frozen", sklearn="FrozenEstimator"),
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
    for kind in FAMILIES:
        if kind.recognises(model):
            return kind.make(model, **options)
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
        f"{', '.join(kind.name for kind in FAMILIES)}. For anything else write an adapter: an "
        f"object with the members of `fairij.models.Editable` ({', '.join(own)}; the rest from "
        "`EditableDefaults`). Give that object to FairIJ."
    )
