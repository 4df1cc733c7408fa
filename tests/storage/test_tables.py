from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairij.errors import InvalidInputError
from fairij.storage.tables import KINDS, near_matches, read_table, require_columns, write_table

FRAME = pd.DataFrame(
    {
        "x": [0.1, 1e-300, np.nan],
        "n": [1, 2, 3],
        "word": ["a", "b,c", "é"],
        "on": [True, False, True],
    }
)


def write(folder: Path, ending: str) -> Path:
    path = folder / f"table{ending}"
    if ending in (".csv", ".csv.gz"):
        FRAME.to_csv(path, index=False)
    elif ending in (".tsv", ".tsv.gz"):
        FRAME.to_csv(path, index=False, sep="\t")
    elif "json" in ending:
        FRAME.to_json(path, orient="records", lines=ending != ".json", double_precision=15)
    elif ending in (".parquet", ".pq"):
        FRAME.to_parquet(path)
    else:
        FRAME.to_feather(path)
    return path


@pytest.mark.parametrize("ending", [*(e for e, kind in KINDS.items() if kind != "duckdb"), ".CSV"])
def test_every_format_gives_the_same_rows(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path, ending.lower())
    if ending == ".CSV":
        path = path.rename(tmp_path / "TABLE.CSV")
    pd.testing.assert_frame_equal(read_table(path), FRAME, check_dtype=False)


@pytest.mark.parametrize("ending", [".csv", ".tsv.gz", ".jsonl"])
def test_texts_are_kept_as_they_are(tmp_path: Path, ending: str) -> None:
    texts = ["NA", "null", "", "007", "2020-01-01", "1e3", "true", 'a "b", c']
    frame, path = pd.DataFrame({"text": texts, "label": range(8)}), tmp_path / f"table{ending}"
    if ending == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False, sep="," if ending == ".csv" else "\t")
    found = read_table(path, text_columns=["text", "of another table"])
    assert found["text"].tolist() == texts
    assert found["label"].tolist() == list(range(8))
    if ending == ".csv":
        assert read_table(path)["text"].isna().sum() == 3


def test_arrow_streams_are_read_too(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table, path = pyarrow.Table.from_pandas(FRAME), tmp_path / "stream.arrow"
    with pyarrow.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table)
    pd.testing.assert_frame_equal(read_table(path), FRAME, check_dtype=False)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(InvalidInputError, match="cannot be read as arrow"):
        read_table(path)


@pytest.mark.parametrize(
    ("content", "cure"),
    [
        ("größe,sex\n1,f\n".encode("latin-1"), "Save it as UTF-8"),
        (b"income;sex\n1,5;f\n", "save it again with commas"),
    ],
)
def test_what_spreadsheets_write_is_told_with_its_cure(
    tmp_path: Path, content: bytes, cure: str
) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InvalidInputError, match=cure):
        read_table(tmp_path / "t.csv")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "create table people as select * from (values (1, 'f'), (0, 'm')) t(y, sex)"
        )
    return path


def test_a_query_selects_the_rows_of_a_database(database: Path) -> None:
    found = read_table(database, query="select sex, y from people where y = 1")
    assert found.to_dict("records") == [{"sex": "f", "y": 1}]


@pytest.mark.parametrize(
    "query",
    [
        "insert into people values (1, 'm')",  # read-only
        "drop table people",
        "select * from read_csv('other.csv')",  # this file and no other
        "copy people to 'stolen.csv'",
        "select * from nobody",
        "nonsense",
    ],
)
def test_a_query_can_neither_write_nor_reach_other_files(
    database: Path, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(database.parent)
    Path("other.csv").write_text("a\n1\n")
    with pytest.raises(InvalidInputError, match="cannot be read as duckdb"):
        read_table(database, query=query)
    assert not Path("stolen.csv").exists()
    assert len(read_table(database, query="select * from people")) == 2


def test_a_database_needs_a_query_and_only_it(database: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="needs a query"):
        read_table(database)
    with pytest.raises(InvalidInputError, match="DuckDB file only"):
        read_table(write(tmp_path, ".csv"), query="select 1")


def test_lists_in_cells_are_refused(tmp_path: Path) -> None:
    pd.DataFrame({"x": [[1, 2], [3]]}).to_parquet(tmp_path / "nested.parquet")
    with pytest.raises(InvalidInputError, match="'x' holds lists or records"):
        read_table(tmp_path / "nested.parquet")


def test_a_folder_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "parts.csv").mkdir()
    with pytest.raises(InvalidInputError, match="it is a folder"):
        read_table(tmp_path / "parts.csv")


def test_repeated_names_are_told_and_not_renamed(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\ufeffsex,age,sex\n1,2,3\n", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="'sex' 2 times"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".tsv"])
def test_what_is_written_reads_back_exactly(tmp_path: Path, ending: str) -> None:
    numbers = np.random.default_rng(0).normal(size=200) * 1e-7
    frame = pd.DataFrame({"influence": numbers})
    write_table(frame, tmp_path / f"scores{ending}")
    again = read_table(tmp_path / f"scores{ending}")["influence"]
    np.testing.assert_allclose(again, numbers, rtol=1e-15)


def test_other_endings_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"written as \.csv or \.parquet"):
        write_table(FRAME, tmp_path / "t.feather")


def test_near_matches_are_named() -> None:
    assert near_matches("Gender ", ["gender", "age"]) == ["gender"]
    assert near_matches("zzz", ["gender", "age"]) == []
    with pytest.raises(InvalidInputError, match=r"'wrd' \(near: 'word'\)"):
        require_columns(FRAME, ["x", "wrd"], where="It")
    with pytest.raises(InvalidInputError, match="and 2 more"):
        require_columns(FRAME, list("abcdefg"), where="It")
