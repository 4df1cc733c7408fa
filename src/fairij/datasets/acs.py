"""ACSPublicCoverage: which people with a low income have public health insurance."""

import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Literal

import pandas as pd
from sklearn.utils import Bunch

from fairij.datasets._bunch import SensitiveAttribute, keep_races, make_bunch, separate_groups
from fairij.datasets._files import DatasetUnavailable, PathLike, check_hash, get_data_home

NUMERICAL = ("AGEP", "SCHL", "PINCP")  # age, schooling as an ordered grade, income
CATEGORICAL = (
    *("MAR", "SEX", "DIS", "ESP", "CIT", "MIG", "MIL", "ANC", "NATIVITY"),
    *("DEAR", "DEYE", "DREM", "ESR", "ST", "FER", "RAC1P"),
)
TARGET = "PUBCOV"
RACES = {
    **{1: "White", 2: "Black", 3: "American Indian", 4: "Alaska Native"},
    **{5: "American Indian or Alaska Native, tribe not specified"},
    **{6: "Asian", 7: "Pacific Islander", 8: "Other", 9: "Two or more"},
}
FIRST_CODE = {"census": 1, "zero-based": 0}  # the lowest code of RAC1P in each convention
HORIZON = "1-Year"
SEXES = {1: "Male", 2: "Female"}
ATTRIBUTES = {
    "race": SensitiveAttribute("RAC1P", lambda codes: codes.astype("int64").map(RACES)),
    "sex": SensitiveAttribute("SEX", lambda codes: codes.astype("int64").map(SEXES)),
}

DESCR = """ACSPublicCoverage (American Community Survey), Ding, Hardt, Miller and Schmidt 2021.

{rows} people under 65 with an income of at most 30,000 dollars: {origin}. Races kept: {races}.
Target: 1 for public health insurance. Sensitive: race (RAC1P), sex (SEX). Codes are those of the
census, with RAC1P from 1. Missing answers are 0, as in folktables. The survey files have no
published hash: `sha256` is the hash of what was read, and the parameter `sha256` can require it.
"""


def fetch_acs_public_coverage(
    *,
    year: int = 2014,
    state: str = "CA",
    races: Sequence[str] | None = ("White", "Black"),
    sensitive: str | Sequence[str] = "race",
    include_sensitive: bool = True,
    as_frame: bool = True,
    data_home: PathLike | None = None,
    path: PathLike | Sequence[PathLike] | None = None,
    race_codes: Literal["auto", "census", "zero-based"] = "auto",
    sha256: Mapping[str, str] | None = None,
    download: bool = True,
) -> Bunch:
    """Load ACSPublicCoverage with folktables, or from parquet files with the same columns.

    Other parameters and the returned `Bunch` are those of `fetch_adult`.

    Parameters
    ----------
    year : int, default=2014
        Year of the one-year survey. Ignored if `path` is given.
    state : str, default="CA"
        State of the survey. Ignored if `path` is given.
    races : sequence of str, default=("White", "Black")
        The races to keep, by the names in `RACES`. None keeps all.
    path : path or sequence of paths, optional
        Parquet files with folktables' feature columns (ST is optional) and PUBCOV as 0 or 1.
    race_codes : {"auto", "census", "zero-based"}, default="auto"
        The codes of RAC1P in the files at `path`: 1 to 9 (census), or 0 to 8 (zero-based).
        "auto" decides by a 0 or a 9 in the column, and raises if it has neither or both.
        The result always has the census codes.
    sha256 : mapping of str to str, optional
        Required hashes by file name, of files at `path` or of folktables' csv file.

    Examples
    --------
    >>> from fairij.datasets import fetch_acs_public_coverage
    >>> data = fetch_acs_public_coverage(year=2018, path="coverage.parquet")  # doctest: +SKIP
    """
    if path is None:
        table, files = _from_folktables(year, state, get_data_home(data_home), download)
        origin, race_codes = f"{state} {year}, one-year survey", "census"
    else:
        files = [Path(path)] if isinstance(path, str | os.PathLike) else [Path(p) for p in path]
        table = pd.concat([_read_parquet(file) for file in files])
        origin = "local files " + ", ".join(file.name for file in files)
    hashes = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    for name, expected in (sha256 or {}).items():
        check_hash(name, hashes.get(name, "no file of that name"), expected, "Nothing was loaded.")
    data, target = _select(_with_census_races(table, race_codes), races)
    data, groups = separate_groups(data, ATTRIBUTES, sensitive, include_sensitive)
    kept = "all" if races is None else ", ".join(races)
    return make_bunch(
        data,
        target,
        groups,
        sensitive=sensitive,
        as_frame=as_frame,
        includes_sensitive=include_sensitive,
        target_names=("not covered", "covered"),
        descr=DESCR.format(rows=f"{len(data):,}", origin=origin, races=kept),
        origins={
            "source": {f.name: "folktables" if path is None else str(f) for f in files},
            "sha256": hashes,
        },
    )


def _select(table: pd.DataFrame, races: Sequence[str] | None) -> tuple[pd.DataFrame, pd.Series]:
    table = keep_races(table, table["RAC1P"].map(RACES), races, list(RACES.values()))
    features = [c for c in (*NUMERICAL, *CATEGORICAL) if c in table.columns]
    codes = [c for c in features if c in CATEGORICAL]
    data = table[features].fillna(0).astype(dict.fromkeys(codes, "int64"))
    return data.astype(dict.fromkeys(codes, "category")), table[TARGET].astype("int64")


def _with_census_races(table: pd.DataFrame, race_codes: str) -> pd.DataFrame:
    found = set(table["RAC1P"].astype("int64"))
    if race_codes == "auto":
        if (0 in found) == (9 in found):
            raise ValueError(
                "RAC1P must contain a 0 (zero-based) or a 9 (census) to tell its codes, found "
                f"{sorted(found)}. Pass `race_codes`, one of {list(FIRST_CODE)}."
            )
        race_codes = "zero-based" if 0 in found else "census"
    if race_codes not in FIRST_CODE:
        known = ["auto", *FIRST_CODE]
        raise ValueError(f"`race_codes` must be one of {known}, got {race_codes!r}.")
    shift = min(RACES) - FIRST_CODE[race_codes]
    if not {code + shift for code in found} <= set(RACES):
        raise ValueError(
            f"RAC1P must lie between {min(RACES) - shift} and {max(RACES) - shift} when "
            f"race_codes={race_codes!r}, found {sorted(found)}."
        )
    return table.assign(RAC1P=table["RAC1P"].astype("int64") + shift)


def _read_parquet(file: Path) -> pd.DataFrame:
    from fairij.data.parquet_checks import check_parquet
    from fairij.storage.reading import reading

    if not file.is_file():
        raise DatasetUnavailable(f"`path` must be a parquet file, found none: {file}.")
    try:
        import_module("pyarrow")
    except ImportError as error:
        cause = f"Parquet files need pyarrow: pip install 'fairij[datasets]'. {error}"
        raise ImportError(cause) from error
    with reading(file, "parquet"):
        check_parquet(file)
        table = pd.read_parquet(file)
    optional = {"ST"}  # a file of one state may not have it
    if missing := sorted({TARGET, *NUMERICAL, *CATEGORICAL} - optional - set(table.columns)):
        raise ValueError(
            f"{file.name} must have the columns of folktables' ACSPublicCoverage, but lacks "
            f"{missing}."
        )
    if not set(table[TARGET].unique()) <= {0, 1}:
        raise ValueError(
            f"{TARGET} must be 0 or 1 in {file.name}, found {sorted(table[TARGET].unique())[:5]}. "
            "For raw survey files leave `path` out and let folktables read them."
        )
    return table


def _from_folktables(
    year: int, state: str, home: Path, download: bool
) -> tuple[pd.DataFrame, list[Path]]:
    try:
        from folktables import ACSDataSource, ACSPublicCoverage
        from folktables.load_acs import initialize_and_download, state_list
    except ImportError as error:
        raise ImportError("The survey needs folktables: pip install 'fairij[datasets]'.") from error
    if year < 2014:
        raise ValueError(f"`year` must be 2014 or later, got {year}.")
    if state not in state_list:
        raise ValueError(f"`state` must be one of {state_list}, got {state!r}.")

    def locate(folder: Path, download: bool) -> Path:
        survey = (state, year, HORIZON, "person")
        return Path(initialize_and_download(str(folder), *survey, download=download))

    root = home / "folktables"
    folder = root / str(year) / HORIZON
    try:
        file = locate(folder, False)
    except FileNotFoundError as error:
        if not download:
            raise DatasetUnavailable(
                f"The survey of {state} {year} is not in {folder}, and download=False. "
                "Allow the download, or give a parquet file as `path=`."
            ) from error
        file = _download_survey(locate, folder)
    source = ACSDataSource(str(year), HORIZON, "person", root_dir=str(root))
    features, target, _ = ACSPublicCoverage.df_to_pandas(source.get_data(states=[state]))
    return features.assign(**{TARGET: target[TARGET].astype("int64")}), [file]


def _download_survey(locate: Callable[[Path, bool], Path], folder: Path) -> Path:
    """Let folktables download outside the cache: it prints errors and can leave partial files."""
    folder.mkdir(parents=True, exist_ok=True)
    said = io.StringIO()
    with tempfile.TemporaryDirectory(dir=folder) as apart:
        with redirect_stdout(said):
            fresh = locate(Path(apart), True)
        if not fresh.is_file():
            causes = [line for line in said.getvalue().splitlines() if line.startswith("Exception")]
            raise DatasetUnavailable(
                f"{fresh.name} could not be downloaded by folktables: {' '.join(causes)} "
                "Try again with a connection, or give a parquet file as `path=`."
            )
        return fresh.replace(folder / fresh.name)
