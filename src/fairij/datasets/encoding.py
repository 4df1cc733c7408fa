"""Turn a table into the float32 matrix that a model takes."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler


@dataclass(frozen=True)
class Encoded:
    """One array (N_i, D) per table, and the fitted transformer for new rows."""

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
    """
    numerical = list(train.select_dtypes("number").columns)
    categorical = [c for c in train.columns if c not in numerical]
    for table in (train, *others):
        _check_columns(table, train.columns)
        _check_complete(table[numerical])
    levels = [train[c].astype("category").cat.categories.to_numpy() for c in categorical]
    transformer = ColumnTransformer(
        [
            ("numerical", StandardScaler(), numerical),
            (
                "categorical",
                OneHotEncoder(categories=levels, handle_unknown="ignore", sparse_output=False),
                categorical,
            ),
        ],
        verbose_feature_names_out=False,
    ).fit(train)
    return Encoded(
        tuple(transformer.transform(table).astype(np.float32) for table in (train, *others)),
        tuple(map(str, transformer.get_feature_names_out())),
        transformer,
    )


def _check_columns(table: pd.DataFrame, columns: pd.Index) -> None:
    missing = [c for c in columns if c not in table.columns]
    if missing:
        raise ValueError(f"Every table must have the columns of `train`, one lacks {missing}.")


def _check_complete(numbers: pd.DataFrame) -> None:
    incomplete = list(numbers.columns[numbers.isna().any()])
    if incomplete:
        raise ValueError(
            f"Numerical columns must have no missing values, found some in {incomplete}. "
            "Fill them, or drop the rows."
        )
