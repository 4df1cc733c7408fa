"""What a module returns, as outputs: one row for each data point."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fairij.errors import InvalidInputError

WRAP = "Put the module into another one whose `forward` returns the logits alone."


def canonical_outputs(out: Any, rows: int) -> Tensor:
    """Outputs as ``(N,)`` or ``(N, C)``, from a tensor, a tuple or an object with ``logits``."""
    out = out.logits if hasattr(out, "logits") else _first(out) if isinstance(out, tuple) else out
    if isinstance(out, Tensor) and rows == 1 and out.ndim < 2 and out.shape != (1,):
        out = out[None]  # the module squeezed the row axis away
    if not isinstance(out, Tensor) or out.ndim not in (1, 2):
        found = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise InvalidInputError(
            "The model must return one row of outputs per data point, (N,) or (N, C); got "
            f"{found}. They may stand alone, first in a tuple, or as `logits` of an object. {WRAP}"
        )
    return out[:, 0] if out.ndim == 2 and out.shape[1] == 1 else out


def _first(out: tuple[Any, ...]) -> Any:
    """The first of a tuple; refused if another one looks more like the outputs."""
    first = out[0] if out else None
    if not isinstance(first, Tensor) or first.ndim != 2 or first.shape[1] == 1:
        return first
    others = [one for one in out[1:] if isinstance(one, Tensor) and one.ndim in (1, 2)]
    if any(one.shape in ((len(first),), (len(first), 1)) for one in others):
        shapes = ", ".join(str(tuple(one.shape)) for one in (first, *others))
        raise InvalidInputError(
            "The model must return its outputs alone or first in a tuple, but it returns several "
            f"tensors, of shapes {shapes}. The first has several columns, as inner values of a "
            f"network have, and a later one has one, as a logit has. {WRAP}"
        )
    return first
