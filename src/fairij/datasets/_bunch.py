"""The one shape in which every loader hands out its data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from sklearn.utils import Bunch


@dataclass(frozen=True)
class SensitiveAttribute:
    """How to read an attribute from the raw columns, and which columns give it away."""

    read: Callable[[pd.DataFrame], pd.Series]
    columns: tuple[str, ...]


def column(name: str) -> SensitiveAttribute:
    """Return the attribute that is a column of the data as it stands."""
    return SensitiveAttribute(lambda data: data[name], (name,))


def with_categories(data: pd.DataFrame) -> pd.DataFrame:
    """Turn text columns into categories whose levels are those of the whole published file.

    So the encoded dimension does not depend on which rows a random split puts into training.
    """
    text = data.select_dtypes(exclude="number").columns
    return data.astype(dict.fromkeys(text, "category"))


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
    """Put the sensitive attributes apart and pack all into a `Bunch`."""
    names = [sensitive] if isinstance(sensitive, str) else list(sensitive)
    unknown = [name for name in names if name not in attributes]
    if unknown or not names:
        raise ValueError(f"`sensitive` must name one or more of {sorted(attributes)}, got {names}.")
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
    if not as_frame:
        tables = {k: v for k, v in bunch.items() if isinstance(v, pd.DataFrame | pd.Series)}
        bunch.update({name: table.to_numpy() for name, table in tables.items()})
    return bunch
