"""An edit: what was changed in a model, and by which settings. It can be applied and undone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor

from fairij._version import __version__
from fairij.data.hashing import without_addresses
from fairij.data.memory import TooLargeError
from fairij.data.paths import path_of
from fairij.errors import CorruptEditError, InvalidInputError, WrongModelError
from fairij.fairness.decisions import described
from fairij.method.preparation import Settings
from fairij.method.types import Outcome
from fairij.models import adapt
from fairij.models.base import Editable
from fairij.storage.checksummed import read_sealed, write_sealed

FORMAT = "fairij.edit/1"
EXAMPLE = "name a file, as in 'edit.safetensors'"


@dataclass(frozen=True, eq=False)
class Edit:
    """``theta_fair = before + delta``, the dropped training rows, and the settings.

    Examples
    --------
    >>> path = fair.edit_.save("edit.safetensors")
    >>> edited = Edit.load(path).apply(model)
    >>> original = Edit.load(path).undo(edited)
    >>> bool((original.coef_ == model.coef_).all())
    True
    """

    before: Tensor  # (D,) the fitted parameters
    delta: Tensor  # (D,)
    dropped: NDArray[np.int64]  # rows of the training table, most harmful first
    parameter_names: tuple[str, ...]
    frame: str  # fingerprint of the parts of the model that are not edited
    data: str  # fingerprint of the training rows
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        s = self.settings
        return (
            f"Edit({s.get('constraint')}, k={len(self.dropped)}, scale={s.get('scale')}, "
            f"damping={s.get('damping')}, {len(self.before)} parameters)"
        )

    @property
    def after(self) -> Tensor:
        return self.before + self.delta

    def apply(self, model: Any) -> Any:
        """An edited copy of ``model``, which must be the one the edit was made for."""
        state, done = "as it was before the edit", "is on this model already"
        return self._move(model, self.before, self.after, state, done)

    def undo(self, model: Any) -> Any:
        """A copy of an edited model with the original parameters, to the last bit."""
        state, done = "as the edit left it", "is not on this model"
        return self._move(model, self.after, self.before, state, done)

    def _move(self, model: Any, expected: Tensor, new: Tensor, state: str, done: str) -> Any:
        try:
            editable = adapt(model, parameters=list(self.parameter_names))
        except InvalidInputError as error:
            raise WrongModelError(f"This edit is for another kind of model: {error}") from None
        if len(editable.theta) != len(self.before) or editable.frame_fingerprint() != self.frame:
            raise WrongModelError(
                f"This edit is for another model: it changes {len(self.before)} parameters "
                f"({', '.join(self.parameter_names[:4])}...), and the rest of the model does not "
                "match in shape or in value."
            )
        theta = editable.theta.cpu()
        if torch.equal(theta, expected):
            return editable.edited(new.to(editable.theta))
        if torch.equal(theta, new):
            raise WrongModelError(f"The edit {done}, so there is nothing to do.")
        raise WrongModelError(
            f"This edit needs the model {state}, but its parameters differ by up to "
            f"{float((theta - expected).abs().max()):.3g}. Load the model that the edit was made "
            "for."
        )

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write one safetensors file with a JSON header. It appears whole or not at all."""
        target = path_of("path", path, EXAMPLE)
        if target.exists() and not overwrite:
            raise FileExistsError(f"{target} exists already; pass overwrite=True to replace it.")
        dropped = torch.from_numpy(np.ascontiguousarray(self.dropped))
        vectors = {"before": self.before, "delta": self.delta, "dropped": dropped}
        tensors = {name: vector.contiguous() for name, vector in vectors.items()}
        header = {
            "format": FORMAT,
            "parameter_names": json.dumps(list(self.parameter_names)),
            "frame": self.frame,
            "data": self.data,
            "settings": json.dumps(dict(self.settings)),
        }
        write_sealed(target, tensors, header)
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Edit:
        """Read an edit. All of it is checked before use. Nothing is unpickled."""
        file = path_of("path", path, EXAMPLE)
        if not file.is_file():
            raise FileNotFoundError(f"No edit file at {file}.")
        try:
            header, tensors = read_sealed(file, FORMAT)
            edit = cls(
                before=tensors["before"],
                delta=tensors["delta"],
                dropped=tensors["dropped"].numpy(),
                parameter_names=tuple(json.loads(header["parameter_names"])),
                frame=header["frame"],
                data=header["data"],
                settings=json.loads(header["settings"]),
            )
            problems = edit._problems()
        except TooLargeError:
            raise
        except (KeyError, SafetensorError, ValueError, TypeError, RecursionError) as error:
            problems = [f"it has no {error}" if isinstance(error, KeyError) else str(error)]
        if problems:
            raise CorruptEditError(f"{path} does not hold a valid edit: {'; '.join(problems)}.")
        return edit

    def _problems(self) -> list[str]:
        problems = {
            "`before` and `delta` must be vectors of one length": (
                self.before.ndim != 1 or self.before.shape != self.delta.shape
            ),
            "`before` and `delta` must be of one floating-point type": (
                self.before.dtype != self.delta.dtype
                or self.before.dtype not in (torch.float32, torch.float64)
            ),
            "`dropped` must be whole, non-negative row numbers without repeats": (
                self.dropped.dtype != np.int64
                or self.dropped.ndim != 1
                or bool((self.dropped < 0).any())
                or len(np.unique(self.dropped)) != len(self.dropped)
            ),
            "parameter names must be text": not all(
                isinstance(n, str) for n in self.parameter_names
            ),
            "settings must be a table": not isinstance(self.settings, dict),
        }
        failed = [text for text, found in problems.items() if found]
        if not failed and not bool(torch.isfinite(self.after).all()):
            failed = ["all parameters must be finite"]
        return failed


def edit_of(
    editable: Editable,
    outcome: Outcome,
    settings: Settings,
    found: Mapping[str, Any],
    data: str,
) -> Edit:
    """The edit that a run chose; ``data`` is the fingerprint of the training rows.

    ``found`` are the attributes that a fit leaves.
    """
    theta = editable.theta
    chosen = outcome.candidates.iloc[outcome.chosen]
    first, last = found["decisions_"]
    dropped = found["dropped_"]
    return Edit(
        before=theta.cpu().clone(),
        delta=outcome.delta.to(theta).cpu().clone(),
        dropped=dropped,
        parameter_names=tuple(editable.parameter_names),
        frame=editable.frame_fingerprint(),
        data=data,
        settings={
            "constraint": settings.constraint.name,
            "k": len(dropped),
            "scale": float(chosen["scale"]),
            "damping": float(chosen["damping"]),
            "solver": outcome.diagnostics["solver"],
            "curvature": outcome.diagnostics["curvature"],
            "temperature": settings.temperature,
            "drop": settings.drop,
            "validation": settings.validation_use,
            "search": without_addresses(settings.search),
            "selection": without_addresses(settings.selection),
            "loss": found["loss_"].name,
            "weight_decay": float(settings.weight_decay),
            "random_state": settings.seed,
            "version": __version__,
        }
        | ({} if last.is_plain else described(first, last)),
    )
