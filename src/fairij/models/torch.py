"""Any `torch.nn.Module` with one logit or C outputs per row."""

from __future__ import annotations

import copy
import fnmatch
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap
from torch.nn.parameter import is_lazy

from fairij.errors import InvalidInputError
from fairij.models._autograd import Graph, JvpMode, saved_bytes, working_mode
from fairij.models._evaluator import TorchEvaluator
from fairij.models.base import Middle
from fairij.models.memory import OUT_OF_MEMORY, is_out_of_memory, joined
from fairij.models.rows import n_rows, take_rows, to_tensors

PROBE_ROWS = 32
T = TypeVar("T")
# aim at batches whose graph stays near a CPU's cache, or fills a GPU
BATCH_BYTES = {"cpu": 4 * 2**20, "cuda": 2**29}


class TorchEditable:
    """A module seen through some of its parameters; the module itself is never changed.

    Parameters
    ----------
    parameters : "trainable", "all", a name pattern or module name, or several of those
        Which parameters may be edited. A pattern is shell-style (``"head.*"``); the name of a
        submodule stands for everything in it.
    batch_size : rows at a time, or "auto"
    memory_limit : bytes of autograd graph that may be kept between products
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        parameters: str | Sequence[str] = "trainable",
        batch_size: int | str = "auto",
        memory_limit: int = 2**28,
    ) -> None:
        # a copy of the module tree that shares every tensor: eval mode is set on the copy alone
        tensors = [*module.parameters(), *module.buffers()]
        self._original = module
        self._module = copy.deepcopy(module, {id(t): t for t in tensors}).eval()
        self.parameter_names = choose_parameters(module, parameters)
        named = dict(module.named_parameters())
        self._fitted = {name: named[name].detach() for name in self.parameter_names}
        # buffers are copied, as a forward pass may write to them
        self._fixed = {n: p.detach() for n, p in named.items() if n not in self._fitted} | {
            n: b.detach().clone() for n, b in module.named_buffers()
        }
        first = next(iter(self._fitted.values()))
        self.dtype, self.device = first.dtype, first.device
        self._batch_size, self._memory_limit = batch_size, memory_limit
        self._auto_rows: dict[Any, int] = {}
        self._modes: dict[Any, JvpMode] = {}
        self._writes_input: bool | None = None  # not known before the first call

    @property
    def theta(self) -> Tensor:
        return flatten(self._fitted.values())

    def split(self, theta: Tensor) -> list[Tensor]:
        """The flat vector as parameter-shaped pieces."""
        shapes = [p.shape for p in self._fitted.values()]
        pieces = theta.split([shape.numel() for shape in shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def call(self, parameters: Sequence[Tensor], batch: Any) -> Tensor:
        """``z`` of one batch at these parameters, shape ``(N,)`` or ``(N, C)``."""
        if self._writes_input is None:
            probe = _map(torch.clone, batch)
            versions = [part._version for part in _parts(probe)]
            out = self._run(parameters, probe)
            self._writes_input = versions != [part._version for part in _parts(probe)]
        else:  # a module that works in place must not do so on the user's own rows
            out = self._run(parameters, _map(torch.clone, batch) if self._writes_input else batch)
        return canonical_outputs(out, n_rows(batch))

    def _run(self, parameters: Sequence[Tensor], batch: Any) -> Any:
        state = dict(zip(self.parameter_names, parameters, strict=True)) | self._fixed
        if isinstance(batch, Mapping):
            return functional_call(self._module, state, (), dict(batch))
        return functional_call(self._module, state, batch if isinstance(batch, tuple) else (batch,))

    def prepare(self, X: Any) -> Any:
        """``X`` as tensors that the module takes."""
        X = to_tensors(X, dtype=self.dtype, device=self.device)
        if isinstance(X, Tensor) and not X.is_floating_point() and not self._takes_integers:
            X = X.to(self.dtype)
        return X

    @property
    def _takes_integers(self) -> bool:
        return any(isinstance(m, (nn.Embedding, nn.EmbeddingBag)) for m in self._module.modules())

    def batches(self, X: Any) -> Iterator[Any]:
        """``X`` (prepared) in consecutive batches, as views where possible."""
        size, rows = self.batch_rows(X), n_rows(X)
        for start in range(0, rows, size):
            yield _slice(X, start, min(start + size, rows))

    def batch_rows(self, X: Any) -> int:
        """How many rows a batch has: as given, or so that its graph is about `BATCH_BYTES`."""
        if isinstance(self._batch_size, int):
            return self._batch_size
        shape = _row_shapes(X)
        if shape not in self._auto_rows:
            self._auto_rows[shape] = self._probe_rows(X)
        return self._auto_rows[shape]

    def halve_batches(self, X: Any) -> bool:
        """Half the rows a batch from now on; False where a batch has one row already."""
        rows = min(self.batch_rows(X), n_rows(X))
        if rows <= 1:
            return False
        if isinstance(self._batch_size, int):
            self._batch_size = rows // 2
        else:
            self._auto_rows[_row_shapes(X)] = rows // 2
        return True

    def jvp_mode(self, probe: Any) -> JvpMode:
        """The way of differentiating that works on rows of this shape; found once."""
        shape = _row_shapes(probe)
        if shape not in self._modes:
            parameters = self.split(self.theta)
            self._modes[shape] = working_mode(lambda p: self.call(p, probe), parameters)
        return self._modes[shape]

    def _probe_rows(self, X: Any) -> int:
        probe = _slice(X, 0, min(PROBE_ROWS, n_rows(X)))
        leaves = [p.detach().requires_grad_() for p in self._fitted.values()]
        with torch.no_grad():
            self.call(leaves, probe)  # the first call copies its rows, which must not be counted
        with torch.enable_grad():
            used = saved_bytes(lambda: self.call(leaves, probe), [*leaves, *_parts(probe)])
        room = BATCH_BYTES.get(self.device.type, BATCH_BYTES["cpu"])
        return int(max(room * n_rows(probe) // max(used, 1), PROBE_ROWS))

    def linearize(self, X: Any, *, keep: bool = True) -> TorchLinearization:
        return TorchLinearization(self, self.prepare(X), self._memory_limit if keep else 0)

    def evaluator(self, X: Any) -> TorchEvaluator:
        return TorchEvaluator(self, self.prepare(X))

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        parameters = self.split(self.theta if theta is None else theta.to(self._like()))
        with torch.no_grad():
            rows = self.prepare(X)
            return joined((self.call(parameters, b) for b in self.batches(rows)), n_rows(rows))

    def edited(self, theta: Tensor) -> nn.Module:
        clone = copy.deepcopy(self._original)
        named = dict(clone.named_parameters())
        with torch.no_grad():
            for name, piece in zip(self.parameter_names, self.split(theta), strict=True):
                named[name].copy_(piece)
        return clone

    def frame_fingerprint(self) -> str:
        """A hash of everything that an edit leaves alone: layers, names, shapes, fixed tensors."""
        digest = hashlib.sha256()
        for name, layer in self._original.named_modules():
            extra = re.sub("0x[0-9a-f]+", "", layer.extra_repr())  # an address is not a setting
            digest.update(f"{name} {type(layer).__qualname__} {extra}".encode())
        for name, t in self._fitted.items():
            digest.update(f"{name} {tuple(t.shape)} {t.dtype}".encode())
        for name, t in self._fixed.items():
            digest.update(f"{name} {tuple(t.shape)} {t.dtype}".encode())
            digest.update(t.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def _like(self) -> Tensor:
        return torch.empty(0, dtype=self.dtype, device=self.device)


class TorchLinearization:
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
        self._parameters = model.split(self._at)
        self._cut()
        probe = _slice(X, 0, min(PROBE_ROWS, n_rows(X)))
        self.mode = mode or model.jvp_mode(probe)
        self._kept: dict[int, Graph] = {}
        if memory_limit > 0:
            self._retried(lambda: self._keep_what_fits(probe, memory_limit))

    def _cut(self) -> None:
        self._batches = list(self._model.batches(self._X))
        self._sizes = [n_rows(batch) for batch in self._batches]

    def _retried(self, work: Callable[[], T]) -> T:
        """The work, begun again with less where memory runs out: no kept graphs, half a batch."""
        while True:
            try:
                return work()
            except OUT_OF_MEMORY as error:
                if not is_out_of_memory(error):
                    raise
                if not self._kept and not self._model.halve_batches(self._X):
                    raise
                self._kept = {}
            self._cut()
            if self._model.device.type == "cuda":
                torch.cuda.empty_cache()

    def _keep_what_fits(self, probe: Any, memory_limit: int) -> None:
        used = saved_bytes(lambda: self._graph_of(probe, True), [*self._parameters, *_parts(probe)])
        own = sum(p.numel() * p.element_size() for p in self._parameters)  # u -> J^T u of a batch
        for i, (batch, rows) in enumerate(zip(self._batches, self._sizes, strict=True)):
            memory_limit -= used * rows // n_rows(probe) + own
            if memory_limit < 0:
                break
            self._kept[i] = self._graph_of(batch, True)

    def _graph_of(self, batch: Any, with_jvp: bool) -> Graph:
        model = (
            self._model
        )  # a graph that held `self` would keep itself alive until a full collection
        graph = Graph(lambda p: model.call(p, batch), self._parameters, self.mode)
        if with_jvp:
            graph.prepare_jvp()
        return graph

    @cached_property
    def outputs(self) -> Tensor:
        def batches() -> Iterator[Tensor]:
            for i, batch in enumerate(self._batches):
                kept = self._kept.get(i)
                yield kept.outputs if kept else self._model.call(self._parameters, batch)

        with torch.no_grad():
            return self._retried(lambda: joined(batches(), n_rows(self._X)))

    def _graphs(self) -> Iterator[Graph]:
        return (
            self._kept.get(i) or self._graph_of(batch, False)
            for i, batch in enumerate(self._batches)
        )

    def jvp(self, direction: Tensor) -> Tensor:
        pieces = self._model.split(direction.to(self._parameters[0]))
        return self._retried(
            lambda: joined((graph.jvp(pieces) for graph in self._graphs()), n_rows(self._X))
        )

    def vjp(self, weights: Tensor) -> Tensor:
        weights = weights.to(self._parameters[0])

        def work() -> Tensor:
            parts = weights.split(self._sizes)
            return self._sum(g.vjp(u) for g, u in zip(self._graphs(), parts, strict=True))

        return self._retried(work)

    def sandwich(self, direction: Tensor, middle: Middle) -> Tensor:
        pieces = self._model.split(direction.to(self._parameters[0]))

        def batches() -> Iterator[list[Tensor]]:
            end = 0
            for graph, size in zip(self._graphs(), self._sizes, strict=True):
                end += size
                yield graph.vjp(middle(graph.jvp(pieces), slice(end - size, end)))

        return self._retried(lambda: self._sum(batches()))

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        weights = weights.to(self._parameters[0])
        pieces = self._model.split(direction.to(self._parameters[0]))

        def work() -> Tensor:
            parts = zip(self._graphs(), weights.split(self._sizes), strict=True)
            return self._sum(graph.second_order(u, pieces) for graph, u in parts)

        return self._retried(work)

    def rows(self, index: Tensor) -> Tensor:
        batch = take_rows(self._X, index)

        def single(parameters: Sequence[Tensor], row: Any) -> Tensor:
            return torch.atleast_1d(self._model.call(parameters, _map(lambda t: t[None], row))[0])

        parameters = tuple(self._parameters)
        try:
            jacobian = vmap(jacrev(single), (None, 0))(parameters, batch)
        except (RuntimeError, NotImplementedError, ValueError):  # an operator without vmap
            return self._rows_one_by_one(batch)
        return torch.cat([part.flatten(2) for part in jacobian], -1)

    def _rows_one_by_one(self, batch: Any) -> Tensor:
        graph = Graph(lambda p: self._model.call(p, batch), self._parameters, "differences")
        n, classes = len(graph.outputs), graph.outputs[0].numel()
        rows = []
        for i in range(n * classes):
            unit = torch.zeros(n * classes, dtype=graph.outputs.dtype, device=graph.outputs.device)
            unit[i] = 1
            rows.append(flatten(graph.vjp(unit.view_as(graph.outputs))))
        return torch.stack(rows).view(n, classes, -1)

    def restrict(self, index: Tensor) -> TorchLinearization:
        return TorchLinearization(self._model, take_rows(self._X, index), 0, self.mode, self._at)

    def moved(self, by: Tensor) -> TorchLinearization:
        at = self._at + by.to(self._at)
        return TorchLinearization(self._model, self._X, self._memory_limit, self.mode, at)

    def _sum(self, gradients: Iterator[list[Tensor]]) -> Tensor:
        total = next(gradients)
        for parts in gradients:
            for into, part in zip(total, parts, strict=True):
                into += part
        return flatten(total)


def choose_parameters(module: nn.Module, wanted: str | Sequence[str]) -> list[str]:
    """The names of the floating-point parameters that ``wanted`` stands for, in module order."""
    lazy = [n for n, p in module.named_parameters() if is_lazy(p)]
    if lazy:
        raise InvalidInputError(
            f"The module's parameters must exist, but {lazy[0]!r} is made at the first forward "
            "pass: run the module once on a row of data."
        )
    named = {n: p for n, p in module.named_parameters() if p.is_floating_point()}
    if not named:
        raise InvalidInputError("The module has no floating-point parameters, so nothing to edit.")
    cure = ""
    if wanted == "all":
        chosen = list(named)
    elif wanted == "trainable":
        chosen = [name for name, p in named.items() if p.requires_grad]
        cure = "set requires_grad on some, or pass parameters='all' or a name pattern"
    else:
        listed = isinstance(wanted, Sequence) and not isinstance(wanted, str)
        patterns: list[Any] = list(wanted) if listed else [wanted]
        if not all(isinstance(pattern, str) for pattern in patterns) or not patterns:
            raise InvalidInputError(
                "`parameters` must be 'trainable', 'all', a name, a pattern or several of those; "
                f"got {wanted!r}."
            )
        for pattern in patterns:
            if not any(_matches(name, pattern) for name in named):
                raise InvalidInputError(
                    f"`parameters` pattern {pattern!r} matches no parameter of the module; "
                    f"there are: {', '.join(named)}."
                )
        chosen = [name for name in named if any(_matches(name, p) for p in patterns)]
        cure = f"choose from: {', '.join(named)}"
    if not chosen:
        raise InvalidInputError(f"`parameters`={wanted!r} leaves no parameter to edit: {cure}.")
    kinds = {named[name].dtype for name in chosen}
    if not kinds <= {torch.float32, torch.float64} or len(kinds) != 1:
        raise InvalidInputError(
            "The edited parameters must all be float32 or all float64, got "
            f"{sorted(str(kind) for kind in kinds)}; convert them first, as in `module.float()`."
        )
    return chosen


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern) or name.startswith(pattern + ".")


def canonical_outputs(out: Any, rows: int) -> Tensor:
    """Outputs as ``(N,)`` or ``(N, C)``, from a tensor, a tuple or something with ``logits``."""
    out = out.logits if hasattr(out, "logits") else out[0] if isinstance(out, tuple) else out
    if isinstance(out, Tensor) and rows == 1 and out.ndim < 2 and out.shape != (1,):
        out = out[None]  # a module that squeezes lost the row axis
    if not isinstance(out, Tensor) or out.ndim not in (1, 2):
        found = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise InvalidInputError(
            f"The model must return one row of outputs per data point, (N,) or (N, C); got {found}."
        )
    return out[:, 0] if out.ndim == 2 and out.shape[1] == 1 else out


def flatten(pieces: Any) -> Tensor:
    return torch.cat([piece.detach().reshape(-1) for piece in pieces])


def _map(function: Any, X: Any) -> Any:
    if isinstance(X, Mapping):
        return {name: function(part) for name, part in X.items()}
    return tuple(function(part) for part in X) if isinstance(X, tuple) else function(X)


def _parts(X: Any) -> list[Tensor]:
    return list(X.values()) if isinstance(X, Mapping) else list(X) if isinstance(X, tuple) else [X]


def _row_shapes(X: Any) -> Any:
    return tuple(part.shape[1:] for part in _parts(X) if isinstance(part, Tensor))


def _slice(X: Any, start: int, stop: int) -> Any:
    return _map(lambda part: part[start:stop], X)
