"""scikit-learn models: skops files, and pickle or joblib files if the user trusts them."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

from fairij.errors import InvalidInputError
from fairij.storage.model_files.base import ModelFile, Opening, needs_trust
from fairij.storage.model_files.columns import known_columns, prepared
from fairij.storage.reading import library, reading


def skops_file(path: Path, opening: Opening) -> ModelFile:
    """Open a skops file. It may hold types that skops knows as safe or that the user trusts."""
    skops = library("skops.io", "skops files")
    with reading(path, "a skops file"):
        unknown = sorted(
            set(skops.get_untrusted_types(file=str(path))) - set(opening.trusted_types)
        )
        if unknown:
            raise InvalidInputError(
                f"{path} holds {len(unknown)} type(s) that are not known to be safe: "
                f"{', '.join(unknown)}. If you know the file and the types, trust each by name: "
                + " ".join(f"--trust {name}" for name in unknown)
            )
        model = skops.load(str(path), trusted=list(opening.trusted_types))
    return _file("scikit-learn (skops)", model, path.suffix, lambda m, to: skops.dump(m, to))


def pickle_file(path: Path, opening: Opening) -> ModelFile:
    if not opening.trust_pickle:
        raise needs_trust(path, "a pickle")
    joblib = library("joblib", "joblib files")
    with reading(path, "a pickled model"):
        model = joblib.load(path)
    return _file("pickle", model, path.suffix, _dump)


def _dump(model: Any, target: Path) -> None:
    if target.suffix == ".joblib":
        library("joblib", "joblib files").dump(model, target)
    else:
        target.write_bytes(pickle.dumps(model))


def _file(kind: str, model: Any, suffix: str, save: Any) -> ModelFile:
    return ModelFile(kind, model, suffix, known_columns(model), partial(prepared, model), save)
