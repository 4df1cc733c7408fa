"""Training, validation and test rows of one trial, as the arrays that a model takes."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils import Bunch

RowNumbers = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """One part: features X (N, D), labels y (N,) of 0 and 1, group numbers s (N,).

    Examples
    --------
    >>> from fairij.datasets import Split
    >>> part = Split(X.astype("float32"), y.astype("float32"), (groups == "m").astype("int64"))
    >>> part.X.shape
    (600, 3)
    """

    X: NDArray[np.float32]
    y: NDArray[np.float32]
    s: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Splits:
    """The three parts of a trial. It unpacks as ``train, validation, test``.

    `groups[g]` is the name of the group with s == g, and `sensitive` is their attribute.
    `includes_sensitive` says whether this attribute is also among the features.

    Examples
    --------
    >>> train, validation, test = splits
    >>> len(train.y), len(validation.y), len(test.y)
    (600, 600, 300)
    """

    train: Split
    validation: Split
    test: Split
    feature_names: tuple[str, ...]
    groups: tuple[str, ...]
    sensitive: str
    includes_sensitive: bool
    seed: int

    def __iter__(self) -> Iterator[Split]:
        return iter((self.train, self.validation, self.test))


def three_way_split(
    n: int, seed: int, *, validation: float = 0.2, test: float = 0.3
) -> tuple[RowNumbers, RowNumbers, RowNumbers]:
    """Split the rows 0 ... n-1 at random into training, validation and test rows.

    The numbers of validation and test rows are rounded up, as in scikit-learn.

    Examples
    --------
    >>> from fairij.datasets import three_way_split
    >>> [len(rows) for rows in three_way_split(100, seed=0)]
    [50, 20, 30]
    """
    if min(validation, test) < 0 or validation + test >= 1:
        raise ValueError(
            "`validation` and `test` must be at least 0 and sum to less than 1, "
            f"got {validation} and {test}."
        )
    # rounded first, because 0.07 * 100 = 7.000000000000001 must not become 8
    n_validation, n_test = (math.ceil(round(share * n, 6)) for share in (validation, test))
    if n_validation + n_test >= n:
        raise ValueError(f"`n` must leave rows for training, got {n}.")
    order = np.random.default_rng(seed).permutation(n)
    held_out, train = np.split(order, [n_validation + n_test])
    return np.sort(train), np.sort(held_out[:n_validation]), np.sort(held_out[n_validation:])


@dataclass(frozen=True)
class Encoded:
    """One array (N_i, D) per table, and the fitted transformer for new rows.

    Examples
    --------
    >>> from fairij.datasets import encode
    >>> table = pd.DataFrame({"age": [20, 40], "job": ["cook", "clerk"]})
    >>> encode(table).feature_names
    ('age', 'job_clerk', 'job_cook')
    """

    arrays: tuple[NDArray[np.float32], ...]
    feature_names: tuple[str, ...]
    transformer: ColumnTransformer


def encode(train: pd.DataFrame, *others: pd.DataFrame) -> Encoded:
    """Standardise numerical columns and one-hot encode all others.

    Means and standard deviations are those of `train`. A column of dtype 'category' has its
    declared levels, any other column the levels in `train`. An unknown level becomes a row of
    zeros. A constant column becomes zeros, not NaN.

    Parameters
    ----------
    train : DataFrame
        The rows to fit on.
    *others : DataFrame
        More tables with the same columns.

    Examples
    --------
    >>> from fairij.datasets import encode
    >>> table = pd.DataFrame({"age": [20, 40], "job": ["cook", "clerk"]})
    >>> encode(table).arrays[0].tolist()
    [[-1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """
    numerical = list(train.select_dtypes("number").columns)
    categorical = [c for c in train.columns if c not in numerical]
    for table in (train, *others):
        if missing := [c for c in train.columns if c not in table.columns]:
            raise ValueError(f"Every table must have the columns of `train`, one lacks {missing}.")
        if incomplete := [c for c in numerical if table[c].isna().any()]:
            raise ValueError(
                f"Numerical columns must have no missing values, found some in {incomplete}. "
                "Fill them, or drop the rows."
            )
    levels = [train[c].astype("category").cat.categories.to_numpy() for c in categorical]
    one_hot = OneHotEncoder(categories=levels, handle_unknown="ignore", sparse_output=False)
    transformer = ColumnTransformer(
        [("numerical", StandardScaler(), numerical), ("categorical", one_hot, categorical)],
        verbose_feature_names_out=False,
    ).fit(train)
    return Encoded(
        tuple(transformer.transform(table).astype(np.float32) for table in (train, *others)),
        tuple(map(str, transformer.get_feature_names_out())),
        transformer,
    )


def make_splits(
    bunch: Bunch, seed: int, *, validation: float = 0.2, test: float | None = None
) -> Splits:
    """Split and encode the data of a loader, for one trial.

    Parameters
    ----------
    bunch : Bunch
        From a loader, with frames and one sensitive attribute.
    seed : int
        Seed of the split. Official test rows stay fixed.
    validation : float, default=0.2
        Share of the rows, or of the official training rows if there is an official split.
    test : float, default=0.3
        Share of the rows. It must not be given if there is an official split.

    Examples
    --------
    >>> from fairij.datasets import fetch_german_credit, make_splits
    >>> splits = make_splits(fetch_german_credit(), seed=0, validation=0.3, test=0.2)
    >>> [len(part.y) for part in splits]
    [500, 300, 200]
    """
    groups = bunch.sensitive_features
    if not isinstance(groups, pd.Series):
        raise ValueError(
            "`bunch` must hold one sensitive attribute as a Series, got "
            f"{type(groups).__name__}. Load it with one name as `sensitive` and as_frame=True."
        )
    groups = groups.astype("category").cat.remove_unused_categories()
    if bunch.split is None:
        share = 0.3 if test is None else test
        rows = three_way_split(len(bunch.data), seed, validation=validation, test=share)
    else:
        if test is not None:
            raise ValueError(f"`test` must be None if the test rows are official, got {test}.")
        official = np.flatnonzero(bunch.split == "train")
        fitted, held_out, _ = three_way_split(len(official), seed, validation=validation, test=0.0)
        rows = official[fitted], official[held_out], np.flatnonzero(bunch.split == "test")
    encoded = encode(*(bunch.data.iloc[part] for part in rows))
    y = bunch.target.to_numpy(np.float32)
    s = np.asarray(groups.cat.codes, dtype=np.int64)
    parts = [Split(X, y[part], s[part]) for X, part in zip(encoded.arrays, rows, strict=True)]
    return Splits(
        train=parts[0],
        validation=parts[1],
        test=parts[2],
        feature_names=encoded.feature_names,
        groups=tuple(map(str, groups.cat.categories)),
        sensitive=str(groups.name),
        includes_sensitive=bunch.includes_sensitive,
        seed=seed,
    )
