"""The journal of a running study, and the Parquet file that it is folded into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fairij_studies.parquet import read_table, write_table
from fairij_studies.records import (
    JOURNAL,
    RESULTS,
    append_unit,
    cut_torn_end,
    fold_journal,
    read_journal,
    read_records,
)

from fairij.errors import InvalidInputError


def journal_of(folder: Path, units: int = 4) -> Path:
    for number in range(units):
        rows = [{"quick": False, "unit": f"{number}", "x": part / 3} for part in range(3)]
        append_unit(folder / JOURNAL, rows)
    return folder / JOURNAL


def test_every_kind_of_value_survives(tmp_path: Path) -> None:
    path = tmp_path / RESULTS
    records: list[dict[str, Any]] = [
        {"b": True, "i": 3, "f": 0.1, "s": "é", "l": [1, 2], "d": {"p": 0.5}, "n": None},
        {"b": None, "i": -(2**60), "f": 1e-300, "s": "", "l": [], "d": {"q": [1]}, "n": None},
        {"f": 5.0, "l": [3], "m": "text"},
        {"f": -0.0, "m": 7},
    ]
    write_table(path, records)
    found = read_table(path)
    assert [{k: v for k, v in r.items() if v is not None} for r in found] == [
        {k: v for k, v in r.items() if v is not None} for r in records
    ]
    for old, new in zip(records, found, strict=True):
        assert all(type(new[name]) is type(value) for name, value in old.items())
        assert list(new) == ["b", "i", "f", "s", "l", "d", "n", "m"]


def test_whole_numbers_among_others_become_floats(tmp_path: Path) -> None:
    write_table(tmp_path / RESULTS, [{"value": 50}, {"value": 0.5}])
    assert [repr(r["value"]) for r in read_table(tmp_path / RESULTS)] == ["50.0", "0.5"]


def test_a_journal_is_folded_in_and_deleted(tmp_path: Path) -> None:
    before = read_journal(journal_of(tmp_path, 2))
    fold_journal(tmp_path)
    append_unit(tmp_path / JOURNAL, [{"quick": False, "unit": "new", "y": "text"}])
    assert [r["unit"] for r in read_records(tmp_path)] == ["0"] * 3 + ["1"] * 3 + ["new"]
    fold_journal(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [RESULTS]
    found = read_records(tmp_path)
    assert found[:6] == [{**record, "y": None} for record in before]
    assert found[-1] == {"quick": False, "unit": "new", "x": None, "unit_lines": 1, "y": "text"}
    fold_journal(tmp_path)  # nothing to do
    assert read_records(tmp_path) == found


def test_without_pyarrow_the_journal_stays_and_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_journal(journal_of(tmp_path, 2))
    monkeypatch.setattr("fairij_studies.records.find_spec", lambda name: None)
    fold_journal(tmp_path)
    assert not (tmp_path / RESULTS).exists()
    assert read_records(tmp_path) == before
    monkeypatch.undo()
    fold_journal(tmp_path)
    assert not (tmp_path / JOURNAL).exists()
    assert [r["unit"] for r in read_records(tmp_path)] == [r["unit"] for r in before]


def test_a_folder_of_json_lines_alone_is_read(tmp_path: Path) -> None:
    assert read_records(tmp_path) == []
    journal_of(tmp_path)
    assert [r["x"] for r in read_records(tmp_path)] == [0.0, 1 / 3, 2 / 3] * 4


@pytest.mark.parametrize("cut", [1, 30, 70, 90, 150])
def test_a_unit_torn_anywhere_is_cut_off(tmp_path: Path, cut: int) -> None:
    """Also between its lines, where every line that is left is complete by itself."""
    path = journal_of(tmp_path, 3)
    whole = path.read_bytes()
    journal_of(tmp_path, 1)
    path.write_bytes(path.read_bytes()[: len(whole) + cut])
    assert len(read_journal(path)) == 9
    assert cut_torn_end(path) == cut
    assert path.read_bytes() == whole


def test_a_unit_torn_between_two_lines_is_not_taken_for_whole(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_unit(path, [{"unit": "a", "x": 1}])
    size = path.stat().st_size
    append_unit(path, [{"unit": "b", "x": 1}, {"unit": "b", "x": 2}])
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    assert [record["unit"] for record in read_journal(path)] == ["a"]
    assert cut_torn_end(path) > 0
    assert path.stat().st_size == size
    assert cut_torn_end(path) == 0


def test_damage_in_the_middle_is_not_cut_off_but_told(tmp_path: Path) -> None:
    path = journal_of(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"{broken\n", *lines[2:]]))
    before = path.read_bytes()
    with pytest.raises(InvalidInputError, match="Line 2"):
        cut_torn_end(path)
    assert path.read_bytes() == before


def test_no_value_that_json_lacks_is_written(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with pytest.raises(ValueError, match="JSON"):
        append_unit(path, [{"unit": "a", "x": float("nan")}])
    assert not path.exists()
    append_unit(path, [{"unit": "a", "x": np.int64(3), "y": np.bool_(True)}])
    assert json.loads(path.read_text())["y"] is True
