"""The outputs of many edits of a torch module on the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from fairij.models.base import EvaluatorDefaults
from fairij.models.torch.batches import retried

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
            return torch.cat(
                [
                    self._one_batch(batch, fitted, pieces, scales.tolist())
                    for batch, fitted in zip(self._batches, self._fitted_products, strict=True)
                ],
                dim=1,
            )

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
        moved: Products = {}
        outputs, known = [], bool(fitted)
        for scale in scales:
            at = [p + scale * d for p, d in zip(self._at, pieces, strict=True)]
            with _SharedLinear(batch, at, self._at, pieces, scale, fitted, moved):
                outputs.append(self._model.call(at, batch))
        if not known:  # keep them for the next direction if they fit
            size = sum(product.numel() * product.element_size() for product in fitted.values())
            if size > self._room:
                fitted.clear()
            else:
                self._room -= size
        return torch.stack(outputs)


class _SharedLinear(TorchFunctionMode):
    """Computes ``linear(X, W + c dW, b + c db)`` as ``linear(X, W, b) + c linear(X, dW, db)``."""

    def __init__(
        self,
        batch: Any,
        at: list[Tensor],
        fitted_parameters: list[Tensor],
        direction: list[Tensor],
        scale: float,
        fitted: Products,
        moved: Products,
    ) -> None:
        super().__init__()
        self._batch, self._scale = batch, scale
        self._place = {id(p): i for i, p in enumerate(at)}
        self._parameters, self._direction = fitted_parameters, direction
        self._fitted, self._moved = fitted, moved

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.linear and not kwargs and len(args) >= 2 and args[0] is self._batch:
            weight = self._place.get(id(args[1]))
            bias = self._place.get(id(args[2])) if len(args) > 2 and args[2] is not None else None
            if weight is not None and (bias is not None or len(args) < 3 or args[2] is None):
                return self._combine(weight, bias)
        return func(*args, **kwargs)

    def _combine(self, weight: int, bias: int | None) -> Tensor:
        place = (weight, bias)
        for cache, source in ((self._fitted, self._parameters), (self._moved, self._direction)):
            if place not in cache:
                shift = None if bias is None else source[bias]
                cache[place] = F.linear(self._batch, source[weight], shift)
        return torch.add(self._fitted[place], self._moved[place], alpha=self._scale)
