"""Any family of models on a `Source`: every product is one pass over chunks of rows.

``J^T u`` is a sum over chunks and ``J r`` one chunk's result after the other, so memory holds one
chunk, and the first chunks for good as long as they fit in the memory limit. What has an entry a
row lies in files.
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
    Editable,
    Evaluator,
    EvaluatorDefaults,
    Linearization,
    LinearizationDefaults,
    Middle,
    Some,
    counted_from,
)
from fairij.models.delegating import Delegating
from fairij.models.torch.out_of_memory import retried

CHUNK_BYTES = 2**25  # of features as float32; what is made of them takes a few times as much
CHUNK_ROWS = 2**17  # where rows have no one width, or a narrow one
T = TypeVar("T")


class StreamedEditable(Delegating):
    """An `Editable` that also takes a `Source`; other rows go straight to the inner one."""

    def __init__(self, inner: Editable, memory_limit: int = 2**28) -> None:
        super().__init__(inner)
        self._memory_limit = memory_limit

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
            return retried(lambda: self._inner.outputs(X, theta), lambda: halved(self._inner, X))
        chunks = Chunks(X)

        def work() -> Tensor:
            made = chunks.made_of_each(lambda table: self._inner.outputs(table, theta))
            return joined((z for _, z in made), len(X), in_file=True)

        return chunks.retried(work)


class Chunks:
    """A source in chunks that become smaller when memory runs out."""

    def __init__(self, source: Source) -> None:
        self.source = source
        width = 4 * int(torch.tensor(source.shape[1:] or (1,)).prod())
        self.size = max(1, min(CHUNK_BYTES // max(width, 1), CHUNK_ROWS, max(len(source), 1)))

    def read(self, start: int = 0) -> Iterator[tuple[int, Any]]:
        """Each chunk with the number of its first row."""
        place = start
        for table in self.source.chunks(self.size, start):
            yield place, table
            place += table_rows(table)
            release()
        if place != len(self.source):
            raise InvalidInputError(
                f"A source must give all its rows on every pass, but of {len(self.source)} it gave "
                f"{place}: look for a data loader that leaves rows out, or a file that has changed."
            )

    def made_of_each(self, work: Callable[[Any], T], start: int = 0) -> Iterator[tuple[slice, T]]:
        """What the work makes of each chunk, with its rows; errors say where they come from."""
        for place, table in self.read(start):
            try:
                made = work(table)
            except InvalidInputError as error:
                raise located(error, place) from None
            yield slice(place, place + table_rows(table)), made

    def retried(self, work: Callable[[], T]) -> T:
        """The work, begun again with chunks of half the size each time that memory runs out."""
        return retried(work, self.halved)

    def halved(self) -> bool:
        if self.size <= 1:
            return False
        self.size //= 2
        return True


class StreamedLinearization(LinearizationDefaults):
    """``J r`` and ``J^T u`` of a source, chunk by chunk."""

    def __init__(
        self, model: Editable, source: Source, memory_limit: int, by: Tensor | None = None
    ) -> None:
        self._model, self._source, self._by = model, source, by
        self._chunks = Chunks(source)
        self._limit = self._whole_limit = memory_limit
        self._spared = memory_limit == 0  # whether no chunk is kept any more
        self._kept: list[tuple[int, Linearization]] = []  # with their numbers of rows

    @cached_property
    def mode(self) -> str:  # type: ignore[override]
        first = next(self._source.chunks(min(32, self._chunks.size)))
        return self._model.linearize(first, keep=False).mode

    def _each(self) -> Iterator[tuple[slice, Linearization]]:
        """Every chunk linearised; those that fit are kept for the next pass."""
        place = 0
        for count, kept in list(self._kept):
            yield slice(place, place + count), kept
            place += count
            release()
        keeping = self._limit > 0
        for rows, part in self._chunks.made_of_each(self._linearized, place):
            keeping = keeping and held_bytes(part) <= self._limit
            if keeping:
                self._kept.append((rows.stop - rows.start, part))
                self._limit -= held_bytes(part)
            yield rows, part

    def _retried(self, work: Callable[[], T]) -> T:
        return retried(work, self._with_less)

    def _with_less(self) -> bool:
        if self._spared:
            return self._chunks.halved()
        self._kept, self._limit, self._spared = [], 0, True
        return True

    def _sum(self, of_chunk: Callable[[slice, Linearization], Tensor]) -> Tensor:
        def work() -> Tensor:
            total: Tensor | None = None
            for rows, part in self._each():
                value = of_chunk(rows, part)
                total = value.clone() if total is None else total.add_(value)
            assert total is not None
            return total

        return self._retried(work)

    @cached_property
    def outputs(self) -> Tensor:
        return self._retried(lambda: self._joined(part.outputs for _, part in self._each()))

    def jvp(self, direction: Tensor) -> Tensor:
        return self._retried(lambda: self._joined(part.jvp(direction) for _, part in self._each()))

    def _joined(self, parts: Iterator[Tensor]) -> Tensor:
        return joined(parts, len(self._source), in_file=True)

    def vjp(self, weights: Tensor) -> Tensor:
        return self._sum(lambda rows, part: part.vjp(weights[rows]))

    def sandwich(self, direction: Tensor, middle: Middle) -> Tensor:
        def of_chunk(rows: slice, part: Linearization) -> Tensor:
            def shifted(moved: Tensor, some: Some) -> Tensor:
                return middle(moved, counted_from(rows.start, some))

            return part.sandwich(direction, shifted)

        return self._sum(of_chunk)

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        return self._sum(lambda rows, part: part.second_order(weights[rows], direction))

    def _linearized(self, table: Any, *, keep: bool = False) -> Linearization:
        part = self._model.linearize(table, keep=keep)
        return part if self._by is None else part.moved(self._by)

    def rows(self, index: Tensor) -> Tensor:
        part = self._linearized(self._source.take(index))
        return part.rows(torch.arange(len(index), device=index.device))

    def restrict(self, index: Tensor, *, keep: bool = False) -> Linearization:
        return self._linearized(self._source.take(index), keep=True)  # they are few, and read once

    def moved(self, by: Tensor) -> StreamedLinearization:
        total = by if self._by is None else self._by + by
        return StreamedLinearization(self._model, self._source, self._whole_limit, total)

    def sums(self, weights: Tensor, pieces: list[Tensor]) -> Tensor:
        """``J^T u`` over each piece of the rows alone, ``(D, K)``, all in one pass."""
        sizes = torch.tensor([len(index) for index in pieces])
        chosen, order = torch.cat(pieces).cpu().sort()
        piece_of = torch.arange(len(pieces)).repeat_interleave(sizes)[order]

        def work() -> Tensor:
            totals = [torch.zeros_like(self._model.theta) for _ in pieces]
            for start, table in self._chunks.read():
                ends = torch.tensor([start, start + table_rows(table)])
                here = slice(*torch.searchsorted(chosen, ends).tolist())
                if here.start == here.stop:
                    continue
                by_piece = torch.argsort(piece_of[here], stable=True)
                rows = chosen[here][by_piece]
                part = self._linearized(part_of_table(table, (rows - start).numpy()))
                numbers, counts = torch.unique_consecutive(
                    piece_of[here][by_piece], return_counts=True
                )
                own = weights[rows.to(weights.device)]
                self._add_pieces(totals, part, own, numbers, counts)
            return torch.stack(totals, 1)

        return self._retried(work)

    @staticmethod
    def _add_pieces(
        totals: list[Tensor], part: Linearization, weights: Tensor, numbers: Tensor, counts: Tensor
    ) -> None:
        first = 0
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            index = torch.arange(first, first + count, device=weights.device)
            totals[number] += part.restrict(index).vjp(weights[index])
            first += count


class StreamedEvaluator(EvaluatorDefaults):
    """The outputs of many edits on a source."""

    def __init__(self, model: Editable, source: Source) -> None:
        self._model, self._chunks = model, Chunks(source)

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        def work() -> Tensor:
            rows = len(self._chunks.source)
            parts = (z.transpose(0, 1) for _, z in self.pieces(direction, scales))
            return joined(parts, rows, in_file=True).transpose(0, 1)

        return self._chunks.retried(work)

    def pieces(self, direction: Tensor, scales: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """``z(theta + c d)`` of one chunk after the other, with the rows it holds."""
        return self._chunks.made_of_each(
            lambda table: self._model.evaluator(table).along(direction, scales)
        )


def halved(model: Any, X: Any) -> bool:
    """Whether a model's batches of such rows could be made smaller, and now are."""
    while isinstance(model, Delegating):
        model, X = model._inner, model.prepare(X)
    return bool(model.halve_batches(model.prepare(X) if hasattr(model, "prepare") else X))


def located(error: InvalidInputError, start: int) -> InvalidInputError:
    return InvalidInputError(f"{error} (Rows here are counted from row {start} of the source.)")


def held_bytes(part: Any) -> int:
    """How many bytes a linearised chunk keeps alive: its rows, or its table of leaves."""
    rows = getattr(part, "_X", None)
    jacobian = getattr(part, "jacobian", None)
    if jacobian is not None:
        rows = getattr(jacobian, "table", getattr(jacobian, "X", None))
    if rows is None:
        return 2**62  # not known: then it is not kept
    parts = rows.values() if isinstance(rows, dict) else rows if isinstance(rows, tuple) else [rows]
    return sum(_bytes(part) for part in parts)


def _bytes(part: Any) -> int:
    if hasattr(part, "tocsr"):  # the values, and as much again for their places
        return 2 * int(part.data.nbytes)
    return int(part.numel() * part.element_size())
