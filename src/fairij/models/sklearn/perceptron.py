"""scikit-learn's `MLPClassifier` and `MLPRegressor`, as an equal torch module.

scikit-learn adds ``alpha |W|^2 / 2n`` to the mean loss of each batch of n rows; intercepts are not
penalised. With the solver "lbfgs", which sees all rows at once, l2 = alpha / W. With "adam" and
"sgd" it is alpha over the batch's part of W; a batch has 200 rows unless ``batch_size`` is set.
These two usually stop long before a minimum, and the diagnostics say so. Sparse rows become dense.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from fairij.data.hashing import state_fingerprint
from fairij.errors import InvalidInputError
from fairij.models.base import Delegating
from fairij.models.sklearn.estimators import caveats_of, check_columns, usual_loss
from fairij.models.torch.batches import flatten
from fairij.models.torch.module import TorchEditable

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
}
# parameters, and what only further training would use
NOT_FRAME = {"coefs_", "intercepts_", "_optimizer", "_random_state"}


class PerceptronEditable(Delegating):
    """Layer i is ``coefs_[i]`` and ``intercepts_[i]``; its parameters "2i.weight" and "2i.bias"."""

    def __init__(self, estimator: Any, **options: Any) -> None:
        check_is_fitted(estimator)
        _check(estimator)
        self._estimator = estimator
        self._module = as_module(estimator)
        self._torch = TorchEditable(self._module, **options | {"outputs": "logits"})
        super().__init__(self._torch)
        self.classes = getattr(estimator, "classes_", None)
        self.loss_name = usual_loss(self.classes, estimator.n_outputs_)
        self.caveats = caveats_of(estimator)

    def prepare(self, X: Any) -> Any:
        check_columns(self._estimator, X)
        return X

    def l2(self, rows: int, weight_sum: float) -> Tensor:
        e = self._estimator
        wanted = 200 if e.batch_size == "auto" else int(e.batch_size)
        batch = rows if e.solver == "lbfgs" else min(wanted, rows)
        named = dict(self._module.named_parameters())
        on_weights = float(e.alpha) * rows / (batch * weight_sum)
        return flatten(
            torch.full_like(named[name], on_weights * name.endswith("weight"))
            for name in self.parameter_names
        )

    def edited(self, theta: Tensor) -> Any:
        clone = copy.deepcopy(self._estimator)
        layers = [m for m in self._torch.edited(theta).children() if isinstance(m, nn.Linear)]
        clone.coefs_ = [layer.weight.detach().T.contiguous().numpy() for layer in layers]
        clone.intercepts_ = [layer.bias.detach().numpy().copy() for layer in layers]
        return clone

    def frame_fingerprint(self) -> str:
        kept = {k: v for k, v in vars(self._estimator).items() if k not in NOT_FRAME}
        fixed = self._torch.frame_fingerprint()
        return state_fingerprint(type(self._estimator).__name__, fixed, kept)


def as_module(estimator: Any) -> nn.Sequential:
    """The network up to its last activation, as torch layers in the estimator's precision."""
    steps: list[nn.Module] = []
    for coef, intercept in zip(estimator.coefs_, estimator.intercepts_, strict=True):
        weight, bias = torch.tensor(coef.T), torch.tensor(intercept)
        layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta", dtype=weight.dtype)
        layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
        steps += [layer, ACTIVATIONS[estimator.activation]()]
    return nn.Sequential(*steps[:-1])


def _check(estimator: Any) -> None:
    reason, width = "", estimator.n_outputs_
    if estimator.out_activation_ == "exp":
        reason = "its loss is 'poisson', and fairij supports only 'squared_error'"
    elif estimator.out_activation_ != "softmax" and width > 1:
        reason = f"it has {width} targets at once; train one model per target"
    if reason:
        raise InvalidInputError(f"This {type(estimator).__name__} cannot be edited: {reason}.")
