"""The tables of the study, as their loaders give them, or from packed files.

`pack` writes one small file for each table, for a machine that has neither the files nor a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from fairij.datasets import Splits, make_splits
from fairij.datasets.adult import VALIDATION
from fairij.errors import InvalidInputError
from fairij_studies.trees.data import (
    ADMISSIONS,
    ADULT,
    COMPAS,
    COVERAGE,
    COVERAGE_SAMPLE,
    CREDIT_CARD,
    LOADERS,
    Places,
)

LEVELS, CODES, NUMBERS = "levels", "codes", "numbers"


@dataclass(frozen=True)
class Source:
    """Where the tables are read from, and where trained networks are kept.

    Parameters
    ----------
    places : Places
        The cache of the loaders, and a Parquet file with a sample of Coverage.
    packed : str or None, default=None
        A folder that `pack` wrote. Nothing else is then read.
    cache : str, default="."
        The folder of trained networks and of the scores that other programs take.
    """

    places: Places
    packed: str | None = None
    cache: str = "."

    @property
    def titles(self) -> tuple[str, ...]:
        coverage = COVERAGE_SAMPLE if self.places.coverage or self.packed else COVERAGE
        return (ADULT, coverage, COMPAS, CREDIT_CARD, ADMISSIONS)


@lru_cache(maxsize=2)
def bunch(title: str, source: Source) -> Bunch:
    """A table without the group among its features."""
    if source.packed is None:
        return LOADERS[title](source.places, False)
    return unpack(Path(source.packed) / f"{slug(title)}.npz")


@lru_cache(maxsize=2)
def load_splits(title: str, source: Source, seed: int) -> Splits:
    """Split Adult into UCI's test set and 33 % of the rest for validation, the others 50/20/30."""
    table = bunch(title, source)
    if table.split is None:
        return make_splits(table, seed, validation=0.2, test=0.3)
    return make_splits(table, seed, validation=VALIDATION)


def data_source(title: str, source: Source) -> str:
    """The names of the files with the first digits of their SHA-256."""
    hashes = bunch(title, source).sha256
    return ", ".join(f"{name} {digest[:16]}" for name, digest in hashes.items())


def pack(table: Bunch, path: Path) -> None:
    """Write the rows of a table to one file. Numbers stay as they are, categories become codes."""
    columns = dict(table.data.items()) | {"": table.sensitive_features}
    stored: dict[str, np.ndarray] = {
        "names": np.array(list(table.data.columns)),
        "group": np.array([str(table.sensitive_features.name)]),
        "target": table.target.to_numpy(np.int8),
        "files": np.array([f"{name} {digest}" for name, digest in table.sha256.items()]),
    }
    if table.split is not None:
        stored["split"] = np.asarray(table.split == "test")
    for name, values in columns.items():
        if isinstance(values.dtype, pd.CategoricalDtype):
            stored[f"{LEVELS} {name}"] = np.array(values.cat.categories.to_list())
            stored[f"{CODES} {name}"] = values.cat.codes.to_numpy()
        else:
            stored[f"{NUMBERS} {name}"] = values.to_numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **stored)  # type: ignore[arg-type]


def unpack(path: Path) -> Bunch:
    """The table that `pack` wrote."""
    if not path.is_file():
        raise InvalidInputError(
            f"The packed folder must hold {path.name}, but {path} is missing. Write it by "
            "`python -m fairij_studies.frontier pack`."
        )
    with np.load(path) as stored:
        group = _column(stored, "").rename(str(stored["group"][0]))
        data = {str(name): _column(stored, str(name)) for name in stored["names"]}
        split = np.where(stored["split"], "test", "train") if "split" in stored else None
        return Bunch(
            data=pd.DataFrame(data),
            target=pd.Series(stored["target"].astype("int64")),
            sensitive_features=group,
            split=None if split is None else pd.Series(split),
            includes_sensitive=False,
            sha256=dict(str(line).rsplit(" ", 1) for line in stored["files"]),
        )


def _column(stored: Mapping[str, np.ndarray], name: str) -> pd.Series:
    if f"{NUMBERS} {name}" in stored:
        return pd.Series(stored[f"{NUMBERS} {name}"])
    levels = stored[f"{LEVELS} {name}"].tolist()
    return pd.Series(pd.Categorical.from_codes(stored[f"{CODES} {name}"], levels))


def slug(text: str) -> str:
    return text.lower().replace(",", "").replace(" ", "-")
