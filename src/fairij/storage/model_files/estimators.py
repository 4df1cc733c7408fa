"""LightGBM text, XGBoost JSON and UBJ, scikit-learn's skops; pickles if the user trusts them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from fairij.errors import InvalidInputError
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
