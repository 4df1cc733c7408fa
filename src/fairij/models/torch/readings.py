"""What a module's outputs are: logits, or probabilities that an activation has made of logits.

The engine needs logits ``z``. If a module ends in a sigmoid or softmax, be it a layer or a function
in its forward pass, that one call is passed over while fairij computes, so that ``z`` is what went
into it, without rounding. The module itself stays as it is. Probabilities that were changed after
the activation (clipped, stacked) are turned back: ``z = log p - log(1 - p)``, or ``log p`` of
several, with the exact derivative by autograd.

The rule: an activation counts if its result is the output. Several outputs that are never negative
and sum to one are probabilities. One output between 0 and 1 in every row may be either, so the user
has to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from fairij.errors import InvalidInputError
from fairij.models.doubts import Outputs

TRIED = 4  # of the last activations of a pass

# by the functions that compute them, with those that layers call
ACTIVATIONS: dict[Any, str] = {
    **dict.fromkeys((torch.sigmoid, Tensor.sigmoid, torch.special.expit, F.sigmoid), "sigmoid"),
    **dict.fromkeys((torch.softmax, Tensor.softmax, F.softmax, torch.special.softmax), "softmax"),
    **dict.fromkeys(
        (torch.log_softmax, Tensor.log_softmax, F.log_softmax, torch.special.log_softmax),
        "log_softmax",
    ),
    F.logsigmoid: "logsigmoid",
}
APPLIED: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "softmax": lambda z: torch.softmax(z, -1),
    "log_softmax": lambda z: torch.log_softmax(z, -1),
    "logsigmoid": F.logsigmoid,
}


class Reading(Protocol):
    """How the outputs of a forward pass become logits."""

    def of(self, run: Callable[[], Tensor]) -> Tensor:
        """The logits of one pass."""


@dataclass(frozen=True)
class AsGiven:
    """The outputs are logits, or the predictions of a regression."""

    def of(self, run: Callable[[], Tensor]) -> Tensor:
        return run()


@dataclass(frozen=True)
class BeforeActivation:
    """The logits are what goes into one activation of the pass, by its number among all."""

    name: str
    place: int
    calls: int

    def of(self, run: Callable[[], Tensor]) -> Tensor:
        with _Activations(skipped=self.place) as found:
            z = run()
        if found.names and len(found.names) == self.calls and found.names[self.place] == self.name:
            return z
        raise InvalidInputError(
            f"The module must end in the same {self.name} for all rows, but for some it takes "
            "another way: return logits, and take the probabilities of those after the module."
        )


@dataclass(frozen=True)
class FromProbabilities:
    """Logits of the probabilities themselves; 0 and 1 are taken for the nearest other numbers."""

    def of(self, run: Callable[[], Tensor]) -> Tensor:
        p = run()
        most = 1 - torch.finfo(p.dtype).eps / 2
        p = p.clamp(torch.finfo(p.dtype).tiny, most)
        return p.log() if p.ndim == 2 else p.log() - torch.log1p(-p)


class _Activations(TorchFunctionMode):
    """Notes the activations of a pass in their order, and passes over the one with a number."""

    def __init__(self, skipped: int | None = None) -> None:
        super().__init__()
        self._skipped, self.names = skipped, list[str]()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = ACTIVATIONS.get(func)
        if name is None:
            return func(*args, **(kwargs or {}))
        self.names.append(name)
        if len(self.names) - 1 == self._skipped:
            return args[0] if args else (kwargs or {})["input"]
        return func(*args, **(kwargs or {}))


def reading_of(
    run: Callable[[], Tensor], asked: Outputs, first_rows: Callable[[], Tensor] | None = None
) -> Reading:
    """How to read the outputs of a pass over some rows; raises if two passes disagree.

    The second pass is over ``first_rows`` alone, if given: so it shows as well whether outputs
    depend on the other rows.
    """
    out = run()  # first as it is, so that its own errors are the module's alone
    with _Activations() as found:
        again = (first_rows or run)()
    if _differ(again, out):
        check_repeats(out, run())
        check_company(again, out)
    if asked == "logits":
        return AsGiven()
    names = found.names
    for place in range(len(names) - 1, max(len(names) - 1 - TRIED, -1), -1):
        reading = BeforeActivation(names[place], place, len(names))
        if _may_be(names[place], out) and _is_last(reading, run, out):
            return _checked(reading, out)
    if (asked == "probabilities" or out.ndim == 2) and are_probabilities(out):
        return FromProbabilities()
    if asked == "probabilities":
        raise InvalidInputError(
            "`outputs`='probabilities' must be outputs between 0 and 1, which sum to 1 if there "
            f"are several; got outputs from {float(out.min()):.4g} to {float(out.max()):.4g}: use "
            "outputs='logits', or leave it out."
        )
    return AsGiven()


def check_repeats(first: Tensor, second: Tensor) -> None:
    """Raise unless two passes over the same rows agree, up to rounding."""
    if _differ(second, first):
        off = (first - second).abs()
        raise InvalidInputError(
            "The module must give the same outputs for the same rows, but two passes over "
            f"{len(first)} rows differ by up to {float(off.max()):.3g}, although it is in "
            "evaluation mode. Something in its forward pass is random: write "
            "F.dropout(x, p, training=self.training) in place of training=True, and draw no "
            "random numbers outside training."
        )


def check_company(alone: Tensor, together: Tensor) -> None:
    """Raise unless the first rows of a pass have the outputs that they have without the others."""
    if _differ(alone, together):
        off = (alone - together[: len(alone)]).abs()
        raise InvalidInputError(
            "The module's output for a row must not depend on the other rows, but outputs of "
            f"{len(alone)} rows move by up to {float(off.max()):.3g} when {len(together)} are "
            "passed, although it is in evaluation mode. Something in its forward pass goes over "
            "the rows: let BatchNorm keep running statistics (track_running_stats=True) and train "
            "again, and take no mean, softmax or norm over the first dimension.",
            parameter="model",
        )


def _differ(again: Tensor, out: Tensor) -> bool:
    """Whether outputs of the first rows, made again, are further off than rounding explains."""
    off = (again - out[: len(again)]).abs()
    size = torch.maximum(out.abs().amax(), out.std(correction=0)) if out.numel() else 0
    return bool((off > torch.finfo(out.dtype).eps ** 0.5 * size).any())


def are_probabilities(out: Tensor) -> bool:
    """Whether all outputs lie between 0 and 1 and, if there are several, sum to one."""
    slack = 1e-6 if out.dtype == torch.float64 else 1e-4
    inside = bool(((out >= 0) & (out <= 1 + slack)).all())
    return inside and (out.ndim == 1 or bool(((out.sum(-1) - 1).abs() <= slack).all()))


def _may_be(name: str, out: Tensor) -> bool:
    """Whether this activation could have made these outputs."""
    if name == "sigmoid":
        return bool(((out >= 0) & (out <= 1)).all())
    if name == "logsigmoid":
        return bool((out <= 0).all())
    if out.ndim != 2:
        return False
    return are_probabilities(out if name == "softmax" else out.exp())


def _is_last(reading: BeforeActivation, run: Callable[[], Tensor], out: Tensor) -> bool:
    """Whether the outputs are the activation of what is left without it."""
    try:
        z = reading.of(run)
    except (InvalidInputError, RuntimeError, TypeError, ValueError):
        return False
    again = APPLIED[reading.name](z) if z.shape == out.shape else z.new_full((), torch.nan)
    return bool(((again - out).abs() <= 8 * torch.finfo(out.dtype).eps * out.abs()).all())


def _checked(reading: BeforeActivation, out: Tensor) -> Reading:
    if out.ndim == 2 and reading.name in ("sigmoid", "logsigmoid"):
        raise InvalidInputError(
            f"The model must predict one class per row, but it ends in a sigmoid for each of its "
            f"{out.shape[1]} outputs, so that classes do not exclude each other: end in a softmax, "
            "or edit a model with one output; outputs='logits' takes the outputs as they are."
        )
    return reading
