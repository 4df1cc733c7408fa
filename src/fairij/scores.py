"""Scores of rows that never have to be in memory: written as they come, the highest kept."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import numpy as np
import torch
from numpy.typing import NDArray

from fairij.distributed import Shard
from fairij.errors import InvalidInputError
from fairij.fairness import arrays
from fairij.influence import inner
from fairij.inputs import whole_number
from fairij.labels import encode_classes
from fairij.mitigator import FairIJ
from fairij.models.rows import Columns, n_rows
from fairij.models.sources import ArraySource, Source, as_source, named_column
from fairij.models.streamed import Chunks
from fairij.unison import together

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
) -> TopRows:
    """Score rows chunk by chunk with a fitted `FairIJ`: ``-(J r) l'(z) / N``, as `influence_`.

    Every row counts with weight one: where the model was fitted with sample or class weights, the
    scores of training rows are not `influence_` but what it would be without them.
    ``out`` is a ``.npy`` or ``.parquet`` file that appears once all scores are in it. Memory holds
    one chunk, the labels and the ``top`` highest scores.

    Of a `Shard` every process scores its own rows, with their labels. The highest scores are those
    of all processes, on each of them; process 3 writes ``scores-3.npy`` where ``out`` is
    ``scores.npy``, with its rows counted from 0.
    """
    if isinstance(X, Shard):
        return _of_all_processes(fair, X, y, out=out, top=top, overwrite=overwrite)
    _check_columns(fair, X)
    source = as_source(X)
    source = source if isinstance(source, Source) else ArraySource(np.asarray(source))
    truth = arrays.vector("y", named_column(source, y))
    arrays.check_rows("y", truth, n_rows(source))
    best = TopRows(whole_number("top", top, 0))
    if out is None:
        for start, scores in _scores(fair, source, truth):
            best.show(scores, start)
        return best
    target = Path(out)
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists already; pass overwrite=True to replace it.")
    with score_file(target, len(source)) as writer:
        for start, scores in _scores(fair, source, truth):
            best.show(scores, start)
            writer.write(scores)
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


def _scores(fair: FairIJ, source: Source, truth: NDArray[Any]) -> Iterator[tuple[int, Array]]:
    editable = fair.editable()
    loss, rows = fair.loss_, int(fair.diagnostics_["n_train"])
    assert fair.direction_ is not None
    direction = fair.direction_.to(editable.theta)
    parts = Chunks(source).made_of_each(lambda table: editable.linearize(table, keep=False))
    for place, part in parts:
        z, labels = part.outputs, truth[place]
        if loss.is_classification:
            labels = encode_classes("y", labels, fair.classes_)
        slope = loss.slope(z, torch.as_tensor(labels, dtype=z.dtype, device=z.device))
        yield place.start, -inner(slope, part.jvp(direction)).double().cpu().numpy() / rows


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
