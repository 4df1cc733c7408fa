"""Rows from anywhere, good and bad: the answer is that of a plain array, or an error in words."""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader

from biased import fair, fitted, problem, train
from fairij import FairIJ, Grid
from fairij.data.arrow_source import ArrowSource
from fairij.data.sources import ArraySource, LoaderSource
from fairij.errors import FairIJError, FairIJWarning, InvalidInputError
from fairij.scale import streaming as streamed
from fairij.scale.sharding import Shard
from fairij.scale.streamed_scores import stream_influence

DATA = problem()
ROWS = 24
PLACES = st.integers(0, ROWS - 1)
QUICK = Grid(points=2, scales=(1.0,))
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module", autouse=True)
def _one_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = tmp_path_factory.mktemp("group") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@cache
def module(kind: str) -> nn.Module:
    """A network whose outputs are bounded, or a linear one, which extreme rows take anywhere."""
    if kind == "network":
        return fitted()
    start = nn.Linear(4, 1)
    return train(start, torch.tensor(DATA.X).double(), DATA.y, "binary_cross_entropy")


@cache
def mitigator(kind: str) -> FairIJ:
    return DATA.fit(fair(module(kind), search=QUICK))


# --- forms of rows ----------------------------------------------------------------------------


def mapped(X: Array, folder: Path, size: int) -> Any:
    """A .npy file; of objects there is none that may be opened without trust."""
    assume(X.dtype != object and X.size)
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


def parquet(X: Array, folder: Path, size: int) -> Any:
    assume(X.ndim == 2)
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    try:
        frame.to_parquet(folder / "X.parquet", row_group_size=size)
    except (ValueError, TypeError):  # Arrow has no column for such a mixture
        assume(False)
    return ArrowSource(folder / "X.parquet", features=list(frame.columns))


def loader(X: Array, folder: Path, size: int) -> Any:
    assume(X.dtype != object)
    return LoaderSource(DataLoader(X, batch_size=size))  # type: ignore[arg-type]


FORMS: dict[str, Callable[[Array, Path, int], Any]] = {
    "array source": lambda X, folder, size: ArraySource(X),
    "memory-mapped": mapped,
    "parquet": parquet,
    "loader": loader,
    "shard of an array": lambda X, folder, size: Shard(X),
    "shard of a source": lambda X, folder, size: Shard(ArraySource(X)),
    "subset": lambda X, folder, size: ArraySource(X).subset(np.arange(len(X))),
}


# --- rows, labels, groups and weights, most of them good --------------------------------------


def put(values: Any, place: Any, value: Any, dtype: Any = None) -> Array:
    changed = np.array(values, dtype=dtype)
    changed[place] = value
    return changed


def mostly(good: Any, odd: Any) -> Any:
    """The first, four times in five."""
    return st.integers(0, 4).flatmap(lambda turn: odd if turn == 0 else good)


@st.composite
def tables(draw: Any, X: Array = DATA.X) -> Array:
    rows = X[:ROWS]
    kind = draw(st.sampled_from(["plain"] * 5 + ["type", "value", "value", "shape", "shape"]))
    if kind == "type":
        return rows.astype(draw(st.sampled_from([np.float64, np.int64, np.int8, bool, object])))
    if kind == "value":
        value = draw(st.sampled_from([np.nan, np.inf, -np.inf, 1e300, 3e38, 1e-300, None, "x"]))
        place = (draw(PLACES), draw(st.integers(0, 3)))
        of_numbers = isinstance(value, float)
        changed = put(rows, place, value, np.float64 if of_numbers else object)
        return put(changed, (slice(None), place[1]), value) if draw(st.booleans()) else changed
    if kind == "shape":
        changed = draw(
            st.sampled_from(
                [
                    rows[:0],
                    rows[:1],
                    rows[:-1],
                    rows[:, :3],
                    rows[:, :0],
                    rows[:, 0],
                    rows[..., None],
                ]
            )
        )
        return np.ascontiguousarray(changed)
    return rows


def columns(good: Array, *odd: Any) -> Any:
    """One value a row: the good ones, odd ones, too few, or a bad value at some place."""
    bad = st.sampled_from([np.nan, np.inf, None, -1, 7, 0.5, "x", ""])
    changed = st.builds(lambda place, value: put(good, place, value, object), PLACES, bad)
    whole = [good[:0], good[:1], good[:-1], np.repeat(good, 2), good[:, None], good.astype(object)]
    return mostly(st.just(good), st.one_of(changed, st.sampled_from([*whole, *odd])))


def labels(good: Array) -> Any:
    other = (good.astype(bool), good.astype(float), 2 * good - 1, good * 0, good.astype(str), None)
    return columns(good, *other)


Y, Y_VAL, SEX = DATA.y[:ROWS], DATA.y_val[:ROWS], DATA.sex_val[:ROWS]
WEIGHTS = columns(np.ones(ROWS), np.zeros(ROWS), -np.ones(ROWS), np.full(ROWS, 1e300), None)
DAMPINGS = mostly(
    st.just(1e-2), st.sampled_from([1.0, 1e-12, 1e30, (1e-2, 1.0), 0, -1, np.nan, "auto", "x"])
)


@dataclass(frozen=True)
class Answer:
    """Numbers, or an error of fairij's own."""

    numbers: Array | None
    error: str = ""


def answer(work: Callable[[], Array]) -> Answer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairIJWarning)
        try:
            return Answer(work())
        except FairIJError as error:
            assert len(str(error)) > 20  # noqa: PT017
            return Answer(None, str(error))


def alike(found: Answer, plain: Answer, X: Array) -> None:
    """Finite numbers of all rows, as a plain array gives them, and where it gives any."""
    if found.numbers is None:
        assert plain.numbers is None or X.dtype.kind != "f", found.error
        return
    assert found.numbers.shape == (len(X),)
    assert np.isfinite(found.numbers).all()
    assert plain.numbers is not None, plain.error
    largest = np.abs(plain.numbers).max()
    np.testing.assert_allclose(found.numbers, plain.numbers, rtol=1e-6, atol=1e-6 * largest)


def as_from_an_array(
    work: Callable[..., Array], made: Callable[[], Any], X: Array, kept: Path | None
) -> None:
    """The same of rows in a form as of the array, and again where a checkpoint was kept."""
    found = answer(lambda: work(made, kept))
    alike(found, answer(lambda: work(lambda: X)), X)
    if kept is not None and found.numbers is not None:
        again = answer(lambda: work(made, kept))
        np.testing.assert_array_equal(again.numbers, found.numbers)


asked = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
kinds = st.sampled_from(["network", "linear"])
forms, sizes = st.sampled_from(sorted(FORMS)), st.sampled_from([1, 5, 7, ROWS, 100])


def check_scores(kind: str, form: str, size: int, X: Array, y: Any, keep: bool) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        patch.setattr(streamed, "CHUNK_ROWS", size)

        def scores(rows: Callable[[], Any], kept: Path | None = None) -> Array:
            out = folder / "s.npy"
            given_rows = rows()
            stream_influence(
                mitigator(kind), given_rows, y, out=out, overwrite=True, checkpoint=kept
            )
            own = folder / "s-0.npy" if isinstance(given_rows, Shard) else out
            return np.load(own)

        made = lambda: FORMS[form](X, folder, size)  # noqa: E731
        as_from_an_array(scores, made, X, folder / "kept" if keep else None)


DRAWN = given(kind=kinds, form=forms, size=sizes, X=tables(), y=labels(Y), keep=st.booleans())
test_scores = settings(asked, max_examples=25)(DRAWN(check_scores))
test_many_scores = pytest.mark.slow(settings(asked, max_examples=100)(DRAWN(check_scores)))


def check_fits(
    kind: str,
    form: str,
    size: int,
    X: Array,
    y: Any,
    X_val: Array,
    y_val: Any,
    groups: Any,
    weight: Any,
    damping: Any,
    keep: bool,
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        patch.setattr(streamed, "CHUNK_ROWS", size)

        def influence(rows: Callable[[], Any], kept: Path | None = None) -> Array:
            settings = {"damping": damping, "checkpoint": kept, "batch_size": size}
            return (
                fair(module(kind), search=QUICK, **settings)
                .fit(
                    rows(),
                    y,
                    X_val=X_val,
                    y_val=y_val,
                    sensitive_features_val=groups,
                    sample_weight=weight,
                )
                .influence_
            )

        made = lambda: FORMS[form](X, folder, size)  # noqa: E731
        as_from_an_array(influence, made, X, folder / "kept" if keep else None)


DRAWN_WITH_VALIDATION = given(
    kind=kinds,
    form=forms,
    size=sizes,
    X=tables(),
    y=labels(Y),
    X_val=tables(DATA.X_val),
    y_val=labels(Y_VAL),
    groups=columns(SEX, SEX[:1].repeat(ROWS), np.arange(ROWS), None),
    weight=WEIGHTS,
    damping=DAMPINGS,
    keep=st.booleans(),
)
test_fits = settings(asked, max_examples=12)(DRAWN_WITH_VALIDATION(check_fits))
test_many_fits = pytest.mark.slow(
    settings(asked, max_examples=50)(DRAWN_WITH_VALIDATION(check_fits))
)


@pytest.mark.parametrize(
    ("size", "turned", "said"),
    [
        (3e38, 0.0, "must be finite: row 3 gives NaN"),
        (1e37, 1e6, "influence.*that of row 3 is NaN"),
    ],
    ids=["outputs", "scores"],
)
def test_numbers_beyond_the_largest_are_not_scores(size: float, turned: float, said: str) -> None:
    model = copy.copy(mitigator("linear"))
    assert model.direction_ is not None
    model.direction_ = model.direction_ * turned
    extreme = size * torch.sign(module("linear").weight[0]).detach().numpy()
    rows = ArraySource(put(DATA.X[:ROWS], 3, extreme))
    with pytest.raises(InvalidInputError, match=said):
        stream_influence(model, rows, Y)


@pytest.mark.filterwarnings("ignore::fairij.errors.FairIJWarning")
def test_influence_beyond_the_largest_number_is_refused() -> None:
    X = put(DATA.X[:ROWS], (5, 3), 3e38, np.float64)
    given = {"X_val": DATA.X_val[:ROWS], "y_val": Y_VAL, "sensitive_features_val": SEX}
    with pytest.raises(InvalidInputError, match="must be finite, but that of row 5 is NaN"):
        fair(module("network"), search=QUICK, damping=1e-2).fit(X, Y, **given)
