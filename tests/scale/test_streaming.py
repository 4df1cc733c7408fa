"""Rows that are read in chunks give what the same rows in memory give."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)

from biased import fair, fitted, problem
from fairij import FairIJ, Grid
from fairij.data.arrow_source import ArrowSource
from fairij.data.sources import ArraySource, LoaderSource, Source
from fairij.errors import InvalidInputError
from fairij.models import adapt
from fairij.scale import streaming as streamed
from fairij.scale.streaming import Chunks, StreamedEditable, StreamedLinearization

DATA = problem()
NAMES = ["a", "b", "c", "d"]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "CHUNK_ROWS", 37)


def frame(part: str = "") -> pd.DataFrame:
    table = pd.DataFrame(getattr(DATA, f"X{part}"), columns=NAMES)
    return table.assign(
        y=getattr(DATA, f"y{part}"), sex=getattr(DATA, f"sex{part}"), w=np.arange(len(table)) + 1.0
    )


def memory_mapped(folder: Path, part: str) -> Source:
    np.save(folder / f"X{part}.npy", getattr(DATA, f"X{part}"))
    return ArraySource(np.load(folder / f"X{part}.npy", mmap_mode="r"))


def parquet(folder: Path, part: str) -> Source:
    target = folder / f"parquet{part}"
    target.mkdir()
    table = frame(part)
    for i, start in enumerate(range(0, len(table), 100)):  # files and row groups of odd sizes
        piece = table.iloc[start : start + 100]
        piece.to_parquet(target / f"{i:03}.parquet", row_group_size=41, index=False)
    return ArrowSource(target, NAMES)


def feather(folder: Path, part: str) -> Source:
    frame(part).to_feather(folder / f"rows{part}.feather")
    return ArrowSource(folder / f"rows{part}.feather", NAMES)


def loader(folder: Path, part: str) -> Source:
    X, y = torch.tensor(getattr(DATA, f"X{part}")), torch.tensor(getattr(DATA, f"y{part}"))
    return LoaderSource(DataLoader(TensorDataset(X, y), batch_size=23), features=0)


FORMS = [memory_mapped, parquet, feather, loader]


def gradient_boosting() -> Any:
    model = lightgbm.LGBMClassifier(n_estimators=5, num_leaves=4, verbose=-1, n_jobs=1)
    return model.fit(DATA.X.astype(np.float64), DATA.y)


MODELS: dict[str, Any] = {
    "torch": fitted,
    "linear": lambda: LogisticRegression(C=0.5).fit(DATA.X, DATA.y),
    "trees": gradient_boosting,
}


SETTINGS = {
    "search": Grid(points=5, scales=(1.0, 3.0)),
    "selection": "lowest_gap",
    "verbose": False,
    "weight_decay": 0.01,
}


@cache
def fit_in_memory(kind: str) -> FairIJ:
    return DATA.fit(FairIJ(MODELS[kind](), **SETTINGS))


@pytest.mark.parametrize(
    ("form", "kind"),
    [  # every form and every model, and where there is time each with each
        pytest.param(
            form,
            kind,
            id=f"{form.__name__}-{kind}",
            marks=[] if kind == "torch" or form is parquet else [pytest.mark.slow],
        )
        for form in FORMS
        for kind in MODELS
    ],
)
@pytest.mark.filterwarnings("ignore:X (does not have|has) .*feature names")
@pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
def test_a_fit_on_a_source_is_the_fit_in_memory(tmp_path: Path, kind: str, form: Any) -> None:
    expected = fit_in_memory(kind)
    found = FairIJ(expected.estimator, memory_limit=2000, **SETTINGS).fit(
        form(tmp_path, ""),
        DATA.y,
        X_val=form(tmp_path, "_val"),
        y_val=DATA.y_val,
        sensitive_features_val=DATA.sex_val,
    )
    np.testing.assert_allclose(found.influence_, expected.influence_, rtol=2e-3, atol=1e-9)
    if kind == "trees":  # rows in the same leaves have one score, and rounding orders them
        np.testing.assert_allclose(found.candidates_["gap"][0], expected.candidates_["gap"][0])
        return
    np.testing.assert_array_equal(found.dropped_, expected.dropped_)
    tables = [table.candidates_.drop(columns="solve_error") for table in (found, expected)]
    pd.testing.assert_frame_equal(*tables, rtol=1e-6)
    errors = [table.candidates_["solve_error"] for table in (found, expected)]
    pd.testing.assert_series_equal(*errors, rtol=1e-2, atol=1e-5)  # differences of rounded numbers
    scale = expected.edit_.delta.abs().max()
    assert (found.edit_.delta - expected.edit_.delta).abs().max() < 2e-3 * scale
    rows = form(tmp_path / "again", "_val") if form is loader else DATA.X_val
    np.testing.assert_array_equal(found.predict(rows), expected.predict(DATA.X_val))


def test_columns_of_a_data_set_are_given_by_name(tmp_path: Path) -> None:
    expected = DATA.fit(fair(), sample_weight=np.arange(len(DATA.y)) + 1.0)
    found = fair().fit(
        parquet(tmp_path, ""),
        "y",
        X_val=parquet(tmp_path, "_val"),
        y_val="y",
        sensitive_features_val="sex",
        sample_weight="w",
    )
    np.testing.assert_allclose(found.influence_, expected.influence_, rtol=1e-3, atol=1e-9)
    assert list(found.feature_names_in_) == NAMES
    assert found.edit_.settings["k"] == expected.edit_.settings["k"]


def test_validation_rows_are_split_off_a_source(tmp_path: Path) -> None:
    half = {"validation_fraction": 0.5}
    expected = fair(**half).fit(DATA.X, DATA.y, sensitive_features=DATA.sex)
    found = fair(**half).fit(memory_mapped(tmp_path, ""), DATA.y, sensitive_features=DATA.sex)
    np.testing.assert_allclose(found.influence_, expected.influence_, rtol=1e-3, atol=1e-9)
    np.testing.assert_array_equal(np.isnan(found.influence_), np.isnan(expected.influence_))


@pytest.mark.parametrize("validation", ["split", "cross_fit"])
def test_parts_of_a_source(tmp_path: Path, validation: str) -> None:
    expected = DATA.fit(fair(validation_use=validation))
    found = DATA.fit(fair(validation_use=validation), X_val=parquet(tmp_path, "_val"))
    np.testing.assert_array_equal(found.dropped_, expected.dropped_)


def test_a_batch_of_several_parts() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = fitted()

        def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return self.body(torch.cat([left, right], 1))

    X = torch.tensor(DATA.X)
    rows = [
        {"left": row[:2], "right": row[2:], "label": y} for row, y in zip(X, DATA.y, strict=True)
    ]
    source = LoaderSource(DataLoader(rows, batch_size=50), features=("left", "right"))
    expected = DATA.fit(fair())
    found = DATA.fit(
        fair(Two()),
        X=source,
        y="label",
        X_val={"left": DATA.X_val[:, :2], "right": DATA.X_val[:, 2:]},
    )
    np.testing.assert_allclose(found.influence_, expected.influence_, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_chunks_of_a_range_are_its_rows(tmp_path: Path, form: Any, size: int) -> None:
    source = form(tmp_path, "")
    for start, stop in ((0, None), (5, 6), (90, 113), (239, 240), (40, 230)):
        parts = [np.asarray(table) for table in source.chunks(size, start, stop)]
        assert max(len(part) for part in parts) <= size
        np.testing.assert_array_equal(np.concatenate(parts), DATA.X[start:stop])


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_rows_are_taken_in_the_order_asked_for(tmp_path: Path, form: Any) -> None:
    source, index = form(tmp_path, ""), np.array([200, 3, 3, 150, 41, 0])
    np.testing.assert_array_equal(np.asarray(source.take(index)), DATA.X[index])
    some = source.subset(np.array([2, 40, 41, 100, 239]))
    assert len(some) == 5
    np.testing.assert_array_equal(np.asarray(some.take([4, 0])), DATA.X[[239, 2]])
    parts = [np.asarray(table) for table in some.chunks(2, 1, 4)]
    np.testing.assert_array_equal(np.concatenate(parts), DATA.X[[40, 41, 100]])


def test_products_on_a_source(tmp_path: Path) -> None:
    module = fitted(dtype=torch.float64)
    whole = adapt(module).linearize(DATA.X.astype(np.float64))
    parts = StreamedEditable(adapt(module)).linearize(ArraySource(DATA.X.astype(np.float64)))
    generator = torch.Generator().manual_seed(0)
    r = torch.randn(31, generator=generator, dtype=torch.float64)
    u = torch.randn(240, generator=generator, dtype=torch.float64)
    close = torch.testing.assert_close
    close(parts.outputs, whole.outputs)
    close(parts.jvp(r), whole.jvp(r))
    close(parts.vjp(u), whole.vjp(u))
    close(parts.second_order(u, r), whole.second_order(u, r))
    middle = lambda moved, rows: moved * u[rows]  # noqa: E731
    close(parts.sandwich(r, middle), whole.sandwich(r, middle))
    index = torch.tensor([7, 200, 0])
    close(parts.rows(index), whole.rows(index))
    close(parts.restrict(index).vjp(u[index]), whole.restrict(index).vjp(u[index]))
    pieces = [torch.tensor([5, 100, 101]), torch.tensor([], dtype=torch.long), torch.arange(9, 90)]
    expected = torch.stack([whole.restrict(i).vjp(u[i]) if len(i) else 0 * r for i in pieces], 1)
    close(parts.sums(u, pieces), expected)
    assert parts.mode == whole.mode


def test_chunks_that_fit_are_read_once() -> None:
    class Counted(ArraySource):
        read = 0

        def chunks(self, size: int, start: int = 0, stop: int | None = None) -> Any:
            for table in super().chunks(size, start, stop):
                self.read += len(table)
                yield table

    for limit, expected in ((2**20, 240), (37 * 16, 240 + 2 * 203), (0, 720)):
        source = Counted(DATA.X)
        model = StreamedLinearization(adapt(fitted()), source, limit)
        for _ in range(3):
            model.vjp(torch.ones(240))
        assert source.read == expected


def test_chunks_are_halved_when_memory_runs_out() -> None:
    class Scarce(StreamedEditable):
        def linearize(self, X: Any, *, keep: bool = True) -> Any:
            if len(X) > 10:
                raise MemoryError
            return super().linearize(X, keep=keep)

    rows = ArraySource(DATA.X)
    model = StreamedLinearization(Scarce(adapt(fitted())), rows, 0)
    expected = adapt(fitted()).linearize(DATA.X)
    torch.testing.assert_close(model.vjp(torch.ones(240)), expected.vjp(torch.ones(240)))
    assert model._chunks.size == 9
    chunks = Chunks(rows)
    with pytest.raises(MemoryError):  # not even one row fits
        chunks.joined(lambda table: (_ for _ in ()).throw(MemoryError()))
    assert chunks.size == 1
    with pytest.raises(RuntimeError, match="another matter"):
        Chunks(rows).joined(lambda table: (_ for _ in ()).throw(RuntimeError("another matter")))


def test_a_bad_value_is_found_in_its_chunk() -> None:
    X = DATA.X.copy()
    X[80, 2] = np.nan
    with pytest.raises(InvalidInputError, match=r"row 6, column 2.*counted from row 74 of the"):
        DATA.fit(fair(), X=ArraySource(X))
    held = DATA.X_val.copy()
    held[40, 1] = np.inf
    with pytest.raises(InvalidInputError, match=r"`X_val`.*row 3, column 1.*counted from row 37"):
        DATA.fit(fair(), X_val=ArraySource(held))


def test_rows_that_a_loader_leaves_out_are_missed() -> None:
    """What is not written in a block of results is whatever lay in memory there."""

    def some(batch: list[Any]) -> Any:
        return torch.stack([row for (row,) in batch if row[0] > 0])

    rows = LoaderSource(DataLoader(TensorDataset(torch.tensor(DATA.X)), 20, collate_fn=some))
    model = StreamedEditable(adapt(fitted()))
    for work in (lambda: model.outputs(rows), lambda: model.linearize(rows).vjp(torch.ones(240))):
        with pytest.raises(InvalidInputError, match=r"but of 240 it gave \d+: look for a data"):
            work()


def test_a_module_that_leaves_rows_out_is_refused() -> None:
    class Greedy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = fitted()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x[x[:, 0] > 0])

    with pytest.raises(InvalidInputError, match=r"240 rows were given and \d+ came back"):
        adapt(Greedy()).outputs(DATA.X)


def test_sources_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        ArrowSource(tmp_path / "nothing.parquet", NAMES)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        ArrowSource(tmp_path / "broken.parquet", NAMES)
    source = parquet(tmp_path, "")
    with pytest.raises(InvalidInputError, match="no column 'wage'; it has 'a', 'b'"):
        source.column("wage")
    with pytest.raises(InvalidInputError, match="no column 'e'"):
        ArrowSource(tmp_path / "parquet", ["a", "e"])
    with pytest.raises(InvalidInputError, match="at least one column"):
        ArrowSource(tmp_path / "parquet", [])
    rows = TensorDataset(torch.tensor(DATA.X))
    shuffled = BatchSampler(RandomSampler(rows), 7, drop_last=False)
    cut = BatchSampler(SequentialSampler(rows), 7, drop_last=True)
    for bad in (
        {"shuffle": True},
        {"drop_last": True, "batch_size": 7},
        {"batch_sampler": shuffled},
        {"batch_sampler": cut},
    ):
        with pytest.raises(InvalidInputError, match="the same order each time"):
            LoaderSource(DataLoader(rows, **bad))
    with pytest.raises(InvalidInputError, match=r"must hold 3, got 1 parts"):
        LoaderSource(DataLoader(rows), features=3)
    with pytest.raises(InvalidInputError, match="must hold 'y'"):
        LoaderSource(DataLoader(rows), features=0).column("y")
    with pytest.raises(InvalidInputError, match="no columns besides the features"):
        ArraySource(DATA.X).column("y")
    with pytest.raises(InvalidInputError, match="needs an array"):
        ArraySource(3.0)


def test_a_memory_mapped_array_is_streamed_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "X.npy", DATA.X)
    seen: list[int] = []
    chunks = ArraySource.chunks

    def watched(self: ArraySource, size: int, start: int = 0, stop: int | None = None) -> Any:
        seen.append(size)
        return chunks(self, size, start, stop)

    monkeypatch.setattr(ArraySource, "chunks", watched)
    DATA.fit(fair(), X=np.load(tmp_path / "X.npy", mmap_mode="r"))
    assert seen


def test_torch_batches_are_halved_when_memory_runs_out() -> None:
    class Scarce(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = fitted()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) > 50:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return self.body(x)

    expected, u = adapt(fitted()).linearize(DATA.X), torch.ones(240)
    for batch in ("auto", 240):
        model = adapt(Scarce(), batch_size=batch).linearize(DATA.X)
        torch.testing.assert_close(model.outputs, expected.outputs)
        torch.testing.assert_close(model.vjp(u), expected.vjp(u))
        r = torch.ones(31)
        torch.testing.assert_close(model.jvp(r), expected.jvp(r))
