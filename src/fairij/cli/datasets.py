"""`fairij datasets`: list the known data sets, or fetch one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairij.cli.console import print_json, say, show, table_of
from fairij.cli.errors import FAILED, fail
from fairij.cli.options import Force, Json
from fairij.cli.outputs import check_target, whole_file
from fairij.errors import InvalidInputError

# by the names of the loaders, `fairij.datasets.fetch_NAME`
KNOWN = {
    "adult": "UCI Adult: income above 50K, by sex or race",
    "compas": "ProPublica COMPAS: arrest within two years, by race",
    "german_credit": "UCI German credit: good or bad risk",
    "acs_public_coverage": "Folktables ACSPublicCoverage, California 2014: public health "
    "insurance, by race",
    "wikipedia_comments": "Comments labelled for toxicity, by identities that they mention",
    "civil_comments": "CivilComments (WILDS' file, from --path), by identities that people marked",
}
DataHome = Annotated[Path | None, typer.Option(help="The folder of data files.")]


def list_datasets(data_home: DataHome = None, as_json: Json = False) -> None:
    """List the data sets, and the folder of their files."""
    from fairij.datasets import get_data_home

    home = get_data_home(data_home)
    if as_json:
        print_json({"datasets": KNOWN, "data_home": str(home)})
        return
    table = table_of(f"Data sets; files are kept in {home}", ["name", "what"])
    for name, text in KNOWN.items():
        table.add_row(name, text)
    show(table)


EXAMPLES = ("fairij datasets fetch adult --out adult.csv",)


def fetch(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(KNOWN)}.")],
    out: Annotated[
        Path | None, typer.Option(help="Also write it as one table, .csv or .parquet.")
    ] = None,
    path: Annotated[
        Path | None, typer.Option(help="Take the files from here instead of the network.")
    ] = None,
    data_home: DataHome = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Fetch a data set, check its hash, and keep it. --out writes it as one table.

    The table has the features, the sensitive columns, the 0/1 label as `target`, and `split` where
    one is published.
    """
    import pandas as pd

    from fairij import datasets
    from fairij.storage.tables import near_matches, write_table

    if name not in KNOWN:
        near = near_matches(name, list(KNOWN))
        raise InvalidInputError(
            f"There is no data set {name!r}"
            + (f"; did you mean {near[0]!r}?" if near else "")
            + f" Known are {', '.join(KNOWN)}."
        )
    if out is not None:
        check_target(out, force=force)
    try:
        bunch = getattr(datasets, f"fetch_{name}")(data_home=data_home, path=path)
    except datasets.DatasetUnavailable as error:
        fail(str(error), FAILED)
    frame = pd.DataFrame(bunch.data)
    groups = pd.DataFrame(bunch.sensitive_features)
    frame = frame.join(groups[[name for name in groups if name not in frame]])
    frame = frame.assign(target=bunch.target)
    if bunch.split is not None:
        frame["split"] = bunch.split
    if out is not None:
        with whole_file(out, force=force) as target:
            write_table(frame, target)
    found = {"name": name, "rows": len(frame), "columns": list(frame.columns), "out": out}
    if as_json:
        print_json(found)
        return
    say(f"{name}: {len(frame)} rows, {len(frame.columns)} columns." + (f" {out}" if out else ""))
