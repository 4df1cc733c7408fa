"""The common form of the data that loaders return."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import pandas as pd
from sklearn.utils import Bunch

from fairij.datasets._files import Found


@dataclass(frozen=True)
class SensitiveAttribute:
    """How to read an attribute from the raw columns, and which columns reveal it."""

    read: Callable[[pd.DataFrame], pd.Series]
    columns: tuple[str, ...]


def column(name: str) -> SensitiveAttribute:
    """An attribute that is itself a column of the data."""
    return SensitiveAttribute(lambda data: data[name], (name,))


def with_categories(data: pd.DataFrame) -> pd.DataFrame:
    """Turn text columns into categories with the levels of the whole published file.

    So the number of encoded columns does not depend on a random split.
    """
    text = data.select_dtypes(exclude="number").columns
    return data.astype(dict.fromkeys(text, "category"))


class Origins(TypedDict):
    """Sources and hashes by file name."""

    source: dict[str, str]
    sha256: dict[str, str]


def origins(files: Mapping[str, Found]) -> Origins:
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


def make_bunch(
    data: pd.DataFrame,
    target: pd.Series,
    *,
    attributes: Mapping[str, SensitiveAttribute],
    sensitive: str | Sequence[str],
    include_sensitive: bool,
    as_frame: bool,
    target_names: tuple[str, str],
    descr: str,
    source: Mapping[str, str],
    sha256: Mapping[str, str],
    split: pd.Series | None = None,
) -> Bunch:
    """Separate the sensitive attributes and pack everything into a `Bunch`."""
    names = check_sensitive(sensitive, attributes)
    groups = pd.DataFrame(
        {name: attributes[name].read(data).astype("category") for name in names}, index=data.index
    )
    if not include_sensitive:
        data = data.drop(columns=[c for name in names for c in attributes[name].columns])
    bunch = Bunch(
        data=data,
        target=target,
        sensitive_features=groups[sensitive] if isinstance(sensitive, str) else groups,
        split=split,
        feature_names=list(data.columns),
        target_names=list(target_names),
        includes_sensitive=include_sensitive,
        DESCR=descr,
        source=dict(source),
        sha256=dict(sha256),
    )
    return bunch if as_frame else _with_arrays(bunch)


def make_text_bunch(
    texts: pd.Series,
    target: pd.Series,
    mentions: pd.DataFrame,
    split: pd.Series,
    *,
    sensitive: str | Sequence[str],
    as_frame: bool,
    target_names: tuple[str, str],
    descr: str,
    **facts: object,
) -> Bunch:
    """Pack texts into a `Bunch`. `mentions` has one column of booleans per identity."""
    bunch = Bunch(
        data=texts.rename("text"),
        target=target,
        sensitive_features=mentions[sensitive] if isinstance(sensitive, str) else mentions,
        split=split,
        feature_names=["text"],
        includes_sensitive=True,  # the words that reveal it stay in the text
        target_names=list(target_names),
        DESCR=descr,
        **facts,
    )
    return bunch if as_frame else _with_arrays(bunch)


def _with_arrays(bunch: Bunch) -> Bunch:
    tables = {k: v for k, v in bunch.items() if isinstance(v, pd.DataFrame | pd.Series)}
    bunch.update({name: table.to_numpy() for name, table in tables.items()})
    return bunch
