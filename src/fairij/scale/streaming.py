"""A model on rows that are read as they are needed: every product is one pass over chunks.

Memory holds one chunk, and the first chunks between passes as far as the memory limit allows.
Vectors with one entry per row are stored in files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from fairij.data.row_vectors import joined, release
from fairij.data.sources import Source, part_of_table, table_rows
from fairij.errors import InvalidInputError
from fairij.models.base import (
    Delegating,
    Editable,
    Evaluator,
    Factors,
    Linearization,
    Middle,
    Some,
)
from fairij.models.torch.batches import retried

CHUNK_BYTES = 2**25  # of features as float32; what is made from them takes a few times as much
CHUNK_ROWS = 2**17  # for rows without one width, or narrow ones
PROBE_ROWS = 32
T = TypeVar("T")


class StreamedEditable(Delegating):
    """An `Editable` that also takes a `Source`; it passes other rows on to the inner one."""

    def __init__(self, inner: Editable, memory_limit: int = 2**28) -> None:
        super().__init__(inner)
        self._memory_limit = memory_limit  # bytes of linearised chunks to keep between passes

    def linearize(self, X: Any, *, keep: bool = True) -> Linearization:
        if isinstance(X, Source):
            return StreamedLinearization(self._inner, X, self._memory_limit if keep else 0)
        return self._inner.linearize(X, keep=keep)

    def evaluator(self, X: Any) -> Evaluator:
        if isinstance(X, Source):
            return StreamedEvaluator(self._inner, X)
        return self._inner.evaluator(X)

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        if not isinstance(X, Source):
            return self._inner.outputs(X, theta)
        return Chunks(X).joined(lambda table: self._inner.outputs(table, theta))

    def halve_batches(self, X: Any) -> bool:
        return self._inner.halve_batches(Chunks(X).first() if isinstance(X, Source) else X)


class Chunks:
    """A source in chunks that become smaller when memory runs out."""

    def __init__(self, source: Source) -> None:
        self.source = source
        width = 4 * int(torch.tensor(source.shape[1:] or (1,)).prod())
        self.size = max(1, min(CHUNK_BYTES // max(width, 1), CHUNK_ROWS, max(len(source), 1)))

    def first(self) -> Any:
        """A few rows, to try the model on."""
        return next(self.source.chunks(min(PROBE_ROWS, self.size)))

    def read(self, start: int = 0) -> Iterator[tuple[slice, Any]]:
        """Each chunk with its rows."""
        place = start
        for table in self.source.chunks(self.size, start):
            first, place = place, place + table_rows(table)
            yield slice(first, place), table
            release()
        if place != len(self.source):
            raise InvalidInputError(
                f"A source must give all its rows on every pass, but of {len(self.source)} it gave "
                f"{place}: look for a data loader that leaves rows out, or a file that has changed."
            )

    def made_of_each(
        self, work: Callable[[Any, slice], T], start: int = 0
    ) -> Iterator[tuple[slice, T]]:
        """The result of the work for each chunk, with its rows; errors say which rows."""
        for rows, table in self.read(start):
            try:
                made = work(table, rows)
            except InvalidInputError as error:
                where = f"(Rows here are counted from row {rows.start} of the source.)"
                raise InvalidInputError(f"{error} {where}") from None
            yield rows, made

    def joined(self, work: Callable[[Any], Tensor]) -> Tensor:
        """The results of all chunks one after the other; smaller chunks if memory runs out."""

        def passed() -> Tensor:
            made = self.made_of_each(lambda table, rows: work(table))
            return joined((z for _, z in made), len(self.source), in_file=True)

        return retried(passed, self.halved)

    def halved(self) -> bool:
        if self.size <= 1:
            return False
        self.size //= 2
        return True


class StreamedLinearization:
    """``J r`` and ``J^T u`` of a source, chunk by chunk, at ``theta + by``."""

    def __init__(
        self, model: Editable, source: Source, memory_limit: int, by: Tensor | None = None
    ) -> None:
        self._model, self._source, self._by = model, source, by
        self._chunks = Chunks(source)
        self._limit = self._whole_limit = memory_limit  # what is left of it, and all of it
        self._kept: list[tuple[int, Linearization]] = []  # with their numbers of rows

    @cached_property
    def mode(self) -> str:
        return self._model.linearize(self._chunks.first(), keep=False).mode

    def _each(self) -> Iterator[tuple[slice, Linearization]]:
        """Every chunk linearised; chunks that fit are kept for the next pass."""
        place = 0
        for count, kept in list(self._kept):
            yield slice(place, place + count), kept
            place += count
            release()
        keeping = self._limit > 0
        for rows, part in self._chunks.made_of_each(self._linearized, place):
            size = part.held_bytes() if keeping else None
            keeping = size is not None and size <= self._limit
            if size is not None and keeping:
                self._kept.append((rows.stop - rows.start, part))
                self._limit -= size
            yield rows, part

    def _with_less(self) -> bool:
        """Free the kept chunks, or halve the next ones; False if neither can be done."""
        if self._limit == 0 and not self._kept:
            return self._chunks.halved()
        self._kept, self._limit = [], 0
        return True

    def _sum(self, of_chunk: Callable[[slice, Linearization], Tensor]) -> Tensor:
        def work() -> Tensor:
            values = (of_chunk(rows, part) for rows, part in self._each())
            total = next(values).clone()
            for value in values:
                total.add_(value)
            return total

        return retried(work, self._with_less)

    @cached_property
    def outputs(self) -> Tensor:
        return self._joined(lambda part: part.outputs)

    def jvp(self, direction: Tensor) -> Tensor:
        return self._joined(lambda part: part.jvp(direction))

    def _joined(self, of_chunk: Callable[[Linearization], Tensor]) -> Tensor:
        def work() -> Tensor:
            parts = (of_chunk(part) for _, part in self._each())
            return joined(parts, len(self._source), in_file=True)

        return retried(work, self._with_less)

    def vjp(self, weights: Tensor) -> Tensor:
        return self._sum(lambda rows, part: part.vjp(weights[rows]))

    def sandwich(self, direction: Tensor, middle: Middle) -> Tensor:
        return self._sum(lambda rows, part: part.sandwich(direction, shifted(middle, rows.start)))

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        return self._sum(lambda rows, part: part.second_order(weights[rows], direction))

    def _linearized(self, table: Any, *_: slice, keep: bool = False) -> Linearization:
        part = self._model.linearize(table, keep=keep)
        return part if self._by is None else part.moved(self._by)

    def rows(self, index: Tensor) -> Tensor:
        part = self._linearized(self._source.take(index))
        return part.rows(torch.arange(len(index), device=index.device))

    def restrict(self, index: Tensor, *, keep: bool = False) -> Linearization:
        return self._linearized(self._source.take(index), keep=True)  # few rows, read once

    def moved(self, by: Tensor) -> StreamedLinearization:
        total = by if self._by is None else self._by + by
        return StreamedLinearization(self._model, self._source, self._whole_limit, total)

    def gram(self, middle: Tensor) -> Tensor | None:
        table = self._chunks.first()
        if self._linearized(table).gram(middle[: table_rows(table)]) is None:
            return None
        return self._sum(lambda rows, part: _found(part.gram(middle[rows])))

    def diagonal(self, middle: Callable[[Some], Tensor]) -> Tensor | None:
        if self._linearized(self._chunks.first()).diagonal(middle) is None:
            return None

        def of_chunk(rows: slice, part: Linearization) -> Tensor:
            return _found(part.diagonal(lambda some: middle(counted_from(rows.start, some))))

        return self._sum(of_chunk)

    def row_squares(self) -> Tensor | None:
        if self._linearized(self._chunks.first()).row_squares() is None:
            return None
        return self._joined(lambda part: _found(part.row_squares()))

    def row_products(self) -> Tensor | None:
        return None  # of rows of two chunks, which are not in memory together

    def factors(self) -> list[Factors] | None:
        return self.restrict(torch.arange(len(self._source))).factors()

    def held_bytes(self) -> int | None:
        """The bytes of the chunks that are kept."""
        return sum(part.held_bytes() or 0 for _, part in self._kept)

    def with_outputs(self, outputs: Tensor) -> None:
        return None  # the rows are not at hand

    def sums(self, weights: Tensor, pieces: list[Tensor]) -> Tensor:
        """``J^T u`` over each piece of the rows alone, ``(D, K)``, all in one pass."""
        sizes = torch.tensor([len(index) for index in pieces])
        chosen, order = torch.cat(pieces).cpu().sort()
        piece_of = torch.arange(len(pieces)).repeat_interleave(sizes)[order]

        def work() -> Tensor:
            theta = self._model.theta
            totals = theta.new_zeros(len(theta), len(pieces))
            for chunk, table in self._chunks.read():
                ends = torch.tensor([chunk.start, chunk.stop])
                here = slice(*torch.searchsorted(chosen, ends).tolist())
                if here.start == here.stop:
                    continue
                rows, numbers = chosen[here], piece_of[here].to(weights.device)
                part = self._linearized(part_of_table(table, (rows - chunk.start).numpy()))
                own = [torch.nonzero(numbers == piece)[:, 0] for piece in range(len(pieces))]
                totals += part.sums(weights[rows.to(weights.device)], own)
            return totals

        return retried(work, self._with_less)


def _found(value: Tensor | None) -> Tensor:
    assert value is not None  # a few rows had a fast way
    return value


class StreamedEvaluator:
    """The outputs of many edits on a source."""

    def __init__(self, model: Editable, source: Source) -> None:
        self._model, self._chunks = model, Chunks(source)

    @cached_property
    def estimates(self) -> bool:
        return self._model.evaluator(self._chunks.first()).estimates

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        return self._joined(lambda part: part.along(direction, scales))

    def confirm(self, direction: Tensor, scale: float, *, everywhere: bool) -> Tensor:
        return self._joined(lambda part: part.confirm(direction, scale, everywhere=everywhere))

    def _joined(self, of_chunk: Callable[[Evaluator], Tensor]) -> Tensor:
        def work(table: Any) -> Tensor:
            return of_chunk(self._model.evaluator(table)).transpose(0, 1)

        return self._chunks.joined(work).transpose(0, 1)


def shifted(middle: Middle, start: int) -> Middle:
    """A middle for which rows are counted from row ``start`` of the rows that it knows."""
    return lambda moved, rows: middle(moved, counted_from(start, rows))


def counted_from(start: int, rows: Some) -> Some:
    """Rows of a part, counted among all rows; the part begins at row ``start``."""
    if isinstance(rows, slice):
        return slice(start + rows.start, start + rows.stop)
    return start + rows
