"""Files of LightGBM, XGBoost, CatBoost and scikit-learn; pickles if the user trusts them."""

from __future__ import annotations

import pickle
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fairij.errors import InvalidInputError
from fairij.storage.model_files.catboost_content import CheckedCatBoost, canonical_catboost
from fairij.storage.model_files.columns import ModelFile, Opening, file_of
from fairij.storage.model_files.lightgbm_text import canonical_lightgbm
from fairij.storage.model_files.xgboost_content import canonical_xgboost
from fairij.storage.reading import check_archive, library, reading, strict_json


def lightgbm_text(path: Path, opening: Opening) -> ModelFile:
    lightgbm = library("lightgbm", "LightGBM models")
    with reading(path, "a LightGBM text model"):
        model = lightgbm.Booster(model_str=lightgbm_content(path))
    return file_of("LightGBM text", model, ".txt", _save_trees)


def lightgbm_content(path: Path) -> str:
    """The checked content of a file, written as LightGBM writes it."""
    try:
        return canonical_lightgbm(path.read_bytes())
    except (KeyError, ValueError, OverflowError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise InvalidInputError(
            f"{path} cannot be read as a LightGBM text model: {reason}. Write it with "
            "`booster.save_model('model.txt')`."
        ) from None


def xgboost_file(path: Path, opening: Opening) -> ModelFile:
    """A `Booster`, or the scikit-learn estimator that the file says it was saved from."""
    xgboost = library("xgboost", "XGBoost models")
    with reading(path, "an XGBoost model"):
        checked = canonical_xgboost(path.read_bytes(), is_json=path.suffix.lower() == ".json")
        origin = strict_json(checked.attributes.get("scikit_learn", "{}")).get("_estimator_type")
        estimators = {"classifier": xgboost.XGBClassifier, "regressor": xgboost.XGBRegressor}
        model: Any = estimators.get(origin, xgboost.Booster)()
        model.load_model(bytearray(checked.content))
    return file_of("XGBoost " + path.suffix[1:].upper(), model, path.suffix, _save_trees)


def json_file(path: Path, opening: Opening) -> ModelFile:
    """XGBoost's or CatBoost's; the reader of each is strict."""
    content = path.read_bytes()
    of_catboost = b'"features_info"' in content and b'"gradient_booster"' not in content
    return (catboost_json if of_catboost else xgboost_file)(path, opening)


def catboost_json(path: Path, opening: Opening) -> ModelFile:
    """The leaf values are those of the text; CatBoost's own reader may round their last digit."""
    catboost = library("catboost", "CatBoost models")
    with reading(path, "a CatBoost JSON model"), tempfile.TemporaryDirectory() as folder:
        checked = canonical_catboost(path.read_bytes())
        copy = Path(folder) / "model.json"
        copy.write_bytes(checked.content())
        model = _catboost_kind(catboost, checked.loss)().load_model(str(copy), format="json")
        read = np.asarray(model.get_leaf_values())
        if read.shape != checked.values.shape or not np.allclose(read, checked.values, rtol=1e-12):
            raise InvalidInputError(f"{path} must hold the leaves in CatBoost's own order.")
        model.set_leaf_values(checked.values)
    return file_of("CatBoost JSON", model, path.suffix, partial(_save_catboost_json, checked))


def _save_catboost_json(checked: CheckedCatBoost, model: Any, target: Path) -> None:
    """The file that was read, with the leaf values of a model of the same splits."""
    target.write_bytes(checked.edited(np.asarray(model.get_leaf_values(), np.float64)))


def catboost_binary(path: Path, opening: Opening) -> ModelFile:
    """CatBoost checks the frame of a .cbm file, not what its numbers lead to."""
    opening.require_trust(
        path,
        "a CatBoost binary file",
        "can end the process or worse if somebody changed the file, because CatBoost does not "
        "check all of it",
        "save the model as JSON, which is checked: model.save_model('model.json', format='json')",
    )
    catboost = library("catboost", "CatBoost models")
    with reading(path, "a CatBoost binary model"):
        model = catboost.CatBoost().load_model(str(path))
        loss = strict_json(model.get_metadata()["params"])["loss_function"]["type"]
        model = _catboost_kind(catboost, loss)().load_model(str(path))
    return file_of("CatBoost binary", model, path.suffix, _save_trees)


def _catboost_kind(catboost: Any, loss: str) -> Any:
    """The estimator that this loss belongs to."""
    if loss in ("Logloss", "CrossEntropy", "MultiClass", "MultiClassOneVsAll"):
        return catboost.CatBoostClassifier
    return catboost.CatBoostRegressor if loss == "RMSE" else catboost.CatBoost


def skops_file(path: Path, opening: Opening) -> ModelFile:
    """Open a skops file. It may hold types that skops knows as safe or that the user trusts."""
    skops = library("skops.io", "skops files")
    with reading(path, "a skops file"):
        check_archive(path)
        held = skops.get_untrusted_types(file=str(path))
        unknown = sorted(set(held) - set(opening.trusted_types))
        if unknown:
            raise InvalidInputError(
                f"{path} holds {len(unknown)} type(s) that are not known to be safe: "
                f"{', '.join(unknown)}. If you know the file and the types, trust each by name: "
                + " ".join(f"--trust {name}" for name in unknown)
            )
        model = skops.load(str(path), trusted=list(opening.trusted_types))
    return file_of("scikit-learn (skops)", model, path.suffix, skops.dump)


def pickle_file(path: Path, opening: Opening) -> ModelFile:
    opening.require_trust(path, "a pickle")
    joblib = library("joblib", "joblib files")
    with reading(path, "a pickled model"):
        model = joblib.load(path)
    return file_of("pickle", model, path.suffix, _save_pickle)


def _save_trees(model: Any, target: Path) -> None:
    model.save_model(str(target))


def _save_pickle(model: Any, target: Path) -> None:
    if target.suffix == ".joblib":
        library("joblib", "joblib files").dump(model, target)
    else:
        target.write_bytes(pickle.dumps(model))
