"""Text files of LightGBM, JSON and UBJ files of XGBoost."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from fairij.storage.model_files.base import ModelFile, Opening
from fairij.storage.model_files.columns import known_columns, prepared
from fairij.storage.model_files.lightgbm_text import check_lightgbm_text
from fairij.storage.model_files.xgboost_content import check_xgboost
from fairij.storage.reading import library, reading


def lightgbm_text(path: Path, opening: Opening) -> ModelFile:
    lightgbm = library("lightgbm", "LightGBM models")
    with reading(path, "a LightGBM text model"):
        check_lightgbm_text(path)
        model = lightgbm.Booster(model_file=str(path))
    return ModelFile(
        "LightGBM text",
        model,
        ".txt",
        known_columns(model),
        partial(prepared, model),
        lambda edited, target: _saved(edited.save_model(str(target))),
    )


def xgboost_file(path: Path, opening: Opening) -> ModelFile:
    """A `Booster`, or the scikit-learn estimator that the file says it was saved from."""
    xgboost = library("xgboost", "XGBoost models")
    with reading(path, "an XGBoost model"):
        check_xgboost(path)
        model: Any = xgboost.Booster(model_file=str(path))
        origin = json.loads(model.attr("scikit_learn") or "{}").get("_estimator_type")
        estimators = {"classifier": xgboost.XGBClassifier, "regressor": xgboost.XGBRegressor}
        if origin in estimators:
            model = estimators[origin]()
            model.load_model(str(path))
    return ModelFile(
        "XGBoost " + path.suffix[1:].upper(),
        model,
        path.suffix,
        known_columns(model),
        partial(prepared, model),
        lambda edited, target: _saved(edited.save_model(str(target))),
    )


def _saved(_: Any) -> None:
    """The libraries' `save_model` return one thing or another."""
