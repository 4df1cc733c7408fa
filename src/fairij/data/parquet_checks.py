"""How large a Parquet file becomes when it is read.

A page may name one long text again and again, by its number in a list or by "as the one before".
So a few bytes can stand for gigabytes. The descriptions of the pages tell how often that may be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from fairij.data.arrow_checks import cell_bytes, check_plain
from fairij.data.memory import check_size, limit

LONGEST_DESCRIPTION = 2**16
LISTED = (2, 8)  # encodings that name values by their number in the list of the first page
AS_BEFORE = 7  # the encoding that takes parts of the value before
STEPS = 4  # a batch takes at most this part of the limit


def check_parquet(path: Any) -> None:
    """Raise if the rows of a file take more memory than allowed, before they are read."""
    parquet: Any = import_module("pyarrow.parquet")
    with parquet.ParquetFile(path) as file:
        schema, most = file.schema_arrow, limit()
        check_plain(schema)
        total = file.metadata.num_rows * cell_bytes(schema)
        check_size(path, total, most=most)
        texts = _texts(schema)
        pages = list(_pages(path, file.metadata, texts)) if texts else []
        check_size(path, total + sum(page.size for page in pages), most=most)
        if total + sum(page.values * page.largest for page in pages) <= most:
            return
        largest = max(page.largest for page in pages)
        rows = max(1, most // STEPS // max(largest, 1) // len(texts))
        for batch in file.iter_batches(min(rows, 65_536), columns=texts, use_threads=False):
            total += batch.nbytes
            check_size(path, total, most=most)


def _texts(schema: Any) -> list[str]:
    """The columns whose values have no fixed length."""
    types: Any = import_module("pyarrow.types")
    fixed = (types.is_primitive, types.is_decimal, types.is_fixed_size_binary, types.is_null)
    return [field.name for field in schema if not any(is_(field.type) for is_ in fixed)]


@dataclass(frozen=True)
class Page:
    """What the description of a page says."""

    size: int  # bytes, unpacked
    values: int
    largest: int  # bytes that one value may take


def _pages(path: Any, metadata: Any, texts: list[str]) -> Iterator[Page]:
    with open(path, "rb") as file:
        for group in range(metadata.num_row_groups):
            row_group = metadata.row_group(group)
            for place in range(row_group.num_columns):
                column = row_group.column(place)
                if column.path_in_schema.partition(".")[0] in texts:
                    yield from _pages_of(file, column)


def _pages_of(file: Any, column: Any) -> Iterator[Page]:
    """The pages of one column of a group of rows."""
    at = column.data_page_offset
    if column.has_dictionary_page and 0 < (column.dictionary_page_offset or 0) < at:
        at = column.dictionary_page_offset
    end, listed, seen = at + column.total_compressed_size, 0, 0
    while at < end and seen < column.num_values:
        file.seek(at)
        content = file.read(LONGEST_DESCRIPTION)
        fields, length = Compact(content).table()
        size, packed = int(fields.get(2, 0)), int(fields.get(3, 0))
        if size < 0 or packed < 0:
            raise ValueError("a page has a negative size")
        if 7 in fields:
            listed = max(listed, size)
            yield Page(size, 0, 0)
        else:
            facts = fields.get(5) or fields.get(8) or {}
            values = max(int(facts.get(1, 0)), 0)
            encoding, seen = int(facts.get(2 if 5 in fields else 4, 0)), seen + values
            largest = listed if encoding in LISTED else size if encoding == AS_BEFORE else 0
            yield Page(size, values, largest)
        at += length + packed


class Compact:
    """Tables in Thrift's compact form, which never leave their content."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def table(self, depth: int = 0) -> tuple[dict[int, Any], int]:
        """The fields by number, and the length so far."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else self._zigzag()
            fields[number] = self._value(kind, depth)
        return fields, self._at

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):  # true, false
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 7:
            self._at += 8
            return 0.0
        if kind == 8:
            length = self._number()
            self._at += length
            return b""
        if kind == 12 and depth < 8:
            return self.table(depth + 1)[0]
        raise ValueError("the description of a page is of no known kind")

    def _byte(self) -> int:
        if self._at >= len(self._content):
            raise ValueError("the description of a page is cut short")
        self._at += 1
        return self._content[self._at - 1]

    def _number(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        return value

    def _zigzag(self) -> int:
        value = self._number()
        return (value >> 1) ^ -(value & 1)
