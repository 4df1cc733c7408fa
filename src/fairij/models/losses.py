"""Losses as functions of a model's outputs ``z``: value, slope ``l'`` and curvature ``l''``.

Outputs have shape ``(N,)`` for one output per row and ``(N, C)`` for several. None of the
curvatures here depends on ``y``, so the generalised Gauss-Newton matrix equals the true Fisher.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional as F

from fairij.errors import InvalidInputError


@runtime_checkable
class Loss(Protocol):
    """The loss of each row and its derivatives with respect to that row's outputs."""

    @property
    def name(self) -> str: ...

    @property
    def is_classification(self) -> bool: ...

    def check(self, z: Tensor, y: Tensor) -> None:
        """Raise unless ``y`` lies in the loss's domain and fits the shape of ``z``."""

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        """``l(z_n, y_n)``, shape ``(N,)``."""

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        """``l'(z_n, y_n)``, shaped like ``z``."""

    def curve(self, z: Tensor, v: Tensor) -> Tensor:
        """``l''(z_n) v_n``, shaped like ``z``."""

    def curve_root(self, z: Tensor) -> Tensor:
        """``S_n`` with ``S_n S_n^T = l''(z_n)``, shape ``(N, C, C)``."""

    def scores(self, z: Tensor, temperature: float = 1.0) -> Tensor:
        """What fairness is measured on, softly: probabilities, or the prediction itself."""

    def predict(self, z: Tensor) -> Tensor:
        """Class indices, or the predicted value."""


class BinaryCrossEntropy:
    """``log(1 + exp(z)) - y z`` on one logit, ``y`` in {0, 1}."""

    name = "binary_cross_entropy"
    is_classification = True

    def check(self, z: Tensor, y: Tensor) -> None:
        cure = "; use loss='softmax_cross_entropy' for a model with one output per class"
        _check_shapes(f"{self.name} needs one logit per row", z, y, z.ndim == 1, cure)
        if not bool(((y == 0) | (y == 1)).all()):
            raise InvalidInputError(
                f"{self.name} needs labels 0 and 1, got {_some_values(y)}; "
                "encode the labels, or use another loss."
            )

    # In the margin (2 y - 1) z nothing cancels, however sure the model is.

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        return -F.logsigmoid((2 * y - 1) * z)

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        sign = 1 - 2 * y
        return sign * torch.sigmoid(sign * z)

    def curve(self, z: Tensor, v: Tensor) -> Tensor:
        return torch.sigmoid(z) * torch.sigmoid(-z) * v

    def curve_root(self, z: Tensor) -> Tensor:
        # exp(-|z|/2) / (1 + exp(-|z|)) = sqrt(p (1 - p)) without cancellation for large |z|
        decay = torch.exp(-z.abs() / 2)
        return (decay / (1 + decay * decay))[:, None, None]

    def scores(self, z: Tensor, temperature: float = 1.0) -> Tensor:
        return torch.sigmoid(temperature * z)

    def predict(self, z: Tensor) -> Tensor:
        return (z > 0).long()


class SoftmaxCrossEntropy:
    """``logsumexp(z) - z_y`` on C logits, ``y`` in {0, ..., C - 1}."""

    name = "softmax_cross_entropy"
    is_classification = True

    def check(self, z: Tensor, y: Tensor) -> None:
        cure = "; use loss='binary_cross_entropy' for a model with one logit"
        several = z.ndim == 2 and z.shape[1] > 1
        _check_shapes(f"{self.name} needs at least two outputs per row", z, y, several, cure)
        classes = z.shape[1]
        if not bool(((y >= 0) & (y < classes) & (y == y.round())).all()):
            raise InvalidInputError(
                f"{self.name} needs labels 0 to {classes - 1} for a model with {classes} outputs, "
                f"got {_some_values(y)}; encode the labels."
            )

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(z, y.long(), reduction="none")

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.softmax(z, -1) - F.one_hot(y.long(), z.shape[-1]).to(z)

    def curve(self, z: Tensor, v: Tensor) -> Tensor:
        p = torch.softmax(z, -1)
        return p * (v - (p * v).sum(-1, keepdim=True))

    def curve_root(self, z: Tensor) -> Tensor:
        p = torch.softmax(z, -1)
        root = p.sqrt()
        return torch.diag_embed(root) - p[:, :, None] * root[:, None, :]

    def scores(self, z: Tensor, temperature: float = 1.0) -> Tensor:
        p = torch.softmax(temperature * z, -1)
        return p[..., 1] if z.shape[-1] == 2 else p

    def predict(self, z: Tensor) -> Tensor:
        return z.argmax(-1)


@dataclass(frozen=True)
class BrierScore:
    """``|p - e_y|^2 / 2`` of the probabilities that belong to a log loss; finite for sure models.

    `curve` is that of the squares, without the bend of ``p(z)``. If probabilities are linear in the
    parameters, as those of a forest are in the shares of its leaves, ``J^T l'' J`` is the Hessian.
    With one logit only the second class is counted, which is half of the sum over both.
    """

    name: str
    logistic: Loss  # whose curvature is dp/dz
    is_classification: ClassVar[bool] = True

    def check(self, z: Tensor, y: Tensor) -> None:
        self.logistic.check(z, y)

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        off = self.logistic.slope(z, y)
        return off.square().view(len(z), -1).sum(1) / 2

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return self.logistic.curve(z, self.logistic.slope(z, y))

    def curve(self, z: Tensor, v: Tensor) -> Tensor:
        return self.logistic.curve(z, self.logistic.curve(z, v))

    def curve_root(self, z: Tensor) -> Tensor:
        root = self.logistic.curve_root(z)
        return root @ root.mT

    def scores(self, z: Tensor, temperature: float = 1.0) -> Tensor:
        return self.logistic.scores(z, temperature)

    def predict(self, z: Tensor) -> Tensor:
        return self.logistic.predict(z)


class SquaredError:
    """``(z - y)^2 / 2`` on one output, any real ``y``."""

    name = "squared_error"
    is_classification = False

    def check(self, z: Tensor, y: Tensor) -> None:
        _check_shapes(f"{self.name} needs one output per row", z, y, z.ndim == 1)
        if not bool(torch.isfinite(y).all()):
            raise InvalidInputError(
                f"{self.name} needs finite labels, got {_some_values(y[~torch.isfinite(y)])}; "
                "drop those rows."
            )

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        return (z - y) ** 2 / 2

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return z - y

    def curve(self, z: Tensor, v: Tensor) -> Tensor:
        return v

    def curve_root(self, z: Tensor) -> Tensor:
        return torch.ones_like(z)[:, None, None]

    def scores(self, z: Tensor, temperature: float = 1.0) -> Tensor:
        return z

    def predict(self, z: Tensor) -> Tensor:
        return z


@dataclass(frozen=True)
class TweedieDeviance:
    """Half the deviance of a Tweedie law with mean ``exp(z)`` and variance ``mean^power``.

    ``exp((2 - p) z) / (2 - p) - y exp((1 - p) z) / (1 - p)``, with logarithms at p = 1 (Poisson)
    and p = 2 (gamma). `curve` is the Fisher information ``exp((2 - p) z)``; for the Poisson law it
    is the second derivative.
    """

    name: str
    power: float
    is_classification: ClassVar[bool] = False

    def check(self, z: Tensor, y: Tensor) -> None:
        _check_shapes(f"{self.name} needs one output per row", z, y, z.ndim == 1)
        wrong = ~torch.isfinite(y) | (y < 0) | ((y == 0) & (self.power >= 2))
        if bool(wrong.any()):
            least = "above 0" if self.power >= 2 else "of at least 0"
            raise InvalidInputError(
                f"{self.name} needs labels {least}, got {_some_values(y[wrong])}; drop those rows, "
                "or use loss='squared_error'."
            )

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        p = self.power
        mean = z if p == 2 else torch.exp((2 - p) * z) / (2 - p)
        return mean - y * (z if p == 1 else torch.exp((1 - p) * z) / (1 - p))

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.exp((2 - self.power) * z) - y * torch.exp((1 - self.power) * z)

    def curve(self, z: Tensor, v: Tensor) -> Tensor:
        return torch.exp((2 - self.power) * z) * v

    def curve_root(self, z: Tensor) -> Tensor:
        return torch.exp((1 - self.power / 2) * z)[:, None, None]

    def scores(self, z: Tensor, temperature: float = 1.0) -> Tensor:
        return torch.exp(z)

    def predict(self, z: Tensor) -> Tensor:
        return torch.exp(z)


LossName = Literal[
    "binary_cross_entropy",
    "softmax_cross_entropy",
    "binary_brier_score",
    "softmax_brier_score",
    "squared_error",
    "poisson_deviance",
    "tweedie_deviance",
    "gamma_deviance",
]
LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        BinaryCrossEntropy(),
        SoftmaxCrossEntropy(),
        BrierScore("binary_brier_score", BinaryCrossEntropy()),
        BrierScore("softmax_brier_score", SoftmaxCrossEntropy()),
        SquaredError(),
        TweedieDeviance("poisson_deviance", 1.0),
        TweedieDeviance("tweedie_deviance", 1.5),
        TweedieDeviance("gamma_deviance", 2.0),
    )
}


def get_loss(name: str | Loss) -> Loss:
    """Look a loss up by name; a loss object is returned as it is."""
    if isinstance(name, Loss):
        return name
    if not isinstance(name, str) or name not in LOSSES:
        raise InvalidInputError(
            f"`loss` must be one of {sorted(LOSSES)}, 'auto' or a loss object, got {name!r}."
        )
    return LOSSES[name]


def infer_loss(z: Tensor, y: Tensor) -> Loss:
    """Choose the loss that fits the outputs' shape and the labels."""
    if z.ndim == 2:
        return LOSSES["softmax_cross_entropy"]
    if bool(((y == 0) | (y == 1)).all()):
        return LOSSES["binary_cross_entropy"]
    raise InvalidInputError(
        f"The model has one output and the labels are {_some_values(y)}, so the loss cannot be "
        "guessed: pass loss='squared_error' for regression, or labels with two values."
    )


def _check_shapes(needs: str, z: Tensor, y: Tensor, fits: bool, cure: str = "") -> None:
    """Raise unless the outputs fit the loss, and there is one label for each row of them."""
    if not fits:
        raise InvalidInputError(f"{needs}, got outputs of shape {tuple(z.shape)}{cure}.")
    if y.shape != z.shape[:1]:
        raise InvalidInputError(
            f"{needs.split()[0]} needs one label per row of outputs: expected shape ({len(z)},), "
            f"got {tuple(y.shape)}."
        )


def _some_values(y: Tensor) -> str:
    values = torch.unique(y).tolist()
    return ", ".join(f"{value:g}" for value in values[:6]) + (", ..." if len(values) > 6 else "")
