"""An opened model file, and the feature columns of a table as rows for its model."""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from fairij.errors import FairIJWarning, InvalidInputError
from fairij.models import of_class
from fairij.models.statsmodels_results import named_columns, takes_frames, with_constant

MOST_SHOWN = 5
is_lightgbm = of_class("lightgbm", "Booster", "LGBMModel")
is_xgboost = of_class("xgboost", "Booster", "XGBModel")
is_catboost = of_class("catboost", "CatBoost")
is_statsmodels = of_class("statsmodels", "ResultsWrapper", "Results")
is_histogram = of_class("sklearn", "BaseHistGradientBoosting")


@dataclass(frozen=True)
class Opening:
    """What the user says about a model file."""

    trust_pickle: bool = False  # whether code in a file may run
    trusted_types: tuple[str, ...] = ()  # in a skops file, next to those known to be safe
    model_class: str | None = None  # of a torch state file: "module:Class" or "file.py:Class"
    model_args: Mapping[str, Any] = field(default_factory=dict)  # for the class's constructor
    base_model: Path | None = None  # the folder of the model that an adapter changes

    def require_trust(
        self,
        path: Path,
        what: str,
        danger: str = "runs code from the file",
        better: str = "save the model in a format without code (LightGBM text, XGBoost or "
        "CatBoost JSON, skops, safetensors)",
    ) -> None:
        if not self.trust_pickle:
            raise InvalidInputError(
                f"{path} is {what}, and opening it {danger}. If you trust its source, pass "
                f"--trust-pickle on the command line. Better: {better}."
            )


@dataclass(frozen=True)
class ModelFile:
    """An opened model."""

    kind: str
    model: Any
    suffix: str  # of a file in its own format; "" for a folder
    columns: tuple[str, ...] | None  # names of the features, if the model knows them
    prepare: Callable[[pd.DataFrame], Any]  # feature columns -> rows for the model
    save: Callable[[Any, Path], Any]  # write a model of this kind to a new file
    takes_text: bool = False  # one column of text instead of features
    labels: Mapping[str, int] = field(default_factory=dict)  # the model's names of the classes
    file_name: str = ""  # under which results hold it; "": model and the suffix
    score: str | None = None  # the column of scores, which rows have next to the features

    def saved_name(self) -> str:
        return self.file_name or f"model{self.suffix}"


@dataclass(frozen=True)
class Known:
    """The values of a column that a model knows."""

    listed: tuple[Any, ...]
    takes_others: bool  # as missing values; else the model fails on them


def file_of(kind: str, model: Any, suffix: str, save: Callable[[Any, Path], Any]) -> ModelFile:
    """An opened file of a model that takes feature columns."""
    return ModelFile(kind, model, suffix, known_columns(model), partial(prepared, model), save)


def known_columns(model: Any) -> tuple[str, ...] | None:
    """The names of the features, in the order of the model; None if it knows none."""
    if is_lightgbm(model):
        names = _booster(model).feature_name()
        if all(re.fullmatch(r"Column_\d+", str(name)) for name in names):
            return None  # trained on a table without names
    elif is_xgboost(model):
        names = _booster(model).feature_names
    elif is_catboost(model):
        names = model.feature_names_
        if list(names) == [str(place) for place in range(len(names))]:
            return None  # trained on a table without names
    elif is_statsmodels(model):
        names = named_columns(model)
    else:
        names = getattr(model, "feature_names_in_", None)
    known = None if names is None else tuple(map(str, np.atleast_1d(np.asarray(names, object))))
    if known and (doubled := [name for name, count in Counter(known).items() if count > 1]):
        raise InvalidInputError(
            f"A model must know each of its features by a name of its own, but {doubled[0]!r} "
            "occurs twice: train it on a table whose columns have different names."
        )
    return known


def prepared(model: Any, frame: pd.DataFrame) -> Any:
    """Rows for any model that does not take text."""
    if is_lightgbm(model):
        return _for_lightgbm(_booster(model), frame)
    if is_xgboost(model):
        return _for_xgboost(_booster(model), frame)
    if is_catboost(model):
        return _for_catboost(model, frame)
    if is_statsmodels(model):
        if takes_frames(model):
            return frame
        return with_constant(model, numbers(frame, missing=False).to_numpy())
    if isinstance(model, nn.Module):
        return numbers(frame, missing=False).to_numpy()
    if is_histogram(model) and getattr(model, "categorical_features", None) == "from_dtype":
        marked = [] if model.is_categorical_ is None else frame.columns[model.is_categorical_]
        return frame.astype(dict.fromkeys(marked, "category"))
    if known_columns(model) is None:
        return numbers(frame, missing=True).to_numpy()
    return frame


def numbers(frame: pd.DataFrame, *, missing: bool) -> pd.DataFrame:
    """The columns as plain numbers; ``missing`` says whether NaN is allowed."""
    converted = {str(name): _numeric(str(name), column) for name, column in frame.items()}
    result = pd.DataFrame(converted, index=frame.index)
    empty = result.isna()
    if not missing and bool(empty.to_numpy().any()):
        name = next(n for n in result.columns if empty[n].any())
        row = int(np.flatnonzero(empty[name])[0])
        raise InvalidInputError(
            f"This model takes no missing values, but the feature {name!r} has "
            f"{int(empty[name].sum())}, the first in row {row}: fill them as in training, or drop "
            "those rows."
        )
    return result


def _numeric(name: str, column: pd.Series[Any]) -> Any:
    kind = column.dtype.kind
    if kind in "iufb" and isinstance(column.dtype, np.dtype):
        return column
    is_date = kind in "mM"
    found = column if is_date else pd.to_numeric(column, errors="coerce")
    wrong = column.notna() & (is_date | found.isna())
    if not is_date and not wrong.any():
        return found.to_numpy(dtype=np.float64, na_value=np.nan)
    row, count = int(np.argmax(wrong)), int(wrong.sum())
    cure = ": encode it as in training, or name the features without it."
    if count < int(column.notna().sum()):
        cure = (
            f": numbers and text are mixed in it ({count} cells of {len(column)} are not numbers); "
            "correct those cells."
        )
    raise InvalidInputError(
        f"The feature {name!r} must be numeric for this model, but row {row} holds "
        f"{str(column.iloc[row])!r}{cure}"
    )


def _for_lightgbm(booster: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """Text and categories coded as in training; unknown values become missing."""
    lists = lightgbm_categories(booster, frame)
    plain = [name for name in frame.columns if name not in lists]
    result = frame.copy()
    result[plain] = numbers(frame[plain], missing=True)
    for name, values in lists.items():
        column = frame[name]
        known = column.astype(object).where(column.isin(values), None)
        result[name] = pd.Categorical(known, categories=values)
    return result


def lightgbm_categories(booster: Any, frame: pd.DataFrame) -> dict[str, list[Any]]:
    """The values of each categorical column. The file has the values, not the names."""
    lists = booster.pandas_categorical or []
    if not lists:
        return {}
    # the model's text describes categorical columns by lists, not by ranges
    text = booster.model_to_string(num_iteration=1)
    found = re.search(r"^feature_infos=(.*)$", text, re.MULTILINE)
    infos = found.group(1).split(" ") if found else []
    unused = [i for i, info in enumerate(infos) if info == "none"]  # constant
    sure = [i for i, info in enumerate(infos) if info != "none" and not info.startswith("[")]
    text_like = [i for i in unused if not pd.api.types.is_numeric_dtype(frame.dtypes.iloc[i])]
    for places in (sure, sure + text_like, sure + unused):
        if len(places) == len(lists):
            names = [str(frame.columns[place]) for place in sorted(places)]
            return dict(zip(names, lists, strict=True))
    raise InvalidInputError(
        f"The LightGBM model was trained with {len(lists)} categorical columns, but its file does "
        f"not tell which ones; {len(sure)} are certain. Give the features in the order of the "
        "training table."
    )


def _for_xgboost(booster: Any, frame: pd.DataFrame) -> Any:
    types = booster.feature_types or []
    names = [str(n) for n, kind in zip(frame.columns, types, strict=False) if kind == "c"]
    plain = [name for name in frame.columns if name not in names]
    keeps = hasattr(booster, "get_categories") and not booster.get_categories().empty()
    if names and booster.feature_names and not keeps:
        raise InvalidInputError(
            f"The XGBoost file does not keep the categories of {names[0]!r} (files of versions "
            "before 3.1 do not), so they cannot be coded as in training: train the model with a "
            "newer version."
        )
    result = frame.astype(dict.fromkeys(names, "category"))
    result[plain] = numbers(frame[plain], missing=True)
    return result if booster.feature_names else result.to_numpy()


def _for_catboost(model: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """Categories as text, as CatBoost hashes them; a missing one is the word "nan"."""
    marked = [str(frame.columns[place]) for place in model.get_cat_feature_indices()]
    plain = [name for name in frame.columns if name not in marked]
    result = frame.copy()
    result[plain] = numbers(frame[plain], missing=True)
    for name in marked:
        result[name] = _words(frame[name])
    return result


def _words(column: pd.Series[Any]) -> Any:
    """Text of each value; whole numbers that a missing value made fractions are whole again."""
    found = column
    if column.dtype.kind == "f" and bool((column.dropna() % 1 == 0).all()):
        found = column.astype("Int64")
    return found.astype(object).where(column.notna(), "nan").astype(str)


def _booster(model: Any) -> Any:
    """The trees of a LightGBM or XGBoost estimator, or the booster itself."""
    is_estimator = hasattr(model, "get_booster")  # of XGBoost
    return model.get_booster() if is_estimator else getattr(model, "booster_", model)


def known_categories(model: Any, frame: pd.DataFrame) -> dict[str, Known]:
    """The categorical columns whose values the model has stored, by name."""
    if is_lightgbm(model):
        lists = lightgbm_categories(_booster(model), frame)
        return {name: Known(tuple(values), True) for name, values in lists.items()}
    found = _stored(_booster(model)) if is_xgboost(model) else _encoded(model)
    return {name: known for name, known in found if name in frame.columns}


def check_categories(model: Any, tables: Iterable[pd.DataFrame], *, where: str) -> None:
    """Warn about values that the model does not know; raise if it cannot take them."""
    known: dict[str, Known] | None = None
    present: Counter[str] = Counter()
    unseen: defaultdict[str, Counter[Any]] = defaultdict(Counter)
    for table in tables:
        known = known_categories(model, table) if known is None else known
        if not known:
            return
        for name, one in known.items():
            column = table[name].dropna()
            present[name] += len(column)
            unseen[name].update(column[~column.isin(list(one.listed))].tolist())
    for name, one in (known or {}).items():
        if unseen[name]:
            _warn_or_raise(where, name, one, unseen[name], present[name])


def _warn_or_raise(where: str, name: str, known: Known, unseen: Counter[Any], present: int) -> None:
    shown = ", ".join(repr(value) for value, _ in unseen.most_common(MOST_SHOWN))
    shown += ", ..." if len(unseen) > MOST_SHOWN else ""
    if unseen.total() == present:
        raise InvalidInputError(
            f"The feature {name!r} must hold the categories of the training table, such as "
            f"{list(known.listed[:MOST_SHOWN])}, but none of its values in {where} is among them: "
            f"{shown}."
        )
    text = (
        f"{where} has {unseen.total()} of {present} rows whose {name!r} the model does not know "
        f"from its training: {shown}."
    )
    if not known.takes_others:
        raise InvalidInputError(f"{text} It cannot take them: drop or recode those rows.")
    warnings.warn(f"{text} It treats them as missing.", FairIJWarning, stacklevel=3)


def _stored(booster: Any) -> Iterator[tuple[str, Known]]:
    """The categories in an XGBoost file (since 3.1)."""
    if hasattr(booster, "get_categories") and find_spec("pyarrow") is not None:
        for name, values in booster.get_categories(export_to_arrow=True).to_arrow():
            if values is not None:
                yield str(name), Known(tuple(values.to_pylist()), False)


def _encoded(model: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[str, Known]]:
    """The categories of all scikit-learn encoders inside a model."""
    names = tuple(map(str, getattr(model, "feature_names_in_", names)))
    lists = getattr(model, "categories_", ())
    if len(lists) == len(names):
        takes_others = getattr(model, "handle_unknown", "error") != "error"
        for name, values in zip(names, lists, strict=True):
            yield name, Known(tuple(values.tolist()), takes_others)
    parts = [step for _, step in getattr(model, "steps", ())]
    parts += [step for _, step, _ in getattr(model, "transformers_", ())]
    inner = ("_preprocessor", "best_estimator_", "estimator")
    for part in parts + [getattr(model, name) for name in inner if hasattr(model, name)]:
        yield from _encoded(part, names)
        if hasattr(part, "transformers_"):
            names = ()  # its output has other columns
