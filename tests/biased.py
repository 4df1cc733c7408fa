"""A small problem with a known bias, and models trained on it to a minimum."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fairij import FairIJ, Grid
from fairij.models.losses import Loss, get_loss

L2 = 1e-2
QUICK = Grid(points=6, scales=(1.0, 5.0))


@dataclass(frozen=True)
class Problem:
    """Rows with two sensitive columns that leak into the features and sway the label."""

    X: np.ndarray
    y: np.ndarray
    sex: np.ndarray
    race: np.ndarray
    X_val: np.ndarray
    y_val: np.ndarray
    sex_val: np.ndarray
    race_val: np.ndarray

    def fit(self, model: FairIJ, **changes: Any) -> FairIJ:
        """Fit on all of it; any argument of `fit` may be given in another form."""
        given = {
            "X": self.X,
            "y": self.y,
            "X_val": self.X_val,
            "y_val": self.y_val,
            "sensitive_features_val": self.sex_val,
        }
        return model.fit(**(given | changes))


@cache
def problem(task: str = "binary", n: int = 240, n_val: int = 480) -> Problem:
    rng = np.random.default_rng(7)
    rows = n + n_val
    sex = rng.choice(["f", "m"], rows, p=[0.4, 0.6])
    race = rng.choice(["black", "other", "white"], rows, p=[0.3, 0.3, 0.4])
    X = rng.normal(size=(rows, 4))
    X[:, 0] += 1.2 * (sex == "m") + 0.6 * (race == "white")
    latent = X @ [1.2, 1.0, -0.7, 0.0] - 0.8 + rng.logistic(size=rows)
    y = {
        "binary": (latent > 0).astype(int),
        "three": np.digitize(latent, [-1.0, 1.5]),
        "real": latent,
    }[task]
    X = X.astype(np.float32)
    head, tail = slice(None, n), slice(n, None)
    return Problem(X[head], y[head], sex[head], race[head], X[tail], y[tail], sex[tail], race[tail])


def mlp(outputs: int = 1, hidden: int = 5) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def train(
    module: nn.Module,
    X: Any,
    y: Any,
    loss: str,
    *,
    weight: np.ndarray | None = None,
    call: Callable[[nn.Module, Any], Tensor] = lambda module, X: module(X),
) -> nn.Module:
    """A copy at the minimum of ``sum w_n l_n / W + L2 |theta|^2 / 2``, by L-BFGS in float64."""
    dtype = next(module.parameters()).dtype
    module = copy.deepcopy(module).double()
    measure: Loss = get_loss(loss)
    target = torch.as_tensor(np.asarray(y), dtype=torch.float64)
    w = torch.ones(len(target)).double() if weight is None else torch.as_tensor(weight).double()
    parameters = list(module.parameters())

    def value_and_gradient(theta: np.ndarray) -> tuple[float, np.ndarray]:
        vector_to_parameters(torch.tensor(theta), parameters)
        z = call(module, X)
        z = z[:, 0] if z.shape[-1] == 1 else z
        value = (w / w.sum() * measure.value(z, target)).sum()
        value = value + L2 / 2 * sum((p**2).sum() for p in parameters)
        slope = torch.autograd.grad(value, parameters)
        return float(value.detach()), parameters_to_vector(slope).numpy()

    start = parameters_to_vector(parameters).detach().numpy()
    options = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-15, "gtol": 1e-7}
    best = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
    vector_to_parameters(torch.tensor(best.x), parameters)
    return module.to(dtype)


@cache
def fitted(task: str = "binary", dtype: torch.dtype = torch.float32) -> nn.Module:
    """An MLP at the minimum; tests that change it must copy it."""
    data = problem(task)
    outputs = 3 if task == "three" else 1
    loss = {
        "binary": "binary_cross_entropy",
        "three": "softmax_cross_entropy",
        "real": "squared_error",
    }[task]
    module = train(mlp(outputs), torch.tensor(data.X).double(), data.y, loss)
    return module.to(dtype)


def fair(module: Any = ..., **settings: Any) -> FairIJ:
    """A `FairIJ` that knows the weight decay of the models here, and takes the lowest gap."""
    defaults = {
        "weight_decay": L2,
        "verbose": False,
        "search": QUICK,
        "selection": "lowest_gap",
    }
    return FairIJ(fitted() if module is ... else module, **(defaults | settings))
