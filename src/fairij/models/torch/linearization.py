"""A torch module on one table of rows: products with its Jacobian, and outputs of many edits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch.func import jacrev, vmap
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from fairij.data.row_vectors import joined, release
from fairij.data.rows import n_rows, parts_of, take_rows
from fairij.models.base import EvaluatorDefaults, Factors, LinearizationDefaults, Middle
from fairij.models.torch.autograd import Graph, JvpMode, saved_bytes, working_mode
from fairij.models.torch.batches import bytes_of, flatten, mapped, retried, sliced
from fairij.models.torch.factored import (
    FactoredGraph,
    NotFactoredError,
    factors,
    row_products,
)
from fairij.models.torch.matmul import Scratch, linear

if TYPE_CHECKING:
    from fairij.models.torch.module import TorchEditable

PROBE_ROWS = 32
Products = dict[tuple[int, int | None], Tensor]  # by the places of weight and bias in theta
T = TypeVar("T")


class TorchLinearization(LinearizationDefaults):
    """``J r`` and ``J^T u`` in batches; graphs are kept while they fit in the memory limit."""

    def __init__(
        self,
        model: TorchEditable,
        X: Any,
        memory_limit: int,
        mode: JvpMode | None = None,
        at: Tensor | None = None,
    ) -> None:
        self._model, self._X, self._memory_limit = model, X, memory_limit
        self._at = model.theta if at is None else at
        self._parameters, self._scratch = model.split(self._at), Scratch()
        self._cut()
        self.mode: JvpMode = mode or model.jvp_mode(X)
        probe = sliced(X, 0, min(PROBE_ROWS, n_rows(X)))
        self._kept: dict[int, Graph | FactoredGraph] = {}
        if memory_limit > 0:
            self._retried(lambda: self._keep_what_fits(probe))

    def _cut(self) -> None:
        self._batches = list(self._model.batches(self._X))
        self._sizes = [n_rows(batch) for batch in self._batches]

    def _retried(self, work: Callable[[], T]) -> T:
        """Do the work; if memory runs out, drop the kept graphs, then halve the batches."""

        def with_less() -> bool:
            less = bool(self._kept) or self._model.halve_rows(self._X)
            self._kept = {}
            self._memory_limit //= 2  # the machine has less than the limit
            self._cut()
            return less

        return retried(work, with_less)

    def _keep_what_fits(self, probe: Any) -> None:
        used, memory_limit = self._bytes_kept(probe), self._memory_limit
        own = bytes_of(self._parameters)  # of J^T u per batch
        for i, (batch, rows) in enumerate(zip(self._batches, self._sizes, strict=True)):
            memory_limit -= used * rows // n_rows(probe) + own
            if memory_limit < 0:
                break
            self._kept[i] = self._graph_of(batch, keep=True)

    def _bytes_kept(self, batch: Any) -> int:
        shared = [*self._parameters, *parts_of(batch).values()]
        graph = self._graph_of(batch)
        if isinstance(graph, FactoredGraph):
            return graph.held_bytes(shared)
        return saved_bytes(lambda: self._graph_of(batch, keep=True), shared)

    def _graph_of(self, batch: Any, *, keep: bool = False) -> Graph | FactoredGraph:
        model, mode = self._model, self.mode

        def function(parameters: Sequence[Tensor]) -> Tensor:
            return model.call(parameters, batch)  # not `self`: a cycle would wait to be freed

        if mode == "factored":
            try:
                return FactoredGraph(function, self._parameters, self._scratch)
            except NotFactoredError:  # the module treats these rows differently
                mode = working_mode(function, self._parameters)
        graph = Graph(function, self._parameters, mode)
        if keep:
            graph.prepare_jvp()
        return graph

    @cached_property
    def outputs(self) -> Tensor:
        def batches() -> Iterator[Tensor]:
            for i, batch in enumerate(self._batches):
                kept = self._kept.get(i)
                yield kept.outputs if kept else self._model.call(self._parameters, batch)
                self._release()

        with torch.no_grad():
            return self._retried(lambda: self._joined(batches()))

    def _graphs(self) -> Iterator[Graph | FactoredGraph]:
        for i, batch in enumerate(self._batches):
            yield self._kept.get(i) or self._graph_of(batch)
            self._release()

    def _joined(self, parts: Iterator[Tensor]) -> Tensor:
        return joined(parts, n_rows(self._X), in_file=self._model.memory_limit == 0)

    def _release(self) -> None:
        if self._model.memory_limit == 0:
            release()

    def jvp(self, direction: Tensor) -> Tensor:
        pieces = self._model.split(direction.to(self._parameters[0]))
        return self._retried(lambda: self._joined(graph.jvp(pieces) for graph in self._graphs()))

    def vjp(self, weights: Tensor) -> Tensor:
        return self._pulled(weights, lambda graph, u: graph.vjp(u))

    def sandwich(self, direction: Tensor, middle: Middle) -> Tensor:
        pieces = self._model.split(direction.to(self._parameters[0]))

        def batches() -> Iterator[list[Tensor]]:
            end = 0
            for graph, size in zip(self._graphs(), self._sizes, strict=True):
                end += size
                yield graph.vjp(middle(graph.jvp(pieces), slice(end - size, end)))

        return self._retried(lambda: self._sum(batches()))

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        pieces = self._model.split(direction.to(self._parameters[0]))
        return self._pulled(weights, lambda graph, u: graph.second_order(u, pieces))

    def _pulled(
        self, weights: Tensor, product: Callable[[Graph | FactoredGraph, Tensor], list[Tensor]]
    ) -> Tensor:
        weights = weights.to(self._parameters[0])

        def work() -> Tensor:
            parts = zip(self._graphs(), weights.split(self._sizes), strict=True)
            return self._sum(product(graph, u) for graph, u in parts)

        return self._retried(work)

    def rows(self, index: Tensor) -> Tensor:
        batch = take_rows(self._X, index)
        graph = self._graph_of(batch)
        if isinstance(graph, FactoredGraph):
            return graph.rows()

        def single(parameters: Sequence[Tensor], row: Any) -> Tensor:
            return torch.atleast_1d(self._model.call(parameters, mapped(lambda t: t[None], row))[0])

        parameters = tuple(self._parameters)
        try:
            jacobian = vmap(jacrev(single), (None, 0))(parameters, batch)
        except (RuntimeError, NotImplementedError, ValueError):  # an operator without vmap
            return self._rows_one_by_one(batch)
        return torch.cat([part.flatten(2) for part in jacobian], -1)

    def _rows_one_by_one(self, batch: Any) -> Tensor:
        graph = Graph(lambda p: self._model.call(p, batch), self._parameters, "differences")
        z = graph.outputs
        units = torch.eye(z.numel(), dtype=z.dtype, device=z.device)
        rows = [flatten(graph.vjp(unit.view_as(z))) for unit in units]
        return torch.stack(rows).view(len(z), z[0].numel(), -1)

    def restrict(self, index: Tensor, *, keep: bool = False) -> TorchLinearization:
        limit = self._memory_limit if keep else 0
        rows = take_rows(self._X, index)
        return TorchLinearization(self._model, rows, limit, self.mode, self._at)

    def row_squares(self) -> Tensor | None:
        factored = self._all_factors()
        return torch.cat([graph.row_squares() for graph in factored]) if factored else None

    def row_products(self) -> Tensor | None:
        factored = self._all_factors()
        return row_products(factored) if factored else None

    def factors(self) -> list[Factors] | None:
        if self.mode != "factored":
            return None
        graphs = list(self._graphs())
        found = [graph for graph in graphs if isinstance(graph, FactoredGraph)]
        return factors(found) if len(found) == len(graphs) else None

    def _all_factors(self) -> list[FactoredGraph]:
        """The factors of all batches; empty if some are not kept."""
        graphs = [self._kept.get(i) for i in range(len(self._batches))]
        found = [graph for graph in graphs if isinstance(graph, FactoredGraph)]
        return found if len(found) == len(graphs) else []

    def moved(self, by: Tensor) -> TorchLinearization:
        at = self._at + by.to(self._at)
        return TorchLinearization(self._model, self._X, self._memory_limit, self.mode, at)

    def held_bytes(self) -> int:
        return bytes_of(parts_of(self._X).values())

    def _sum(self, gradients: Iterator[list[Tensor]]) -> Tensor:
        total = next(gradients)
        for parts in gradients:
            for into, part in zip(total, parts, strict=True):
                into += part
        return flatten(total)


class TorchEvaluator(EvaluatorDefaults):
    """Forward passes at many parameters, which share products with the rows.

    If the module starts with linear layers on the rows themselves, their products with the fitted
    weights and with the direction are computed once. Each scale then only adds the two.
    """

    def __init__(self, model: TorchEditable, X: Any) -> None:
        self._model, self._X = model, X
        self._at = model.split(model.theta)
        self._room = model.memory_limit
        self._cut()

    def _cut(self) -> None:
        self._batches = list(self._model.batches(self._X))
        self._fitted_products: list[Products] = [{} for _ in self._batches]

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        pieces = self._model.split(direction.to(self._at[0]))

        def work() -> Tensor:
            batches = zip(self._batches, self._fitted_products, strict=True)
            return torch.cat([self._one_batch(*b, pieces, scales.tolist()) for b in batches], dim=1)

        with torch.no_grad():
            return retried(work, self._with_less)

    def _with_less(self) -> bool:
        """First keep no products; then halve the batches."""
        if self._room == 0 and not self._model.halve_rows(self._X):
            return False
        self._room = 0
        self._cut()
        return True

    def _one_batch(
        self, batch: Any, fitted: Products, pieces: list[Tensor], scales: list[float]
    ) -> Tensor:
        outputs, known = [], bool(fitted)
        shared = _SharedLinear(batch, [(fitted, self._at), ({}, pieces)])
        for scale in scales:
            at = [p + scale * d for p, d in zip(self._at, pieces, strict=True)]
            shared.scale, shared.place = scale, {id(p): i for i, p in enumerate(at)}
            with shared:
                outputs.append(self._model.call(at, batch))
        if not known:  # keep them for the next direction if they fit
            size = bytes_of(fitted.values())
            if size > self._room:
                fitted.clear()
            else:
                self._room -= size
        return torch.stack(outputs)


class _SharedLinear(TorchFunctionMode):
    """Computes ``linear(X, W + c dW, b + c db)`` as ``linear(X, W, b) + c linear(X, dW, db)``."""

    scale: float  # c
    place: dict[int, int]  # the id of a parameter -> its place in theta

    def __init__(self, batch: Any, products: list[tuple[Products, list[Tensor]]]) -> None:
        super().__init__()
        self._batch, self._products = batch, products  # of the fitted parameters, of the direction

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.linear and not kwargs and len(args) >= 2 and args[0] is self._batch:
            given = args[2] if len(args) > 2 else None
            weight, bias = self.place.get(id(args[1])), self.place.get(id(given))
            if weight is not None and (bias is not None or given is None):
                fitted, moved = (self._product(weight, bias, *of) for of in self._products)
                return torch.add(fitted, moved, alpha=self.scale)
        return func(*args, **(kwargs or {}))

    def _product(
        self, weight: int, bias: int | None, known: Products, parameters: list[Tensor]
    ) -> Tensor:
        if (weight, bias) not in known:
            shift = None if bias is None else parameters[bias]
            known[weight, bias] = linear(self._batch, parameters[weight], shift)
        return known[weight, bias]
