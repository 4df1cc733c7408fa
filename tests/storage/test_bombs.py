"""Small files that become very large end with an error that names the limit and the cure.

The small ones are tried with a low limit. The slow test tries the large ones with the limit of
the machine, in a process that may not take more than a few gigabytes.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fairij import Edit
from fairij.data.memory import TooLargeError, capped, check_size, limit, reading_at_most, said
from fairij.data.parquet_checks import Compact, check_parquet
from fairij.storage.model_files import Opening, load_model
from fairij.storage.tables import COPIES, read_table

LOW = 2**24
HIGH, ALLOWED = 2**30, 5 * 2**30  # bytes of memory: the limit, and what the process may take
Bomb = tuple[Path, Callable[[], Any]]


def parquet_of_numbers(folder: Path, size: int) -> Bomb:
    """One number again and again."""
    return _parquet(folder, {"x": np.zeros(size // 8)})


def parquet_of_text(folder: Path, size: int) -> Bomb:
    """One long text, named again and again by its number."""
    pa = pytest.importorskip("pyarrow")
    length = 2**16
    codes = pa.array(np.zeros(size // length, np.int32))
    return _parquet(folder, {"t": pa.DictionaryArray.from_arrays(codes, pa.array(["x" * length]))})


def parquet_of_prefixes(folder: Path, size: int) -> Bomb:
    """Each text is as the one before."""
    pa = pytest.importorskip("pyarrow")
    length = 2**16
    texts = pa.array(["x" * length] * (size // length))
    options = {"use_dictionary": False, "column_encoding": {"t": "DELTA_BYTE_ARRAY"}}
    return _parquet(folder, {"t": texts}, **options)


def _parquet(folder: Path, columns: dict[str, Any], **options: Any) -> Bomb:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = folder / "bomb.parquet"
    table = pa.table(columns)
    if pa.types.is_dictionary(table.schema[0].type):  # else it would be read as codes
        schema = pa.schema([pa.field("t", pa.string())])
        with parquet.ParquetWriter(path, table.schema, store_schema=False) as writer:
            writer.write_table(table)
        assert parquet.read_schema(path) == schema
    else:
        parquet.write_table(table, path, compression="zstd", store_schema=False, **options)
    return path, lambda: read_table(path)


def packed_csv(folder: Path, size: int) -> Bomb:
    return _packed(folder / "bomb.csv.gz", b"a,b\n", b"1,2\n" * 2**18, size)


def packed_line(folder: Path, size: int) -> Bomb:
    """One line without an end."""
    return _packed(folder / "bomb.csv.gz", b"", b"a" * 2**20, size)


def packed_records(folder: Path, size: int) -> Bomb:
    return _packed(folder / "bomb.jsonl.gz", b"", b'{"a":1}\n' * 2**17, size)


def _packed(path: Path, head: bytes, part: bytes, size: int) -> Bomb:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(head)
        for _ in range(size // len(part) + 1):
            file.write(part)
    return path, lambda: read_table(path)


def skops_archive(folder: Path, size: int) -> Bomb:
    return _archive(folder / "bomb.skops", "array.npy", size)


def torch_archive(folder: Path, size: int) -> Bomb:
    return _archive(folder / "bomb.pt", "archive/data/0", size)


def _archive(path: Path, name: str, size: int) -> Bomb:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open(name, "w", force_zip64=True) as part:
            for _ in range(size // 2**20 + 1):
                part.write(bytes(2**20))
        archive.writestr("schema.json", "{}")
    opening = Opening(model_class="torch.nn:Linear", model_args={})
    return path, lambda: load_model(path, opening)


def sparse_edit(folder: Path, size: int) -> Bomb:
    """A valid header, and a hole where its numbers should be."""
    half = size // 16 * 8
    vectors = {"before": (0, half), "delta": (half, 2 * half)}
    header: dict[str, Any] = {
        name: {"dtype": "F64", "shape": [half // 8], "data_offsets": list(ends)}
        for name, ends in vectors.items()
    }
    header["__metadata__"] = {"format": "fairij.edit/1", "sha256": "0" * 64}
    start = json.dumps(header).encode()
    path = folder / "bomb.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(start)) + start)
        file.truncate(8 + len(start) + 2 * half)
    return path, lambda: Edit.load(path)


def sparse_parameters(folder: Path, size: int) -> Bomb:
    path, _ = sparse_edit(folder, size)
    opening = Opening(model_class="torch.nn:Linear", model_args={})
    return path, lambda: load_model(path, opening)


def endless_view(folder: Path, size: int) -> Bomb:
    return _view(folder, "select range as x from range(1000000000000)")


def long_texts_in_a_view(folder: Path, size: int) -> Bomb:
    """DuckDB's own limit does not count these."""
    return _view(folder, f"select repeat('x', {size}) as x from range(1000)")


def _view(folder: Path, query: str) -> Bomb:
    duckdb = pytest.importorskip("duckdb")
    path = folder / "bomb.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"create view rows as {query}")
    return path, lambda: read_table(path, query="from rows")


IN_A_VIEW = (endless_view, long_texts_in_a_view)  # DuckDB keeps copies of its own
BOMBS = (
    *(parquet_of_numbers, parquet_of_text, parquet_of_prefixes, packed_csv, packed_line),
    *(packed_records, skops_archive, torch_archive, sparse_edit, sparse_parameters),
    *IN_A_VIEW,
)
LARGE = {"long_texts_in_a_view": 10**9, "sparse_edit": 12 * 10**9, "sparse_parameters": 12 * 10**9}


def on_disk(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.mark.parametrize("bomb", BOMBS)
def test_small_bombs(tmp_path: Path, bomb: Callable[[Path, int], Bomb]) -> None:
    path, read = bomb(tmp_path, 4 * LOW)
    assert on_disk(path) < LOW // 4
    with reading_at_most(LOW), pytest.raises(TooLargeError) as refused:
        read()
    assert refused.value.parameter == "max_memory"
    assert "more than the 16.8 MB that a file may take here" in str(refused.value)
    assert "--max-memory" in str(refused.value)


def explode(name: str, folder: str) -> None:
    """In a process of its own: the error, and the most memory that the process held."""
    bomb = next(one for one in BOMBS if one.__name__ == name)
    path, read = bomb(Path(folder), LARGE.get(name, 4 * HIGH))
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # made, so partly in memory
    resource.setrlimit(resource.RLIMIT_AS, (ALLOWED + held, ALLOWED + held))
    with reading_at_most(HIGH):
        try:
            read()
        except TooLargeError as error:
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            facts = {"on disk": on_disk(path), "grew": most - held, "said": str(error)}
            print(json.dumps(facts))


@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS)
def test_large_bombs(tmp_path: Path, bomb: Callable[[Path, int], Bomb]) -> None:
    here = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    code = "import sys; sys.path[:0] = sys.argv[3:]; import test_bombs as t; "
    code += "t.explode(sys.argv[1], sys.argv[2])"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, bomb.__name__, str(tmp_path), *here],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, f"ended by {done.returncode}: {done.stderr[-2000:]}"
    found = json.loads(done.stdout.splitlines()[-1])
    print(bomb.__name__, found["on disk"], found["grew"])
    assert "--max-memory" in found["said"]
    assert found["grew"] < (COPIES if bomb in IN_A_VIEW else 2) * HIGH


def test_the_limit_is_half_of_what_is_free_or_what_is_given() -> None:
    assert 2**25 <= limit() < 2**45
    with reading_at_most(1000):
        assert limit() == 1000
        check_size("a file", 1000)
        with pytest.raises(TooLargeError, match="would take 1001 bytes of memory"):
            check_size("a file", 1001)
    assert limit() > 1000
    assert [said(2 * 10**n) for n in (3, 6, 9, 13)] == ["2000 bytes", "2 MB", "2 GB", "20 TB"]


def test_a_cap_is_lifted_again() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with capped(2**20), pytest.raises(MemoryError):
        np.ones(2**36)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_long_texts_of_a_parquet_file_are_read_where_they_fit(tmp_path: Path) -> None:
    """Where the descriptions of the pages leave it open, the rows are counted in parts."""
    path, read = parquet_of_text(tmp_path, 2**22)
    with reading_at_most(2**23):
        check_parquet(path)
        assert read()["t"].str.len().tolist() == [2**16] * 64


def test_descriptions_of_pages_never_leave_their_content() -> None:
    for content in (b"", b"\x15", b"\x19\x00", b"\x1c" * 20, b"\x18\xff\xff\xff\xff\x7f"):
        with pytest.raises(ValueError, match="description of a page"):
            Compact(content).table()


def test_a_file_of_parameters_within_the_limit_is_read(tmp_path: Path) -> None:
    net = torch.nn.Linear(3, 2)
    torch.save(net.state_dict(), tmp_path / "net.pt")
    opening = Opening(
        model_class="torch.nn:Linear", model_args={"in_features": 3, "out_features": 2}
    )
    found = load_model(tmp_path / "net.pt", opening).model
    assert torch.equal(found.weight, net.weight)
