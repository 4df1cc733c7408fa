"""Turn the feature columns of a table into the rows that a model takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from fairij.errors import InvalidInputError
from fairij.models import of_class

is_lightgbm = of_class("lightgbm", "Booster", "LGBMModel")
is_xgboost = of_class("xgboost", "Booster", "XGBModel")
is_histogram = of_class("sklearn", "BaseHistGradientBoosting")


def known_columns(model: Any) -> tuple[str, ...] | None:
    """The names of the features, in the order of the model; None if it knows none."""
    names: Sequence[Any] | None
    if is_lightgbm(model):
        names = as_booster(model).feature_name()
        if all(re.fullmatch(r"Column_\d+", str(name)) for name in names):
            return None  # trained on a table without names
    elif is_xgboost(model):
        names = as_xgboost(model).feature_names
    else:
        names = getattr(model, "feature_names_in_", None)
    return None if names is None else tuple(map(str, names))


def prepared(model: Any, frame: pd.DataFrame) -> Any:
    """Rows for any model that does not take text."""
    if is_lightgbm(model):
        return _for_lightgbm(as_booster(model), frame)
    if is_xgboost(model):
        return _for_xgboost(as_xgboost(model), frame)
    if isinstance(model, nn.Module):
        return numbers(frame, missing=False).to_numpy()
    if is_histogram(model) and getattr(model, "categorical_features", None) == "from_dtype":
        marked = model.is_categorical_
        return _as_categories(frame, [] if marked is None else list(frame.columns[marked]))
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
    as_numbers = pd.to_numeric(column, errors="coerce") if kind not in "mM" else None
    wrong = column.notna() if as_numbers is None else as_numbers.isna() & column.notna()
    if as_numbers is None or wrong.any():
        row = int(np.flatnonzero(wrong)[0]) if wrong.any() else 0
        mixed = int(wrong.sum()) < int(column.notna().sum())
        raise InvalidInputError(
            f"The feature {name!r} must be numeric for this model, but row {row} holds "
            f"{str(column.iloc[row])!r}"
            + (
                f": numbers and text are mixed in it ({int(wrong.sum())} cells of "
                f"{len(column)} are not numbers); correct those cells."
                if mixed
                else ": encode it as in training, or name the features without it."
            )
        )
    return as_numbers.to_numpy(dtype=np.float64, na_value=np.nan)


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
    names = _categorical_names(booster, frame, len(lists)) if lists else []
    return dict(zip(names, lists, strict=True))


def _categorical_names(booster: Any, frame: pd.DataFrame, wanted: int) -> list[str]:
    """The categorical columns: the model's text describes them by lists, not by ranges."""
    text = booster.model_to_string(num_iteration=1)
    found = re.search(r"^feature_infos=(.*)$", text, re.MULTILINE)
    infos = found.group(1).split(" ") if found else []
    unused = [i for i, info in enumerate(infos) if info == "none"]  # constant
    sure = [i for i, info in enumerate(infos) if info != "none" and not info.startswith("[")]
    text_like = [i for i in unused if not pd.api.types.is_numeric_dtype(frame.dtypes.iloc[i])]
    for places in (sure, sure + text_like, sure + unused):
        if len(places) == wanted:
            return [str(frame.columns[place]) for place in sorted(places)]
    raise InvalidInputError(
        f"The LightGBM model was trained with {wanted} categorical columns, but its file does not "
        f"tell which ones; {len(sure)} are certain. Give the features in the order of the training "
        "table."
    )


def _for_xgboost(booster: Any, frame: pd.DataFrame) -> Any:
    types = booster.feature_types or []
    names = [str(n) for n, kind in zip(frame.columns, types, strict=False) if kind == "c"]
    plain = [name for name in frame.columns if name not in names]
    if names and booster.feature_names and not _keeps_categories(booster):
        raise InvalidInputError(
            f"The XGBoost file does not keep the categories of {names[0]!r} (files of versions "
            "before 3.1 do not), so they cannot be coded as in training: train the model with a "
            "newer version."
        )
    result = _as_categories(frame, names)
    result[plain] = numbers(frame[plain], missing=True)
    return result if booster.feature_names else result.to_numpy()


def _keeps_categories(booster: Any) -> bool:
    return hasattr(booster, "get_categories") and not booster.get_categories().empty()


def _as_categories(frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    return frame.astype(dict.fromkeys(names, "category"))


def as_booster(model: Any) -> Any:
    return getattr(model, "booster_", model)


def as_xgboost(model: Any) -> Any:
    return model.get_booster() if hasattr(model, "get_booster") else model
