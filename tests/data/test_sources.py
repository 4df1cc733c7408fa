"""Sources: memory does not follow the row group, labels go by name, bad ones are told plainly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
import scipy.sparse
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from biased import fair, problem
from fairij.data.arrow_source import ArrowSource
from fairij.data.rows import as_source, n_rows, take_rows
from fairij.data.sources import LoaderSource
from fairij.errors import InvalidInputError
from fairij.scale.sharding import Shard, whole_column

DATA = problem()
NAMES = ["a", "b", "c", "d"]


def table() -> pd.DataFrame:
    return pd.DataFrame(DATA.X, columns=NAMES).assign(y=DATA.y)


READ = """
import sys
import numpy as np, pyarrow
from fairij.data.arrow_source import ArrowSource
names = [f"f{i}" for i in range(8)]
chunks = ArrowSource(sys.argv[1], names).chunks(10_000)
total = sum(chunk.to_numpy(np.float64).sum() for chunk in chunks)
print(total, pyarrow.default_memory_pool().max_memory())
"""


def test_memory_does_not_follow_the_row_group(tmp_path: Path) -> None:
    """In a process of its own, where nothing else has taken memory from Arrow."""
    rows, path = 500_000, tmp_path / "one-group.parquet"
    values = np.random.default_rng(0).random((8, rows), np.float32)
    pyarrow.parquet.write_table(
        pa.table({f"f{i}": column for i, column in enumerate(values)}),
        path,
        row_group_size=rows,
        data_page_size=2**16,
        use_dictionary=False,
    )
    done = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    total, peak = map(float, done.stdout.split())
    assert total == pytest.approx(values.sum(dtype=np.float64))
    assert 0 < peak < values.nbytes / 3


def test_columns_come_as_they_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    names = {"a": "a", "b": "a.b", "c": "c", "d": "d"}  # the second begins like the first
    table().rename(columns=names).to_parquet(path, row_group_size=41, index=False)
    for asked in (["d", "a"], ["a"], ["a.b", "a"], ["c", "c"]):
        source = ArrowSource(path, asked)
        expected = table().rename(columns=names)[asked]
        parts = list(source.chunks(17, 30, 200))
        assert all(list(part.columns) == asked for part in parts)
        np.testing.assert_array_equal(pd.concat(parts), expected[30:200])


def test_reading_options_of_a_data_set_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"a": ["x", "y", "x"]}).to_parquet(path)
    form = pyarrow.dataset.ParquetFileFormat(dictionary_columns=["a"])
    (part,) = ArrowSource(pyarrow.dataset.dataset(path, format=form), ["a"]).chunks(9)
    assert isinstance(part["a"].dtype, pd.CategoricalDtype)


def test_a_column_that_some_file_lacks(tmp_path: Path) -> None:
    table().to_parquet(tmp_path / "1.parquet", index=False)
    table().drop(columns="c").to_parquet(tmp_path / "2.parquet", index=False)
    source = ArrowSource(tmp_path, NAMES)
    with pytest.raises(InvalidInputError, match=r'cannot be read: .*"c"'):
        list(source.chunks(1000))


# --- labels by name ---------------------------------------------------------------------------


def test_columns_of_a_subset(tmp_path: Path) -> None:
    table().to_parquet(tmp_path / "rows.parquet", row_group_size=41)
    index = np.array([2, 40, 41, 100, 239])
    some = ArrowSource(tmp_path / "rows.parquet", NAMES).subset(index)
    np.testing.assert_array_equal(some.column("y"), DATA.y[index])
    np.testing.assert_array_equal(some.subset(np.array([1, 3])).column("y"), DATA.y[[40, 100]])
    with pytest.raises(InvalidInputError, match="no column 'wage'"):
        some.column("wage")


def test_labels_of_a_share_by_name(tmp_path: Path) -> None:
    table().to_parquet(tmp_path / "rows.parquet")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        share = Shard.of(ArrowSource(tmp_path / "rows.parquet", NAMES))
        np.testing.assert_array_equal(whole_column(share, "y"), DATA.y)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("kind", ["matrix", "array"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dok", "lil", "dia"])
def test_sparse_rows_of_any_form(form: str, kind: str) -> None:
    rows = as_source(getattr(scipy.sparse, f"{form}_{kind}")(DATA.X[:20]))
    assert n_rows(rows) == 20
    np.testing.assert_array_equal(take_rows(rows, [7, 3]).toarray(), DATA.X[[7, 3]])


# --- what is refused --------------------------------------------------------------------------


def test_a_data_set_without_rows(tmp_path: Path) -> None:
    table().iloc[:0].to_parquet(tmp_path / "empty.parquet", index=False)
    empty = ArrowSource(tmp_path / "empty.parquet", NAMES)
    assert empty.shape == (0, 4)
    with pytest.raises(InvalidInputError, match=r"at least one row .*column 'y'.* got 0 rows"):
        DATA.fit(fair(), X=empty, y="y")


def test_a_loader_without_rows() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(0, 4)), batch_size=8)
    with pytest.raises(InvalidInputError, match="must give at least one row, got a data set of 0"):
        LoaderSource(loader, features=0)
    with pytest.raises(InvalidInputError, match="must give at least one row"):
        DATA.fit(fair(), X=loader, y=[])


def test_what_is_no_loader() -> None:
    loaders: Any = LoaderSource
    with pytest.raises(InvalidInputError, match=r"needs a `torch.utils.data.DataLoader`, got list"):
        loaders([1, 2])


@pytest.mark.parametrize("features", [None, "a", 5], ids=repr)
def test_features_that_are_no_names(tmp_path: Path, features: Any) -> None:
    table().to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(InvalidInputError, match=r"`features` must name the columns .*; got"):
        ArrowSource(tmp_path, features)


# --- formats of a folder ----------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["arrow", "feather", "ipc", "parquet"])
def test_a_folder_is_read_by_the_suffix_of_its_files(tmp_path: Path, suffix: str) -> None:
    inner = tmp_path / "rows" / "later"
    inner.mkdir(parents=True)
    write = pd.DataFrame.to_parquet if suffix == "parquet" else pd.DataFrame.to_feather
    write(table()[:100], tmp_path / "rows" / f"1.{suffix}")
    write(table()[100:].reset_index(drop=True), inner / f"2.{suffix}")
    (tmp_path / "rows" / "_SUCCESS").touch()
    (tmp_path / "rows" / ".hidden.parquet").touch()
    source = ArrowSource(tmp_path / "rows", NAMES)
    np.testing.assert_array_equal(pd.concat(list(source.chunks(70))), DATA.X)
    np.testing.assert_array_equal(source.column("y"), DATA.y)


def test_files_without_a_suffix_are_parquet(tmp_path: Path) -> None:
    table().to_parquet(tmp_path / "part-0000")
    assert ArrowSource(tmp_path, NAMES).shape == (240, 4)


def test_files_of_two_formats(tmp_path: Path) -> None:
    table().to_parquet(tmp_path / "1.parquet")
    table().to_feather(tmp_path / "2.feather")
    for data in (tmp_path, [tmp_path / "1.parquet", tmp_path / "2.feather"]):
        with pytest.raises(InvalidInputError, match=r"of one format, .*2.feather.*1.parquet"):
            ArrowSource(data, NAMES)
