"""The outputs of many edits of a torch module on the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from fairij.models.base import EvaluatorDefaults
from fairij.models.torch.batches import bytes_of, retried

if TYPE_CHECKING:
    from fairij.models.torch.module import TorchEditable

Products = dict[tuple[int, int | None], Tensor]  # by the places of weight and bias in theta


class TorchEvaluator(EvaluatorDefaults):
    """Forward passes at many parameters, which share products with the rows.

    If the module starts with linear layers on the rows themselves, their products with the fitted
    weights and with the direction are computed once. Each scale then only adds the two.
    """

    def __init__(self, model: TorchEditable, X: Any) -> None:
        self._model, self._X = model, X
        self._at = model.split(model.theta)
        self._room = model._memory_limit
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
            known[weight, bias] = F.linear(self._batch, parameters[weight], shift)
        return known[weight, bias]
