"""Scores of rows that never have to be in memory: written as they come, the highest kept."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from fairij._version import __version__
from fairij.data.checks import whole_number
from fairij.data.hashing import data_fingerprint, tensor_fingerprint
from fairij.data.labels import check_outputs, check_runs, encode_classes
from fairij.data.processes import processes
from fairij.data.rows import Columns, n_rows
from fairij.data.sources import ArraySource, Source, as_source, named_column, table_rows
from fairij.errors import InvalidInputError
from fairij.fairness import arrays
from fairij.method.influence import check_finite, inner
from fairij.mitigator import FairIJ
from fairij.models.base import Editable
from fairij.scale.checkpoints import Journal
from fairij.scale.collectives import together
from fairij.scale.sharding import Shard
from fairij.scale.streaming import Chunks, located

Array = NDArray[np.float64]


@dataclass
class TopRows:
    """The k highest scores among all that were shown so far; of equals, the first shown."""

    k: int
    scores: Array = field(default_factory=lambda: np.empty(0))  # descending
    rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def show(self, scores: Array, start: int) -> None:
        """Some more scores, of the rows from ``start`` on."""
        self.merge(scores, np.arange(start, start + len(scores)))

    def merge(self, scores: Array, rows: NDArray[np.int64]) -> None:
        """Some more scores and their rows, those that come later in the table."""
        if len(self.scores) == self.k and self.k:  # most rows cannot come in
            able = scores > self.scores[-1]
            scores, rows = scores[able], rows[able]
        scores, rows = np.concatenate([self.scores, scores]), np.concatenate([self.rows, rows])
        best = np.argsort(-scores, kind="stable")[: self.k]
        self.scores, self.rows = scores[best], rows[best]


def stream_influence(
    fair: FairIJ,
    X: Any,
    y: Any,
    *,
    out: str | os.PathLike[str] | None = None,
    top: int = 0,
    overwrite: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> TopRows:
    """Score rows chunk by chunk with a fitted `FairIJ`: ``-(J r) l'(z) / N``, as `influence_`.

    Every row counts with weight one: where the model was fitted with sample or class weights, the
    scores of training rows are not `influence_` but what it would be without them.
    ``out`` is a ``.npy`` or ``.parquet`` file that appears once all scores are in it. Memory holds
    one chunk, the labels and the ``top`` highest scores.
    ``checkpoint`` is a folder in which the scores are written down as they are made: the same call
    with the same folder goes on behind the last of them, and ends with the same bits; each of
    several processes has a journal of its own in it.

    Of a `Shard` every process scores its own rows, with their labels. The highest scores are those
    of all processes, on each of them; process 3 writes ``scores-3.npy`` where ``out`` is
    ``scores.npy``, with its rows counted from 0.
    """
    if isinstance(X, Shard):
        asked = {"top": top, "overwrite": overwrite, "checkpoint": checkpoint}
        return _of_all_processes(fair, X, y, out=out, **asked)
    check_is_fitted(fair, "estimator_")
    _check_columns(fair, X)
    source = _as_rows(X)
    truth = _truth(fair, named_column(source, y), n_rows(source))
    best = TopRows(whole_number("top", top, 0))
    with _written_to(out, len(source), overwrite=overwrite) as write:
        for start, scores in _scores(fair, source, truth, checkpoint):
            best.show(scores, start)
            write(scores)
    return best


def _of_all_processes(
    fair: FairIJ, shard: Shard, y: Any, *, out: str | os.PathLike[str] | None, **asked: Any
) -> TopRows:
    own = None if out is None else Path(out).with_stem(f"{Path(out).stem}-{shard.rank}")
    parts = together(lambda: stream_influence(fair, shard.local, y, out=own, **asked))
    best = TopRows(parts[0].k)
    for rank, part in enumerate(parts):
        best.merge(part.scores, part.rows + sum(shard.counts[:rank]))
    return best


def _check_columns(fair: FairIJ, X: Any) -> None:
    width = (fair.n_features_in_,) if hasattr(fair, "n_features_in_") else ()
    Columns(width, tuple(getattr(fair, "feature_names_in_", ()))).check("X", X)


def _as_rows(X: Any) -> Source:
    source = as_source(X)
    if isinstance(source, Source):
        return source
    try:
        array = np.asarray(source)
    except ValueError:
        raise InvalidInputError(
            "`X` must have as many values in every row, but its rows are of unlike lengths: give "
            "an array, a frame or a `Source`."
        ) from None
    return ArraySource(array)


def _truth(fair: FairIJ, y: Any, rows: int) -> NDArray[Any]:
    """The labels as the loss takes them."""
    is_class = fair.loss_.is_classification
    truth = arrays.vector("y", y) if is_class else arrays.numbers("y", y)
    arrays.check_rows("y", truth, rows)
    return encode_classes("y", truth, fair.classes_) if is_class else truth


@contextmanager
def _written_to(
    out: str | os.PathLike[str] | None, rows: int, *, overwrite: bool
) -> Iterator[Callable[[Array], None]]:
    """How scores are written, if they are to be."""
    if out is None:
        yield lambda scores: None
        return
    target = Path(out)
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists already; pass overwrite=True to replace it.")
    with score_file(target, rows) as writer:
        yield writer.write


def _scores(
    fair: FairIJ, source: Source, truth: NDArray[Any], checkpoint: Any
) -> Iterator[tuple[int, Array]]:
    """The scores of each chunk, with the number of its first row."""
    editable = fair.editable()
    check_runs("X", editable, source)
    assert fair.direction_ is not None
    direction = fair.direction_.to(editable.theta)
    trained_on = int(fair.diagnostics_["n_train"])
    journal = None
    if checkpoint is not None:
        journal = Journal.open(checkpoint, _facts(fair, editable, source, truth), alone=True)

    def scored(table: Any, rows: slice) -> Tensor:
        part = editable.linearize(table, keep=False)
        z = part.outputs
        check_outputs("X", z)
        slope = fair.loss_.slope(z, torch.as_tensor(truth[rows], dtype=z.dtype, device=z.device))
        scores = -inner(slope, part.jvp(direction)).double().cpu() / trained_on
        check_finite(scores)
        return scores

    for start, table in Chunks(source).read():
        rows = slice(start, start + table_rows(table))
        make = partial(scored, table, rows)
        try:
            name = f"scores of rows {rows.start} to {rows.stop}"
            made = make() if journal is None else journal.recalled(name, None, make)
        except InvalidInputError as error:
            raise located(error, start) from None
        yield start, made.numpy()
    if journal is not None:
        journal.write()


def _facts(fair: FairIJ, editable: Editable, source: Source, truth: NDArray[Any]) -> dict[str, str]:
    """What scores depend on, by name; every row is read for it."""
    assert fair.direction_ is not None
    settings = {name: getattr(fair, name) for name in ("batch_size", "memory_limit", "loss_")}
    settings["n_train"] = fair.diagnostics_["n_train"]
    return {
        "model": editable.frame_fingerprint()[:16],
        "parameters": tensor_fingerprint(editable.theta),
        "direction": tensor_fingerprint(fair.direction_),
        "rows": data_fingerprint(source, truth, every_row=True)[:16],
        "settings": re.sub("0x[0-9a-f]+", "", repr(settings)),  # an address is not a setting
        "processes": str(processes()),
        "device": str(editable.theta.device),
        "versions": f"fairij {__version__}, torch {torch.__version__}",
    }


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class ScoreWriter(Protocol):
    def write(self, scores: Array) -> None: ...

    def close(self) -> None: ...


class _Numpy:
    """Written by plain writes: where the disk is full, a memory map would end the process."""

    def __init__(self, path: Path, rows: int) -> None:
        self._file = path.open("xb")
        try:
            header = {"descr": "<f8", "fortran_order": False, "shape": (rows,)}
            np.lib.format.write_array_header_1_0(self._file, header)
            self._file.flush()
            _reserve(self._file.fileno(), self._file.tell() + 8 * rows)
        except BaseException:
            self._file.close()
            raise

    def write(self, scores: Array) -> None:
        self._file.write(np.ascontiguousarray(scores, "<f8").data)

    def close(self) -> None:
        self._file.close()


def _reserve(descriptor: int, size: int) -> None:
    """Take the room now, so that a full disk shows before the scores are made, not after."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in FULL:
            raise  # any other: this file system cannot reserve, and the writes will tell


class _Parquet:
    def __init__(self, path: Path, rows: int) -> None:
        pyarrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
        self._table = pyarrow.table
        schema = pyarrow.schema([("row", pyarrow.int64()), ("influence", pyarrow.float64())])
        self._file = parquet.ParquetWriter(path, schema)
        self._place = 0

    def write(self, scores: Array) -> None:
        rows = np.arange(self._place, self._place + len(scores))
        self._file.write_table(self._table({"row": rows, "influence": scores}))
        self._place += len(scores)

    def close(self) -> None:
        self._file.close()


WRITERS: dict[str, Callable[[Path, int], ScoreWriter]] = {".npy": _Numpy, ".parquet": _Parquet}


class _Telling:
    """A writer whose failures say which file could not be written, and what to do."""

    def __init__(self, target: Path, temporary: Path, rows: int) -> None:
        self._target = target
        with _told(target):
            self._inner = WRITERS[target.suffix](temporary, rows)

    def write(self, scores: Array) -> None:
        with _told(self._target):
            self._inner.write(scores)

    def close(self) -> None:
        with _told(self._target):
            self._inner.close()


@contextmanager
def _told(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno or errno.EIO,
            f"The scores cannot be written: {error.strerror or error}. Free some space there, or "
            "give `out` in a folder that can be written; nothing half-written is left",
            str(target),
        ) from error


@contextmanager
def score_file(target: Path, rows: int) -> Iterator[ScoreWriter]:
    """A file of scores in order; it takes its name once it is whole."""
    if target.suffix not in WRITERS:
        raise InvalidInputError(
            f"`out` must end in one of {', '.join(WRITERS)}, got {target.name!r}."
        )
    with _told(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid4().hex}")
    writer: _Telling | None = None
    try:
        writer = _Telling(target, temporary, rows)
        yield writer
        writer.close()
        with _told(target):
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            os.replace(temporary, target)
    except BaseException:
        if writer is not None:
            with suppress(OSError):
                writer.close()
        temporary.unlink(missing_ok=True)
        raise
