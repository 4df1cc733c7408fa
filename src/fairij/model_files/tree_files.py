"""LightGBM's text files, XGBoost's JSON and UBJ files."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fairij.model_files.base import ModelFile, Opening, library, reading
from fairij.model_files.columns import known_columns, prepared
from fairij.model_files.lightgbm_text import check_lightgbm_text


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
        model: Any = xgboost.Booster(model_file=str(path))
        _check_xgboost(model)
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


def _check_xgboost(booster: Any) -> None:
    """Raise unless branches lead to nodes that are there: predicting trusts them blindly."""
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    part = learner["gradient_booster"]
    model = part.get("gbtree", part).get("model", {})
    features = int(learner["learner_model_param"]["num_feature"])
    for number, tree in enumerate(model.get("trees", [])):
        left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
        inner = left != -1
        children = np.concatenate([left[inner], right[inner]])
        if (
            ((right != -1) != inner).any()
            or (children < 1).any()
            or (children >= len(left)).any()
            or len(np.unique(children)) != len(children)
            or (np.array(tree["split_indices"])[inner] >= features).any()
        ):
            raise ValueError(f"the branches of tree {number} do not make a tree")


def _saved(_: Any) -> None:
    """The libraries' `save_model` return one thing or another."""
