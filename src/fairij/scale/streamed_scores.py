"""Influence scores of any number of rows: computed and written chunk by chunk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
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

from fairij.data.checks import whole_number
from fairij.data.forked import one_thread_if_forked
from fairij.data.hashing import data_fingerprint, tensor_fingerprint
from fairij.data.rows import Columns, as_array, as_source, named_column
from fairij.data.sources import ArraySource, Source
from fairij.data.sparse import check_sparse
from fairij.errors import InvalidInputError
from fairij.fairness.groups import numbers, vector
from fairij.method.influence import check_finite, inner
from fairij.models.base import Editable
from fairij.models.labels import check_outputs, check_runs, encode_classes
from fairij.models.losses import Loss
from fairij.scale.checkpoints import Journal, facts_of
from fairij.scale.collectives import collected
from fairij.scale.sharding import Shard
from fairij.scale.streaming import Chunks

Array = NDArray[np.float64]
Append = Callable[[Array], Any]  # write the next scores to a file
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class FittedModel(Protocol):
    """What scoring needs of a fitted `FairIJ`."""

    direction_: Tensor | None  # (D,)
    loss_: Loss
    classes_: NDArray[Any]
    diagnostics_: dict[str, Any]
    batch_size: int | str
    memory_limit: int

    def editable(self) -> Editable: ...


@dataclass
class TopRows:
    """The k highest scores among all that were added so far; of equal scores, the first added."""

    k: int
    scores: Array = field(default_factory=lambda: np.empty(0))  # descending
    rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, scores: Array, rows: NDArray[np.int64]) -> None:
        """Add scores with their rows, which come after those added before."""
        if len(self.scores) == self.k and self.k:  # most rows are too low
            able = scores > self.scores[-1]
            scores, rows = scores[able], rows[able]
        scores, rows = np.concatenate([self.scores, scores]), np.concatenate([self.rows, rows])
        best = np.argsort(-scores, kind="stable")[: self.k]
        self.scores, self.rows = scores[best], rows[best]


@one_thread_if_forked()
def stream_influence(
    fair: FittedModel,
    X: Any,
    y: Any,
    *,
    out: str | os.PathLike[str] | None = None,
    top: int = 0,
    overwrite: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> TopRows:
    """Score rows chunk by chunk with a fitted `FairIJ`: ``-(J r) l'(z) / N``, as `influence_`.

    Every row has weight one, also if the model was fitted with sample or class weights. Memory
    holds one chunk, the labels and the ``top`` highest scores.

    Parameters
    ----------
    fair : FairIJ
        A fitted `FairIJ`.
    X : Source, array, frame or tensor
        The rows. Of a `Shard`, every process scores its own rows.
    y : array or str
        Their labels, or the name of a column of a `Source`.
    out : path, default=None
        A ``.npy`` or ``.parquet`` file. It appears when all scores are in it. Of a `Shard`,
        process 3 writes ``scores-3.npy`` for ``scores.npy``, with its rows counted from 0.
    top : int, default=0
        How many of the highest scores to return; of a `Shard`, the highest of all processes.
    overwrite : bool, default=False
        Whether to replace ``out`` if it exists.
    checkpoint : path, default=None
        A folder in which scores are recorded. A repeated call resumes after the last recorded
        chunk and ends with the same bits.

    Returns
    -------
    TopRows
        The ``top`` highest scores and their rows.

    Examples
    --------
    >>> worst = stream_influence(fair, X, y, top=3)
    >>> worst.rows.tolist() == np.argsort(-fair.influence_)[:3].tolist()
    True
    """
    if isinstance(X, Shard):
        own = None if out is None else Path(out).with_stem(f"{Path(out).stem}-{X.rank}")
        asked: Any = {"out": own, "top": top, "overwrite": overwrite, "checkpoint": checkpoint}
        parts = collected(lambda: stream_influence(fair, X.local, y, **asked))
        best = TopRows(parts[0].k)
        for rank, part in enumerate(parts):
            best.add(part.scores, part.rows + sum(X.counts[:rank]))
        return best
    check_is_fitted(fair, "estimator_")
    # scikit-learn's attributes, which are set if the training rows had columns
    width, names = getattr(fair, "n_features_in_", None), getattr(fair, "feature_names_in_", ())
    Columns(() if width is None else (width,), tuple(names)).check("X", X)
    given = as_source(X)
    check_sparse("X", given)
    source = given if isinstance(given, Source) else ArraySource(as_array(given))
    truth = _truth(fair, named_column(source, y), len(source))
    best = TopRows(whole_number("top", top, 0))
    with score_file(out, len(source), overwrite=overwrite) as write:
        for start, scores in _scores(fair, source, truth, checkpoint):
            best.add(scores, np.arange(start, start + len(scores)))
            write(scores)
    return best


def _truth(fair: FittedModel, y: Any, rows: int) -> NDArray[Any]:
    """The labels as the loss takes them."""
    is_class = fair.loss_.is_classification
    truth = vector("y", y, rows) if is_class else numbers("y", y, rows)
    return encode_classes("y", truth, fair.classes_) if is_class else truth


def _scores(
    fair: FittedModel, source: Source, truth: NDArray[Any], checkpoint: Any
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

    def made(table: Any, rows: slice) -> Tensor:
        part = editable.linearize(table, keep=False)
        z = part.outputs
        check_outputs("X", z)
        slope = fair.loss_.slope(z, torch.as_tensor(truth[rows], dtype=z.dtype, device=z.device))
        scores = -inner(slope, part.jvp(direction)).double().cpu() / trained_on
        check_finite(scores)
        return scores

    def recalled(table: Any, rows: slice) -> Tensor:
        name = f"scores of rows {rows.start} to {rows.stop}"
        make = partial(made, table, rows)
        return make() if journal is None else journal.recalled(name, None, make)

    for rows, scores in Chunks(source).made_of_each(recalled):
        yield rows.start, scores.numpy()
    if journal is not None:
        journal.write()


def _facts(
    fair: FittedModel, editable: Editable, source: Source, truth: NDArray[Any]
) -> dict[str, str]:
    """What the scores depend on, by name; reads every row."""
    assert fair.direction_ is not None
    settings = {name: getattr(fair, name) for name in ("batch_size", "memory_limit", "loss_")}
    settings["n_train"] = fair.diagnostics_["n_train"]
    return facts_of(editable, settings) | {
        "direction": tensor_fingerprint(fair.direction_),
        "rows": data_fingerprint(source, truth, every_row=True)[:16],
    }


@contextmanager
def _numpy(path: Path, rows: int) -> Iterator[Append]:
    """Uses plain writes: with a memory map, a full disk would kill the process."""
    with path.open("xb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (rows,)}
        np.lib.format.write_array_header_1_0(file, header)
        file.flush()
        _reserve(file.fileno(), file.tell() + 8 * rows)
        yield lambda scores: file.write(np.ascontiguousarray(scores, "<f8").data)


def _reserve(descriptor: int, size: int) -> None:
    """Reserve the space now, so that a full disk shows before the scores are computed."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in FULL:
            raise  # with any other error the file system cannot reserve: the writes will show


@contextmanager
def _parquet(path: Path, rows: int) -> Iterator[Append]:
    pyarrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    schema = pyarrow.schema([("row", pyarrow.int64()), ("influence", pyarrow.float64())])
    place = 0

    def append(scores: Array) -> None:
        nonlocal place
        numbers = np.arange(place, place + len(scores))
        file.write_table(pyarrow.table({"row": numbers, "influence": scores}))
        place += len(scores)

    with parquet.ParquetWriter(path, schema) as file:
        yield append


WRITERS = {".npy": _numpy, ".parquet": _parquet}


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    """Errors name the file and the cure."""
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
def score_file(
    out: str | os.PathLike[str] | None, rows: int, *, overwrite: bool = False
) -> Iterator[Append]:
    """A function that appends scores to a file, if any; it gets its name when it is complete."""
    if out is None:
        yield lambda scores: None
        return
    target = Path(out)
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists already; pass overwrite=True to replace it.")
    if target.suffix not in WRITERS:
        raise InvalidInputError(
            f"`out` must end in one of {', '.join(WRITERS)}, got {target.name!r}."
        )
    temporary = target.with_name(f".{target.name}.{uuid4().hex}")
    with _explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    opened = ExitStack()
    try:
        with _explained(target):
            append = opened.enter_context(WRITERS[target.suffix](temporary, rows))
        yield _explained(target)(append)
        with _explained(target):
            opened.close()
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            opened.close()
        temporary.unlink(missing_ok=True)
        raise
