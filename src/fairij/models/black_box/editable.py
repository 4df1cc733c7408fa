"""A black box with its correction, as the engine sees a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.hashing import state_fingerprint
from fairij.errors import InvalidInputError
from fairij.models.base import EditableDefaults
from fairij.models.black_box.correction import Correction
from fairij.models.constant import ConstantLinearization, Jacobian
from fairij.models.recent import Recent

NAME = "correction"


class Box(Protocol):
    """What is asked of `fairij.BlackBox`."""

    @property
    def correction_(self) -> Correction | None: ...

    @property
    def theta_(self) -> NDArray[np.float64]: ...

    @property
    def known_classes(self) -> NDArray[Any] | None: ...

    def log_odds(self, X: Any) -> NDArray[np.float64]: ...

    def with_theta(self, theta: NDArray[np.float64]) -> Any: ...


class BlackBoxEditable(EditableDefaults):
    """A model that is only asked, seen through the parameters of its correction."""

    trained_together = False  # what the model says of its training rows may be memorised
    temperature = 3.0  # a correction moves rows near the cut-off, which a soft score hardly sees

    def __init__(self, box: Box, *, parameters: str | Sequence[str] = "trainable", **_: Any):
        wanted = [parameters] if isinstance(parameters, str) else list(parameters)
        if wanted not in (["trainable"], ["all"], [NAME]):
            raise InvalidInputError(
                f"`parameters` of a black box must be 'trainable', 'all' or {NAME!r}, got "
                f"{parameters!r}: only its correction can be edited."
            )
        self._box, self.parameter_names = box, [NAME]
        self.theta = torch.from_numpy(np.array(box.theta_, dtype=np.float64))
        self.classes = box.known_classes
        if box.correction_ is not None:
            several = box.correction_.n_outputs > 1
            self.loss_name = "softmax_cross_entropy" if several else "binary_cross_entropy"
        self._tables: Recent[tuple[Jacobian | None, Tensor]] = Recent()

    def linearize(self, X: Any, *, keep: bool = True) -> ConstantLinearization:
        jacobian, base = self._read(X)
        if jacobian is None:
            raise InvalidInputError(
                "A black box is edited by a correction on columns, which FairIJ.fit learns from "
                "the training rows; to use it otherwise, call `shaped(X)` first."
            )
        return ConstantLinearization(base + jacobian.times(self.theta), jacobian)

    evaluator = linearize

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        jacobian, base = self._read(X)
        if jacobian is None:
            return base.clone()
        return base + jacobian.times(self.theta if theta is None else theta.to(self.theta))

    def edited(self, theta: Tensor) -> Any:
        if not bool(torch.isfinite(theta).all()):
            raise InvalidInputError("A correction must be finite, got NaN or infinity.")
        return self._box.with_theta(theta.detach().cpu().double().numpy().copy())

    def frame_fingerprint(self) -> str:
        made = self._box.correction_
        return state_fingerprint("BlackBox", {} if made is None else made.described())

    def _read(self, X: Any) -> tuple[Jacobian | None, Tensor]:
        return self._tables.get(X, lambda: self._find(X))

    def _find(self, X: Any) -> tuple[Jacobian | None, Tensor]:
        base, made = torch.from_numpy(self._box.log_odds(X)), self._box.correction_
        if made is None:
            return None, base
        if (base.shape[1] if base.ndim == 2 else 1) != made.n_outputs:
            raise InvalidInputError(
                f"`predict_proba` must give as many classes as the correction was made for, "
                f"{max(made.n_outputs, 2)}; got {base.shape[1] if base.ndim == 2 else 2}."
            )
        return made.jacobian(X, base.numpy()), base
