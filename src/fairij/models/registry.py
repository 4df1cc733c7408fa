"""Families of models, and `adapt`, which finds the family of a model.

A family is one entry in `FAMILIES`. A model is recognised by the names of its classes, so that no
library is imported before one of its models is given.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.special import expit

from fairij.data.checks import Data, members
from fairij.data.rows import is_streamed, take_rows
from fairij.errors import InvalidInputError
from fairij.fairness.decisions import USUAL, Threshold, TopShare, check_threshold, top_cut
from fairij.fairness.views import collapsed
from fairij.models.base import Editable, EditableDefaults
from fairij.models.labels import class_words
from fairij.models.whole import whole


class Family(NamedTuple):
    """One kind of model.

    Examples
    --------
    >>> from fairij.models import Family, of_class
    >>> known = Family("sklearn's dummy", of_class("sklearn", "DummyClassifier"), make=adapt)
    >>> known.recognises(model)
    False
    """

    name: str  # for messages
    recognises: Callable[[Any], bool]
    make: Callable[..., Editable]


def of_class(library: str, *names: str) -> Callable[[Any], bool]:
    """A test whether a model's class or one of its parents has such a name in the library.

    Examples
    --------
    >>> from fairij.models import of_class
    >>> of_class("sklearn", "LogisticRegression")(model)
    True
    """

    def recognises(model: Any) -> bool:
        return any(
            kind.__name__ in names and kind.__module__.split(".")[0] == library
            for kind in type(model).__mro__
        )

    return recognises


def family(adapter: str, name: str = "", **classes: str) -> Family:
    """A family by its classes in each library; ``adapter`` is ``"module:function"``."""
    tests = [of_class(library, *names.split(", ")) for library, names in classes.items()]
    module, _, function = adapter.partition(":")

    def make(model: Any, **options: Any) -> Any:
        return getattr(import_module(f"fairij.models.{module}"), function)(model, **options)

    return Family(
        name or ", ".join(classes.values()), lambda model: any(test(model) for test in tests), make
    )


FAMILIES: list[Family] = [
    family(
        "text.trigger_editable:editable",
        "transformers' and peft's models",
        transformers="PreTrainedModel",
        peft="PeftModel",
        fairij="TriggerTokens, TextClassifier",
    ),
    family("torch.skorch:SkorchEditable", "skorch's nets", skorch="NeuralNet"),
    family("black_box.editable:BlackBoxEditable", "fairij's BlackBox", fairij="BlackBox"),
    family("torch.module:TorchEditable", "torch.nn.Module", torch="Module"),
    family(
        "sklearn.linear:LinearEditable",
        sklearn="LogisticRegression, SGDClassifier, SGDRegressor, Ridge, RidgeCV, "
        "LinearRegression, PoissonRegressor, GammaRegressor, TweedieRegressor, "
        "LinearDiscriminantAnalysis",
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
        "trees.catboost:CatBoost",
        "CatBoostClassifier, CatBoostRegressor, CatBoost",
        catboost="CatBoost",
    ),
    family(
        "trees.ebm:EBM", interpret="ExplainableBoostingClassifier, ExplainableBoostingRegressor"
    ),
    family(
        "trees.scikit_learn:HistGradient",
        sklearn="HistGradientBoostingClassifier, HistGradientBoostingRegressor",
    ),
    family(
        "trees.scikit_learn:GradientBoosting",
        sklearn="GradientBoostingClassifier, GradientBoostingRegressor",
    ),
    family(
        "trees.forests:forest",
        sklearn="DecisionTreeClassifier, DecisionTreeRegressor, RandomForestClassifier, "
        "RandomForestRegressor, ExtraTreesClassifier, ExtraTreesRegressor, BaggingClassifier, "
        "BaggingRegressor",
    ),
    family(
        "statsmodels_results:StatsmodelsEditable",
        "statsmodels' results",
        statsmodels="ResultsWrapper, Results",
    ),
    family("sklearn.voting:VotingEditable", sklearn="VotingClassifier, VotingRegressor"),
    family("sklearn.pipeline:stack", sklearn="StackingClassifier, StackingRegressor"),
    family("sklearn.pipeline:pipeline", sklearn="Pipeline"),
    family("sklearn.pipeline:search", "GridSearchCV and similar", sklearn="BaseSearchCV"),
    family("sklearn.pipeline:frozen", sklearn="FrozenEstimator"),
]

REFUSED: dict[str, str] = {  # class names -> the reason and the cure
    "CalibratedClassifierCV": "it changes the scores of trained classifiers; edit it as a whole, "
    "by a correction that is added to its log-odds: FairIJ(BlackBox(model)). Or edit the "
    "classifier first, then wrap the edited one, as in "
    "CalibratedClassifierCV(FrozenEstimator(fair.estimator_))",
    "FixedThresholdClassifier TunedThresholdClassifierCV": "it moves the threshold of a trained "
    "classifier; edit it as a whole: FairIJ(BlackBox(model), threshold=...), with the cut-off that "
    "decisions are made at (of a tuned one its `best_threshold_`). Or edit its `estimator_`, then "
    "choose the threshold of the edited one, as in "
    "FixedThresholdClassifier(FrozenEstimator(fair.estimator_))",
    "TransformedTargetRegressor": "its predictions are transformed after they are made; edit its "
    "`regressor_` on the transformed target",
    "OneVsRestClassifier OneVsOneClassifier MultiOutputClassifier": "it consists of several "
    "models, each with its own loss; edit them one by one, or train a multinomial "
    "LogisticRegression",
    "IsolationForest RandomTreesEmbedding": "it was trained without labels, so there is no loss to "
    "keep low; edit the model that uses what it gives",
    "QuadraticDiscriminantAnalysis": "its scores are quadratic in the features, and its parameters "
    "are means and covariances, which no loss of the predictions was minimised by; train a "
    "LogisticRegression on PolynomialFeatures(2)",
    "Lasso LassoCV ElasticNet ElasticNetCV": "its L1 penalty has no derivative at zero "
    "coefficients; train Ridge instead",
    "LinearSVC RidgeClassifier RidgeClassifierCV": "its loss gives no probabilities; train "
    "LogisticRegression instead",
}

OTHER_LIBRARIES: dict[str, str] = {  # libraries whose models look like known ones -> the cure
    "keras tf_keras tensorflow": "Keras has its own way of holding parameters: build the same "
    "network as a torch.nn.Module, copy the weights over, and give that",
    "jax flax equinox haiku": "it is a function of parameters that are kept elsewhere: build the "
    "same network as a torch.nn.Module, copy the weights over, and give that",
    "pyspark": "its parameters live in a Spark session: train one of the supported models on "
    "`frame.toPandas()`, or edit the LightGBM or XGBoost model that it wraps",
    "onnxruntime onnx": "a graph for prediction has no trained model in it: give the model that it "
    "was exported from, or edit a correction of its scores, as in FairIJ(BlackBox('model.onnx'))",
}
SCRIPTED = (
    "A scripted module (torch.jit) cannot be edited, because its parameters cannot be replaced "
    "while it runs: give the torch.nn.Module that it was made from, with its state_dict loaded."
)


def _check_library(model: Any) -> None:
    """Raise for models of libraries that fairij cannot edit, also if they are torch modules."""
    kinds = [(kind.__module__.split(".")[0], kind.__name__) for kind in type(model).__mro__]
    roots = {library for library, _ in kinds}
    for libraries, cure in OTHER_LIBRARIES.items():
        if not roots.isdisjoint(libraries.split()):
            raise InvalidInputError(f"A {type(model).__name__} cannot be edited: {cure}.")
    if ("torch", "ScriptModule") in kinds:
        raise InvalidInputError(SCRIPTED)


def adapt(model: Any, **options: Any) -> Editable:
    """Wrap a fitted model of any supported family; an `Editable` is returned as it is.

    Parameters
    ----------
    model : object
        A fitted model of a family in `FAMILIES`, or an object with every member of `Editable`.
    **options
        Settings of the family, such as ``parameters``, ``batch_size`` and ``memory_limit``.

    Examples
    --------
    >>> editable = adapt(model)
    >>> editable.theta.shape  # three coefficients and the intercept
    torch.Size([4])
    """
    _check_library(model)
    for known in FAMILIES:
        if known.recognises(model):
            return whole(model, known.make, options)
    if isinstance(model, type):
        raise InvalidInputError(
            f"`estimator` must be a fitted model, got the class {model.__name__}: fit an object of "
            "it first, and give that."
        )
    missing = [name for name in members(Editable) if not hasattr(model, name)]
    if not missing:
        return cast(Editable, model)
    kinds = {kind.__name__ for kind in type(model).__mro__}
    for names, reason in REFUSED.items():
        if not kinds.isdisjoint(names.split()):
            raise InvalidInputError(f"A {type(model).__name__} cannot be edited: {reason}.")
    own = [name for name in members(Editable) if not hasattr(EditableDefaults, name)]
    if not set(own) <= set(missing):
        raise InvalidInputError(
            f"{type(model).__name__!r} must have every member of `fairij.models.Editable`, but "
            f"lacks {', '.join(missing)}. Inherit `fairij.models.EditableDefaults` for what the "
            "model does not know, and write the rest."
        )
    raise InvalidInputError(
        f"No family of models recognises {type(model).__name__!r}; supported are "
        f"{', '.join(known.name for known in FAMILIES)}. Of any model that gives chances a "
        "correction can be edited: FairIJ(BlackBox(model)). For anything else write an adapter: an "
        f"object with the members of `fairij.models.Editable` ({', '.join(own)}; the rest from "
        "`EditableDefaults`). Give that object to FairIJ."
    )


is_black_box = of_class("fairij", "BlackBox")


def shaped(model: Any, data: Data, threshold: Threshold = None, pos_label: Any = None) -> Any:
    """The model with its parameters laid out; a black box learns them from the rows of a fit.

    ``threshold`` and ``pos_label`` are those of `FairIJ`: its correction knows the cut-off.
    """
    if not is_black_box(model):
        return model
    X, groups = data.X_val, data.groups
    if data.train_groups is not None and not is_streamed(data.X):
        X, groups = data.X, data.train_groups
    known = take_rows(X, groups.known), collapsed(groups).codes[groups.known]
    return model.shaped(data.X, known, _cut_off(model, data, threshold, pos_label))


def _cut_off(box: Any, data: Data, threshold: Threshold, pos_label: Any) -> float:
    """The cut-off as a chance of the second of two labels."""
    threshold = check_threshold(threshold)
    if threshold is None:
        return USUAL
    known = box.known_classes
    classes = np.unique(data.y) if known is None else known
    flipped = pos_label is not None and str(pos_label) == str(class_words(classes)[0])
    if isinstance(threshold, TopShare):
        z = box.log_odds(data.X_val)
        if z.ndim != 1:
            return USUAL
        cut = top_cut(-z if flipped else z, threshold.share, data.groups.weight)
        return float(expit(-cut if flipped else cut))
    return 1 - threshold if flipped else threshold
