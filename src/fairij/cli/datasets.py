"""The work of `fairij datasets`: list the known data sets, or fetch one."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fairij import datasets
from fairij.cli.commands import DATASETS
from fairij.cli.console import print_json, show, table_of, tell
from fairij.cli.errors import FAILED, fail
from fairij.cli.outputs import check_file, whole_file
from fairij.errors import FairIJError, InvalidInputError
from fairij.storage.tables import near_matches, write_table


def show_datasets(data_home: Path | None, *, as_json: bool) -> None:
    home = datasets.get_data_home(data_home)
    if as_json:
        print_json({"datasets": DATASETS, "data_home": str(home)})
        return
    table = table_of(f"Data sets; files are kept in {home}", ["name", "what"])
    for name, text in DATASETS.items():
        table.add_row(name, text)
    show(table)


def fetch_dataset(
    name: str,
    out: Path | None,
    *,
    path: Path | None,
    data_home: Path | None,
    as_json: bool,
    force: bool,
) -> None:
    if name not in DATASETS:
        near = near_matches(name, list(DATASETS))
        raise InvalidInputError(
            f"There is no data set {name!r}"
            + (f"; did you mean {near[0]!r}?" if near else "")
            + f" Known are {', '.join(DATASETS)}."
        )
    if out is not None:
        check_file(out, force=force)
    try:
        bunch = getattr(datasets, f"fetch_{name}")(data_home=data_home, path=path)
    except datasets.DatasetUnavailable as error:
        fail(str(error), FAILED)
    except FairIJError:
        raise
    except (ImportError, ValueError) as error:  # a package is missing, or it is another file
        raise InvalidInputError(f"The data set {name} could not be read: {error}") from None
    frame = pd.DataFrame(bunch.data)
    groups = pd.DataFrame(bunch.sensitive_features)
    frame = frame.join(groups[[name for name in groups if name not in frame]])
    frame = frame.assign(target=bunch.target)
    if bunch.split is not None:
        frame["split"] = bunch.split
    if out is not None:
        with whole_file(out, force=force) as target:
            write_table(frame, target)
    columns = list(frame.columns)
    tell(
        {"name": name, "rows": len(frame), "columns": columns, "out": out},
        f"{name}: {len(frame)} rows, {len(columns)} columns." + (f" {out}" if out else ""),
        as_json=as_json,
    )
