"""skorch's `NeuralNetClassifier`, `NeuralNetBinaryClassifier` and `NeuralNetRegressor`.

The module inside is edited as any torch module is, and comes back in a copy of the net. The net's
criterion says what the outputs are and what the training loss was. A net whose optimiser adds an L2
penalty has it in the loss: ``weight_decay`` of SGD and Adam is the engine's l2.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from fairij.errors import InvalidInputError
from fairij.models.base import Delegating
from fairij.models.torch.module import TorchEditable

# by criterion: the loss, and what the module returns
LOSSES: dict[str, tuple[str, str]] = {
    "NLLLoss": ("softmax_cross_entropy", "probabilities"),  # skorch takes their logarithm
    "CrossEntropyLoss": ("softmax_cross_entropy", "logits"),
    "BCEWithLogitsLoss": ("binary_cross_entropy", "logits"),
    "BCELoss": ("binary_cross_entropy", "probabilities"),
    "MSELoss": ("squared_error", "logits"),
}
IN_THE_LOSS = ("SGD", "Adam")  # whose weight_decay is a gradient; AdamW's is not
SPLIT = (
    "The net was trained with `train_split`, which keeps rows for validation out of training, and "
    "fairij does not see which ones. If the rows given hold them, they are scored, and may be "
    "dropped, as if the net had been trained on them."
)


class SkorchEditable(Delegating):
    """A fitted net, seen through its module."""

    def __init__(self, net: Any, **options: Any) -> None:
        check_is_fitted(net, "module_")
        self._net = net
        loss_name, outputs = _loss(net)
        if options.get("outputs", "auto") == "auto":
            options["outputs"] = outputs
        super().__init__(TorchEditable(net.module_, **options))
        self.loss_name = loss_name
        self.classes = None if loss_name == "squared_error" else net.classes_
        self.caveats = (SPLIT,) if net.train_split is not None else ()

    def l2(self, rows: int, weight_sum: float) -> Tensor | None:
        groups = self._net.optimizer_.param_groups
        decay = {float(group.get("weight_decay", 0.0)) for group in groups}
        if type(self._net.optimizer_).__name__ not in IN_THE_LOSS or len(decay) > 1 or decay == {0}:
            return None
        return torch.full_like(self.theta, decay.pop())

    def edited(self, theta: Tensor) -> Any:
        """A copy of the net with its optimiser, which goes on with the edited parameters."""
        clone = copy.deepcopy(self._net)
        clone.module_.load_state_dict(self._inner.edited(theta).state_dict())
        return clone


def _loss(net: Any) -> tuple[str, str]:
    criterion = net.criterion_
    name = type(criterion).__name__
    weighted = getattr(criterion, "weight", None) is not None
    weighted = weighted or getattr(criterion, "pos_weight", None) is not None
    smooth = getattr(criterion, "label_smoothing", 0.0)
    if not isinstance(criterion, nn.Module) or name not in LOSSES or weighted or smooth:
        found = f"{name} with class weights or smoothed labels" if name in LOSSES else name
        raise InvalidInputError(
            f"The criterion of a skorch net must be one of {', '.join(LOSSES)}, without weights, "
            f"got {found}: give the net's `module_` and the settings `loss` and `sample_weight`."
        )
    threshold = getattr(net, "threshold", 0.5)
    if threshold != 0.5:
        raise InvalidInputError(
            f"The net must predict class 1 from a probability of 0.5 on, but it does from "
            f"{threshold:g}: set its `threshold` to 0.5, and give `threshold` to FairIJ."
        )
    return LOSSES[name]
