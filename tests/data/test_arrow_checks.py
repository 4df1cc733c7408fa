"""Arrow files whose offsets, codes and sizes are wrong never crash the process, at any door."""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from damage import damaged
from fairij.cli.streams import open_table
from fairij.data.arrow_checks import _is_plain_text, checked
from fairij.data.arrow_source import ArrowSource
from fairij.data.memory import TooLargeError, reading_at_most
from fairij.errors import FairIJError, InvalidInputError
from fairij.language.texts import labelled
from fairij.storage.tables import read_table

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")

FRAME = pd.DataFrame(
    {
        "word": [f"word {i}" for i in range(64)],
        "x": np.linspace(0, 1, 64),
        "kind": pd.Categorical(["a", "b"] * 32),
        "label": [0, 1] * 32,
    }
)
MANY, MEMORY, LONGEST = 5000, 2**33, 20


def write(path: Path, form: str, compression: str = "uncompressed") -> Path:
    table = pa.Table.from_pandas(FRAME)
    if form == "stream":
        options = pa.ipc.IpcWriteOptions(
            compression=None if compression == "uncompressed" else compression
        )
        with pa.ipc.new_stream(path, table.schema, options=options) as stream:
            stream.write_table(table, max_chunksize=40)
    else:
        feather.write_feather(table, path, compression=compression, chunksize=40)
    return path


def whole_table(path: Path) -> Any:
    return read_table(path)


def texts(path: Path) -> Any:
    return labelled(path, text="word", label="label")


def chunks(path: Path) -> Any:
    source = ArrowSource(str(path), ["x", "word", "kind"])
    return [list(source.chunks(16)), source.column("label"), source.take([3, 50])]


def command_line(path: Path) -> Any:
    table = open_table(path, stream=True)
    return table.read(["word", "label"]), table.features(["x", "kind"], lambda frame: frame)


DOORS: dict[str, Callable[[Path], Any]] = {
    "read_table": whole_table,
    "labelled texts": texts,
    "ArrowSource": chunks,
    "--stream": command_line,
}
NEED_FILES = ("ArrowSource", "--stream")  # they read no streams


def with_offset(path: Path, value: int) -> None:
    """Change the third offset of the first texts."""
    content = path.read_bytes()
    kind, width = ("<q", 8) if struct.pack("<4q", 0, 6, 12, 18) in content else ("<i", 4)
    at = content.index(struct.pack(f"<4{kind[1]}", 0, 6, 12, 18)) + 2 * width
    path.write_bytes(content[:at] + struct.pack(kind, value) + content[at + width :])


@pytest.mark.parametrize("value", [2**30, -5, 3])
@pytest.mark.parametrize("form", ["file", "stream"])
@pytest.mark.parametrize("door", DOORS)
def test_a_changed_offset_is_found(tmp_path: Path, door: str, form: str, value: int) -> None:
    if form == "stream" and door in NEED_FILES:
        return
    path = write(tmp_path / "table.arrow", form)
    assert DOORS[door](path) is not None
    with_offset(path, value)
    with pytest.raises(InvalidInputError, match="offset"):
        DOORS[door](path)


def test_codes_of_categories_outside_their_list_are_found(tmp_path: Path) -> None:
    path = write(tmp_path / "table.arrow", "file")
    content = path.read_bytes()
    codes = bytes([0, 1] * 20)
    path.write_bytes(content.replace(codes, bytes([0, 99]) + codes[2:], 1))
    for door in DOORS.values():
        with pytest.raises(InvalidInputError, match="The Arrow data must fit together"):
            door(path)


def test_the_quick_look_at_texts_agrees_with_arrow() -> None:
    plain = pa.array(["a", None, "", "bcd"] * 5)
    assert _is_plain_text(plain)
    assert _is_plain_text(plain.slice(3, 7))
    assert not _is_plain_text(pa.array(["é"]))  # Arrow looks itself
    assert checked(pa.record_batch({"t": pa.array(["é", "z"])})).num_rows == 2
    _, offsets, data = pa.array(["ab", "c"]).buffers()
    for ends in ([0, 9, 3], [0, 3, 2], [0, -1, 3], [2, 1, 3]):
        wrong = pa.py_buffer(np.array(ends, "<i4").tobytes())
        bad = pa.StringArray.from_buffers(2, wrong, data)
        assert not _is_plain_text(bad)
        with pytest.raises(InvalidInputError, match="The Arrow data must fit together"):
            checked(pa.record_batch([bad], ["t"]))
    broken = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(b"\xff\xfe\xfd"))
    with pytest.raises(InvalidInputError, match="UTF8"):
        checked(pa.record_batch([broken], ["t"]))


@pytest.mark.parametrize("form", ["file", "stream"])
@pytest.mark.parametrize("packed", ["zstd", "lz4"])
def test_packed_batches_are_measured_before_they_are_unpacked(
    tmp_path: Path, packed: str, form: str
) -> None:
    table = pa.table({"x": np.zeros(4_000_000)})
    path = tmp_path / "table.arrow"
    if form == "stream":
        options = pa.ipc.IpcWriteOptions(compression=packed)
        with pa.ipc.new_stream(path, table.schema, options=options) as stream:
            stream.write_table(table)
    else:
        feather.write_feather(table, path, compression=packed, chunksize=4_000_000)
    assert path.stat().st_size < 2**18
    before = pa.total_allocated_bytes()
    with reading_at_most(2**24):
        with pytest.raises(TooLargeError, match=r"more than the 16\.8 MB.*--max-memory"):
            read_table(path)
        if form == "file":
            with pytest.raises(TooLargeError, match="--max-memory"):
                ArrowSource(str(path), ["x"])
    assert pa.total_allocated_bytes() - before < 2**22
    assert len(read_table(path)) == 4_000_000


def test_rows_without_any_bytes_are_counted(tmp_path: Path) -> None:
    batch = pa.record_batch({"nothing": pa.Array.from_buffers(pa.null(), 2**31 - 1, [None])})
    path = tmp_path / "table.arrow"
    with pa.ipc.new_file(path, batch.schema) as file:
        file.write_batch(batch)
    with reading_at_most(2**30):
        with pytest.raises(TooLargeError, match=r"17\.2 GB of memory"):
            read_table(path)
        with pytest.raises(TooLargeError, match=r"The column 'nothing' of 2147483647 rows"):
            ArrowSource(str(path), ["nothing"]).column("nothing")


def test_views_of_one_text_are_counted(tmp_path: Path) -> None:
    kind = pa.string_view()
    text = pa.array(["x" * 2**16]).cast(kind)
    views = text.buffers()[1].to_pybytes() * 1000
    repeated = pa.Array.from_buffers(kind, 1000, [None, pa.py_buffer(views), text.buffers()[2]])
    path = tmp_path / "table.arrow"
    feather.write_feather(pa.table({"t": repeated}), path, compression="uncompressed")
    assert path.stat().st_size < 2**18
    with reading_at_most(2**24), pytest.raises(TooLargeError, match=r"65\.5 MB of memory"):
        read_table(path)


def test_the_first_version_of_feather_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.feather"
    path.write_bytes(b"FEA1" + bytes(60) + b"FEA1")
    with pytest.raises(InvalidInputError, match="first version"):
        read_table(path)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        ArrowSource(str(path), ["x"])


def try_all(folder: str, count: int) -> None:
    """Damaged files at every door, in a process of its own."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    found = Counter[str]()
    kinds = [(form, packed) for form in ("file", "stream") for packed in ("uncompressed", "zstd")]
    wholes = [write(Path(folder) / "w.arrow", *kind).read_bytes() for kind in kinds]
    path = Path(folder) / "table.arrow"
    for seed in range(count):
        rng = np.random.default_rng(seed)
        content = wholes[seed % len(wholes)]
        if rng.random() < 0.3:
            content = damaged(content, rng)
        for _ in range(int(rng.integers(1, 4))):  # a number becomes an odd one
            at = int(rng.integers(max(len(content) - 8, 1)))
            odd = struct.pack("<q", int(rng.choice([-1, 0, 1, 2**31 - 1, 2**40, 2**62, 255])))
            width = int(rng.choice([1, 4, 8]))
            content = content[:at] + odd[:width] + content[at + width :]
        path.write_bytes(content)
        signal.alarm(LONGEST)
        for name, door in DOORS.items():
            try:
                door(path)
                found["read"] += 1
            except FairIJError:
                found["refused"] += 1
            except Exception as error:
                found[f"{name}: {type(error).__name__}"] += 1
    signal.alarm(0)
    print(json.dumps(found))


def in_a_process(folder: Path, count: int) -> dict[str, int]:
    here = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    code = "import sys; sys.path[:0] = sys.argv[3:]; import test_arrow_checks as t; "
    code += "t.try_all(sys.argv[1], int(sys.argv[2]))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(folder), str(count), *here],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, f"ended by {done.returncode}: {done.stderr[-2000:]}"
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
def test_thousands_of_damaged_arrow_files(tmp_path: Path) -> None:
    found = in_a_process(tmp_path, MANY)
    print(found)
    assert set(found) == {"read", "refused"}
    assert found["refused"] > MANY // 4
