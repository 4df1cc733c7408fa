"""Records as a compressed Parquet file, one typed column per field.

A column holds truth values, whole numbers, numbers, texts, or lists of numbers. Any other column is
stored as JSON text and is marked as such. A field that a record lacks is read as None.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from fairij.storage.checksummed import write_whole

ENCODING = b"encoding"
JSON = {ENCODING: b"json"}
# zstd at a high level is slow to write but quick to read, and beats Parquet's own dictionaries
COMPRESSION = {
    "compression": "zstd",
    "compression_level": 19,
    "use_dictionary": False,
    "write_statistics": False,
}


def write_table(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write records to a Parquet file, completely or not at all."""
    names = list(dict.fromkeys(name for record in records for name in record))
    columns, fields = [], []
    for name in names:
        values = [record.get(name) for record in records]
        kind = _column_type(values)
        if kind is None:
            values = [None if v is None else json.dumps(v, allow_nan=False) for v in values]
        fields.append(pa.field(name, kind or pa.string(), metadata=None if kind else JSON))
        columns.append(pa.array(values, fields[-1].type))
    content = io.BytesIO()
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    pq.write_table(table, content, **COMPRESSION)
    write_whole(path, content.getvalue())


def read_table(path: Path) -> list[dict[str, Any]]:
    """Return the records of a Parquet file; each has all fields."""
    table = pq.ParquetFile(path).read()
    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        values = column.to_pylist()
        if (field.metadata or {}).get(ENCODING) == JSON[ENCODING]:
            values = [None if value is None else json.loads(value) for value in values]
        columns.append(values)
    names = table.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _column_type(values: Sequence[Any]) -> pa.DataType | None:
    """Return the type of a column; None if its values have to be stored as JSON."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {list}:
        entry = _scalar_type({type(entry) for value in values if value for entry in value})
        return None if entry is None or pa.types.is_null(entry) else pa.list_(entry)
    return _scalar_type(kinds)


def _scalar_type(kinds: set[type]) -> pa.DataType | None:
    if not kinds:
        return pa.null()
    if kinds == {int, float}:
        return pa.float64()
    types = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
    return types.get(next(iter(kinds))) if len(kinds) == 1 else None
