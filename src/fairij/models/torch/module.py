"""Any `torch.nn.Module` with one logit or C outputs per row."""

from __future__ import annotations

import copy
import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy

from fairij.data.hashing import described, tensors_fingerprint
from fairij.data.row_vectors import joined
from fairij.data.rows import n_rows, parts_of, spread, take_rows, to_tensors
from fairij.errors import InvalidInputError
from fairij.models.base import EditableDefaults
from fairij.models.doubts import Outputs
from fairij.models.torch.autograd import MODES, JvpMode, saved_bytes, working_mode
from fairij.models.torch.batches import flatten, mapped, retried, row_shapes, sliced
from fairij.models.torch.factored import comes_in_factors
from fairij.models.torch.linearization import PROBE_ROWS, TorchEvaluator, TorchLinearization
from fairij.models.torch.outputs import canonical_outputs
from fairij.models.torch.readings import AsGiven, Reading, reading_of

FACTOR_ROWS = 4 * PROBE_ROWS  # on which factors are tried
FEWER = 3  # rows of which half is no batch: a layer may refuse a single row
LISTED = 20  # names of parameters in a message
# batches aim at a graph that stays in a CPU's cache, or fills a GPU
BATCH_BYTES = {"cpu": 4 * 2**20, "cuda": 2**29}


class TorchEditable(EditableDefaults):
    """A module seen through some of its parameters; the module itself is never changed.

    ``parameters`` says which ones: "trainable", "all", or names and patterns. A pattern is
    shell-style (``"head.*"``); the name of a submodule stands for everything in it. A batch has
    ``batch_size`` rows. ``memory_limit`` bytes of autograd graph are kept between products. With 0,
    per-row vectors are stored in temporary files (on a CPU), so that memory does not grow.
    ``outputs`` says what the module returns: "logits", "probabilities", or "auto" to find out.

    Examples
    --------
    >>> from fairij.models import TorchEditable
    >>> TorchEditable(net, parameters="all").theta.shape
    torch.Size([26])
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        parameters: str | Sequence[str] = "trainable",
        batch_size: int | str = "auto",
        memory_limit: int = 2**28,
        outputs: Outputs = "auto",
    ) -> None:
        # a copy of the module that shares every tensor: only the copy is set to eval mode
        tensors = [*module.parameters(), *module.buffers()]
        self._original = module
        self._module = copy.deepcopy(module, {id(t): t for t in tensors}).eval()
        self.parameter_names = choose_parameters(module, parameters)
        named = dict(module.named_parameters())
        self._fitted = {name: named[name].detach() for name in self.parameter_names}
        # buffers are copied, because a forward pass may write to them
        self._fixed = {n: p.detach() for n, p in named.items() if n not in self._fitted} | {
            n: b.detach().clone() for n, b in module.named_buffers()
        }
        first = next(iter(self._fitted.values()))
        self.dtype, self.device = first.dtype, first.device
        self._batch_size, self.memory_limit = batch_size, memory_limit
        self._auto_rows: dict[Any, int] = {}
        self._modes: dict[Any, JvpMode] = {}
        self.modes = MODES  # what to try, and how closely products must agree
        self._in_factors: dict[Any, bool] = {}
        self._writes_input: bool | None = None  # unknown before the first call
        self._outputs: Outputs = outputs
        self._reading: Reading = AsGiven()  # until rows are known
        self._looked_at = 0  # rows

    @property
    def theta(self) -> Tensor:
        return flatten(self._fitted.values())

    def split(self, theta: Tensor) -> list[Tensor]:
        """The flat vector as parameter-shaped pieces."""
        shapes = [p.shape for p in self._fitted.values()]
        pieces = theta.split([shape.numel() for shape in shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    @property
    def outputs_are(self) -> str:
        if isinstance(self._reading, AsGiven):
            return "unknown" if self._outputs == "auto" else "logits"
        return "probabilities"

    def call(self, parameters: Sequence[Tensor], batch: Any) -> Tensor:
        """``z`` of one batch at these parameters, shape ``(N,)`` or ``(N, C)``."""
        return self._reading.of(lambda: self._outputs_of(parameters, batch))

    def _outputs_of(self, parameters: Sequence[Tensor], batch: Any) -> Tensor:
        if self._writes_input is None:
            probe = mapped(torch.clone, batch)
            versions = [part._version for part in parts_of(probe).values()]
            out = self._run(parameters, probe)
            now = [part._version for part in parts_of(probe).values()]
            self._writes_input = versions != now
        else:  # a module that works in place must not change the user's rows
            out = self._run(parameters, mapped(torch.clone, batch) if self._writes_input else batch)
        return canonical_outputs(out, n_rows(batch))

    def _run(self, parameters: Sequence[Tensor], batch: Any) -> Any:
        state = dict(zip(self.parameter_names, parameters, strict=True)) | self._fixed
        if isinstance(batch, Mapping):
            return functional_call(self._module, state, (), dict(batch))
        return functional_call(self._module, state, batch if isinstance(batch, tuple) else (batch,))

    def prepare(self, X: Any) -> Any:
        """``X`` as tensors in the module's precision, on its device."""
        X = to_tensors(X, dtype=self.dtype, device=self.device)
        if isinstance(X, Tensor) and not X.is_floating_point():
            embeddings = (nn.Embedding, nn.EmbeddingBag)  # they take integers
            if not any(isinstance(part, embeddings) for part in self._module.modules()):
                X = X.to(self.dtype)
        return X

    def ready(self, X: Any) -> Any:
        """Prepared rows of which it is known what the outputs are."""
        rows = self.prepare(X)
        self.look_at(rows)
        return rows

    def look_at(self, X: Any) -> None:
        """Learn from some prepared rows what the outputs are; again if there are more rows."""
        most = self._batch_size if isinstance(self._batch_size, int) else PROBE_ROWS
        rows = min(most, PROBE_ROWS, n_rows(X))
        if rows <= self._looked_at:
            return
        self._looked_at, self._reading, parameters = rows, AsGiven(), self.split(self.theta)

        def look() -> Reading:
            some = spread(n_rows(X), rows)
            batch = self.batch_of(X, some)
            half = self.batch_of(X, some[: rows // 2]) if rows > FEWER else batch
            return reading_of(
                lambda: self.call(parameters, batch),
                self._outputs,
                lambda: self.call(parameters, half),
            )

        def at_fewer() -> bool:
            nonlocal rows
            rows //= 2
            return rows > 0

        with torch.no_grad():
            self._reading = retried(look, at_fewer)

    def batch_of(self, X: Any, rows: Tensor) -> Any:
        """Some of the prepared rows as one batch."""
        return take_rows(X, rows)

    def batches(self, X: Any) -> Iterator[Any]:
        """Prepared rows in consecutive batches, as views where possible."""
        size, rows = self.batch_rows(X), n_rows(X)
        for start in range(0, rows, size):
            yield sliced(X, start, min(start + size, rows))

    def batch_rows(self, X: Any) -> int:
        """Rows per batch: as given, or so many that a graph takes about `BATCH_BYTES`."""
        if isinstance(self._batch_size, int):
            return self._batch_size
        shape = row_shapes(X)
        if shape not in self._auto_rows:
            self._auto_rows[shape] = self._probe_rows(X)
        return self._auto_rows[shape]

    def halve_batches(self, X: Any) -> bool:
        return self.halve_rows(self.prepare(X))

    def halve_rows(self, X: Any) -> bool:
        """`halve_batches` for prepared rows."""
        rows = min(self.batch_rows(X), n_rows(X))
        if rows <= 1:
            return False
        if isinstance(self._batch_size, int):
            self._batch_size = rows // 2
        else:
            self._auto_rows[row_shapes(X)] = rows // 2
        return True

    def jvp_mode(self, X: Any) -> JvpMode:
        """How to differentiate on these rows, tried on some from all over the table.

        Graphs are tried once per shape of rows. Factors are tried on every table, because a module
        may treat later rows in another way.
        """
        shape, parameters = row_shapes(X), self.split(self.theta)
        some = spread(n_rows(X), FACTOR_ROWS)
        size = min(max(self.batch_rows(X), 1), FACTOR_ROWS)
        pieces = [self.batch_of(X, rows) for rows in some.split(size)]
        if shape not in self._modes:
            probe = self.batch_of(X, some[:PROBE_ROWS])
            self._modes[shape] = working_mode(lambda p: self.call(p, probe), parameters, self.modes)
            self._in_factors[shape] = True
        self._in_factors[shape] = self._in_factors[shape] and all(
            comes_in_factors(lambda p, batch=piece: self.call(p, batch), parameters)  # type: ignore[misc]
            for piece in pieces
        )
        return "factored" if self._in_factors[shape] else self._modes[shape]

    def _probe_rows(self, X: Any) -> int:
        probe = sliced(X, 0, min(PROBE_ROWS, n_rows(X)))
        leaves = [p.detach().requires_grad_() for p in self._fitted.values()]
        with torch.no_grad():
            self.call(leaves, probe)  # the first call copies its rows: do not count the copies
        with torch.enable_grad():
            shared = [*leaves, *parts_of(probe).values()]
            used = saved_bytes(lambda: self.call(leaves, probe), shared)
        room = BATCH_BYTES.get(self.device.type, BATCH_BYTES["cpu"])
        return int(max(room * n_rows(probe) // max(used, 1), PROBE_ROWS))

    def linearize(self, X: Any, *, keep: bool = True) -> TorchLinearization:
        return TorchLinearization(self, self.ready(X), self.memory_limit if keep else 0)

    def evaluator(self, X: Any) -> TorchEvaluator:
        return TorchEvaluator(self, self.ready(X))

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        parameters = self.split(self.theta if theta is None else theta.to(self.device, self.dtype))
        rows = self.ready(X)

        def work() -> Tensor:
            return joined((self.call(parameters, b) for b in self.batches(rows)), n_rows(rows))

        with torch.no_grad():
            return retried(work, lambda: self.halve_rows(rows))

    def edited(self, theta: Tensor) -> nn.Module:
        clone = copy.deepcopy(self._original)
        named = dict(clone.named_parameters())
        with torch.no_grad():
            for name, piece in zip(self.parameter_names, self.split(theta), strict=True):
                named[name].copy_(piece)
        return clone

    def frame_fingerprint(self) -> str:
        """A hash of layers, names, shapes and fixed tensors."""
        about = ""
        for name, layer in self._original.named_modules():
            extra = re.sub("0x[0-9a-f]+", "", layer.extra_repr())  # an address is not a setting
            about += f"{name} {type(layer).__qualname__} {extra}"
        about += "".join(described(name, t) for name, t in self._fitted.items())
        return tensors_fingerprint(self._fixed.items(), about)


def choose_parameters(module: nn.Module, wanted: str | Sequence[str]) -> list[str]:
    """The names of the floating-point parameters that ``wanted`` means, in module order."""
    lazy = [n for n, p in module.named_parameters() if is_lazy(p)]
    if lazy:
        raise InvalidInputError(
            f"The module's parameters must exist, but {lazy[0]!r} is created at the first forward "
            "pass: run the module once on a row of data."
        )
    named = {n: p for n, p in module.named_parameters() if p.is_floating_point()}
    if not named:
        raise InvalidInputError("The module has no floating-point parameters, so nothing to edit.")
    if wanted == "all":
        chosen = list(named)
    elif wanted == "trainable":
        chosen = [name for name, p in named.items() if p.requires_grad]
    else:
        chosen = _matching(list(named), wanted)
    if not chosen:
        cure = "set requires_grad on some, or pass parameters='all' or a name pattern"
        if hasattr(module, "peft_config"):
            cure += "; adapters are loaded for training by PeftModel.from_pretrained(..., "
            cure += "is_trainable=True)"
        raise InvalidInputError(f"`parameters`={wanted!r} leaves no parameter to edit: {cure}.")
    kinds = {named[name].dtype for name in chosen}
    if not kinds <= {torch.float32, torch.float64} or len(kinds) != 1:
        raise InvalidInputError(
            "The edited parameters must all be float32 or all float64, got "
            f"{sorted(str(kind) for kind in kinds)}; convert them first, as in `part.float()`. The "
            "other parameters may have any precision."
        )
    return chosen


def _matching(names: list[str], wanted: Any) -> list[str]:
    """The names that one of the patterns matches; each must match some."""
    patterns = [wanted] if isinstance(wanted, str) or not isinstance(wanted, Sequence) else wanted
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise InvalidInputError(
            "`parameters` must be 'trainable', 'all', a name, a pattern or several of those; "
            f"got {wanted!r}."
        )
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in names):
            inside = any(_matches(name, f"*.{pattern}") for name in names)
            hint = f"did you mean {f'*.{pattern}'!r}? All: " if inside else "there are: "
            raise InvalidInputError(
                f"`parameters` pattern {pattern!r} matches no parameter of the module; {hint}"
                f"{', '.join(names if len(names) <= LISTED else _outline(names))}."
            )
    return [name for name in names if any(_matches(name, pattern) for pattern in patterns)]


def _outline(names: Sequence[str]) -> list[str]:
    """The names down to the second level, as patterns: a language model has hundreds."""
    parts = [name.split(".") for name in names]
    return list(dict.fromkeys(".".join([*p[:2], "*"][: len(p)]) for p in parts))


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern) or name.startswith(pattern + ".")
