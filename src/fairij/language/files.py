"""Texts and labels from wherever they lie: a file, a frame, a dataset."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairij.errors import InvalidInputError
from fairij.language.checks import named_columns, texts_of

KINDS = {  # by the name's ending
    ".csv": "csv",
    ".tsv": "csv",
    ".csv.gz": "csv",
    ".tsv.gz": "csv",
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".jsonl.gz": "json",
}


def labelled(source: Any, *, text: str = "text", label: str = "label") -> tuple[Any, Any]:
    """Texts and labels from a `datasets.Dataset`, a DataFrame or mapping, or a file.

    Parameters
    ----------
    source : the table, or the name of a csv, tsv, parquet, json (a list of records) or jsonl file;
        the texts of a file are read as they stand there
    text, label : the names of the columns
    """
    if isinstance(source, (str, Path)):
        source = _read(Path(source), text)
    names = named_columns(source)
    if names is None:
        raise InvalidInputError(
            f"`source` must be a file, frame, dataset or mapping, got {type(source).__name__}."
        )
    missing = [name for name in (text, label) if name not in names]
    if missing:
        raise InvalidInputError(f"`source` must have the columns {missing}; found {names}.")
    return texts_of(f"source[{text!r}]", source[text]), np.asarray(source[label])


def _read(file: Path, text: str) -> pd.DataFrame:
    name = file.name.lower()
    ending = max((e for e in KINDS if name.endswith(e)), key=len, default="")
    if not ending:
        raise InvalidInputError(f"`source` must end in one of {sorted(KINDS)}, got {file}.")
    if not file.is_file():
        raise InvalidInputError(f"`source` must be a file, but there is none at {file}.")
    try:
        return _table(file, ending, text)
    except (ValueError, OSError, ImportError) as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise InvalidInputError(
            f"`source` must be a whole {KINDS[ending]} file, but {file} cannot be read: {said[0]}."
        ) from None


def _table(file: Path, ending: str, text: str) -> pd.DataFrame:
    if KINDS[ending] == "parquet":
        return pd.read_parquet(file)
    if KINDS[ending] == "csv":
        return _csv(file, ending, text)
    opened: Any = gzip.open if ending.endswith(".gz") else open
    with opened(file, "rt", encoding="utf-8-sig") as content:
        if ending == ".json":
            return pd.DataFrame(json.load(content))
        return pd.DataFrame([json.loads(line) for line in content if line.strip()])


def _csv(file: Path, ending: str, text: str) -> pd.DataFrame:
    options: Any = {
        "sep": "\t" if ending.startswith(".tsv") else ",",
        "compression": "gzip" if ending.endswith(".gz") else None,
        "encoding": "utf-8-sig",
    }
    table = pd.read_csv(file, **options)
    if text in table:  # as it stands: else "NA" would be missing, and "007" the number 7
        column = pd.read_csv(file, usecols=[text], dtype=str, na_filter=False, **options)
        table[text] = column[text].to_numpy()
    return table
