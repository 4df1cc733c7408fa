"""The common form of the data that loaders return, and the loader of published tables."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import pandas as pd
from sklearn.utils import Bunch

from fairij.datasets._files import DataFile, FileOptions, Found, read_files


@dataclass(frozen=True)
class SensitiveAttribute:
    """Groups of people by the values of a column. The column is dropped to hide the group."""

    column: str
    group: Callable[[pd.Series], Any] = lambda values: values


class TableOptions(FileOptions, total=False):
    """The options of `fetch_adult` that every loader of a published table has."""

    include_sensitive: bool
    as_frame: bool


@dataclass(frozen=True)
class PublishedTable:
    """What differs between published tables, but for the way to read their files."""

    files: tuple[DataFile, ...]
    features: tuple[str, ...]
    attributes: Mapping[str, SensitiveAttribute]
    target_names: tuple[str, str]
    descr: str

    def load(
        self,
        read: Callable[[list[bytes]], pd.DataFrame],
        sensitive: str | Sequence[str],
        *,
        include_sensitive: bool = True,
        as_frame: bool = True,
        **files: Unpack[FileOptions],
    ) -> Bunch:
        """The data. `read` gives the features, `target` and, if there is one, `split`."""
        check_sensitive(sensitive, self.attributes)
        found = read_files(self.files, **files)
        table = read([found[file.name].content for file in self.files])
        data = table[list(self.features)]
        text = data.select_dtypes(exclude="number").columns
        # with the levels of the whole file, so that the encoded columns are the same in all splits
        data = data.astype(dict.fromkeys(text, "category"))
        data, groups = separate_groups(data, self.attributes, sensitive, include_sensitive)
        return make_bunch(
            data,
            table["target"],
            groups,
            sensitive=sensitive,
            as_frame=as_frame,
            includes_sensitive=include_sensitive,
            target_names=self.target_names,
            descr=self.descr,
            split=table.get("split"),
            origins=origins(found),
        )


def origins(files: Mapping[str, Found]) -> dict[str, dict[str, str]]:
    """Where each file was found, and its hash."""
    return {
        "source": {name: found.source for name, found in files.items()},
        "sha256": {name: found.sha256 for name, found in files.items()},
    }


def check_sensitive(sensitive: str | Sequence[str], known: Collection[str]) -> list[str]:
    """The names of the sensitive attributes, all of them known."""
    names = [sensitive] if isinstance(sensitive, str) else list(sensitive)
    if not names or not set(names) <= set(known):
        raise ValueError(f"`sensitive` must name one or more of {sorted(known)}, got {names}.")
    return names


def keep_races(
    table: pd.DataFrame, race: pd.Series, races: Sequence[str] | None, known: list[str]
) -> pd.DataFrame:
    """The rows of some races; all rows if `races` is None."""
    if races is None:
        return table
    if not races or not set(races) <= set(known):
        raise ValueError(f"`races` must be among {known} or None, got {list(races)}.")
    return table[race.isin(races)]


def separate_groups(
    data: pd.DataFrame,
    attributes: Mapping[str, SensitiveAttribute],
    sensitive: str | Sequence[str],
    include_sensitive: bool,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The features, without the sensitive columns if asked, and one column per attribute."""
    chosen = {name: attributes[name] for name in check_sensitive(sensitive, attributes)}
    groups = {name: by.group(data[by.column]) for name, by in chosen.items()}
    hidden = [] if include_sensitive else [by.column for by in chosen.values()]
    return data.drop(columns=hidden), pd.DataFrame(groups, index=data.index).astype("category")


def make_bunch(
    data: pd.DataFrame | pd.Series,
    target: pd.Series,
    groups: pd.DataFrame,
    *,
    sensitive: str | Sequence[str],
    as_frame: bool,
    target_names: tuple[str, str],
    descr: str,
    includes_sensitive: bool = True,
    split: pd.Series | None = None,
    origins: Mapping[str, Mapping[str, str]],
) -> Bunch:
    """Pack everything into a `Bunch`."""
    bunch = Bunch(
        data=data,
        target=target,
        sensitive_features=groups[sensitive] if isinstance(sensitive, str) else groups,
        split=split,
        feature_names=list(pd.DataFrame(data).columns),
        target_names=list(target_names),
        includes_sensitive=includes_sensitive,
        DESCR=descr,
        **origins,
    )
    if not as_frame:
        tables = {k: v for k, v in bunch.items() if isinstance(v, pd.DataFrame | pd.Series)}
        bunch.update({name: table.to_numpy() for name, table in tables.items()})
    return bunch
