"""skorch's nets: edited copies predict what the engine says, and can be trained on."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fairij import FairIJ
from fairij.errors import FairIJWarning, InvalidInputError
from fairij.models import adapt
from fairij.models.torch.module import TorchEditable
from tree_cases import check_gap_falls, table

skorch = pytest.importorskip("skorch")
pytestmark = [
    pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning"),
    pytest.mark.filterwarnings("ignore:The search went:fairij.errors.FairIJWarning"),
]


def network(outputs: int, *, last: Any = None) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, outputs)]
    return nn.Sequential(*layers, *([last] if last is not None else []))


def settings(**given: Any) -> dict[str, Any]:
    return {"max_epochs": 15, "lr": 0.2, "verbose": 0, "train_split": None} | given


def fitted(kind: str, **given: Any) -> tuple[Any, Any, Any]:
    """A net of one kind, with its training rows and its new rows."""
    data = table("real" if kind == "regressor" else "three" if kind == "three" else "binary")
    X, X_new = data.X.astype("f4"), data.X_new.astype("f4")
    y: Any = data.y
    if kind == "logits":
        net = skorch.NeuralNetClassifier(
            network(2), criterion=nn.CrossEntropyLoss, **settings(**given)
        )
    elif kind == "binary":
        net, y = skorch.NeuralNetBinaryClassifier(network(1), **settings(**given)), y.astype("f4")
    elif kind == "regressor":
        net = skorch.NeuralNetRegressor(network(1), **settings(**{"lr": 0.01} | given))
        y = y.astype("f4")[:, None]
    else:
        outputs = 3 if kind == "three" else 2
        net = skorch.NeuralNetClassifier(network(outputs, last=nn.Softmax(-1)), **settings(**given))
    return net.fit(X, y), data, X_new


KINDS = ["probabilities", "logits", "binary", "three", "regressor"]


def told(net: Any, X: Any) -> np.ndarray:
    return np.asarray(net.predict(X) if "Regressor" in type(net).__name__ else net.predict_proba(X))


@pytest.mark.parametrize("kind", KINDS)
def test_an_edited_net_predicts_what_the_engine_says(kind: str, tmp_path: Path) -> None:
    net, _, X_new = fitted(kind)
    before, editable = told(net, X_new), adapt(net)
    theta = editable.theta + 0.1 * torch.randn(editable.theta.shape)
    edited, z = editable.edited(theta), editable.outputs(X_new, theta)
    p = z.numpy() if kind == "regressor" else torch.softmax(z, -1).numpy()
    if z.ndim == 1 and kind != "regressor":
        p = torch.sigmoid(z).numpy()
    found = told(edited, X_new)
    found = found[:, 1] if p.ndim == 1 and found.shape[1:] == (2,) else np.squeeze(found)
    assert np.abs(found - p).max() < 1e-5
    assert np.abs(told(edited, X_new) - before).max() > 1e-3
    assert np.array_equal(told(net, X_new), before)
    assert np.array_equal(told(pickle.loads(pickle.dumps(edited)), X_new), told(edited, X_new))
    undone = adapt(edited).edited(editable.theta)
    assert np.array_equal(told(undone, X_new), before)


@pytest.mark.parametrize("kind", ["probabilities", pytest.param("binary", marks=pytest.mark.slow)])
def test_the_gap_falls_as_with_the_module_itself(kind: str) -> None:
    net, data, X_new = fitted(kind)
    groups = {"X_val": X_new, "y_val": data.y_new, "sensitive_features_val": data.group_new}
    X = data.X.astype("f4")
    asked: Any = {"search": "constrained", "selection": "lowest_gap", "verbose": False}
    fair = FairIJ(net, **asked).fit(X, data.y, **groups)
    check_gap_falls(fair)
    assert np.array_equal(fair.predict(X_new), fair.estimator_.predict(X_new))
    module = FairIJ(net.module_, outputs="auto" if kind == "probabilities" else "logits", **asked)
    assert np.allclose(fair.influence_, module.fit(X, data.y, **groups).influence_, atol=1e-9)


def test_an_edited_net_can_be_trained_on() -> None:
    net, data, X_new = fitted("binary")
    editable = adapt(net)
    edited = editable.edited(editable.theta * 1.1)
    start = told(edited, X_new)
    edited.partial_fit(data.X.astype("f4"), data.y.astype("f4"))
    assert np.abs(told(edited, X_new) - start).max() > 1e-4


def test_weight_decay_is_the_penalty_of_the_loss() -> None:
    """At the minimum the gradient of the loss with this penalty vanishes."""
    net, data, _ = fitted(
        "binary",
        max_epochs=300,
        batch_size=-1,
        lr=0.5,
        optimizer__weight_decay=0.05,
        iterator_train__shuffle=False,
    )
    editable = adapt(net)
    l2 = editable.l2(600, 600.0)
    assert l2 is not None
    linear = editable.linearize(data.X.astype("f4"))
    y = torch.as_tensor(data.y).float()
    with_l2 = linear.vjp((torch.sigmoid(linear.outputs) - y) / 600) + l2 * editable.theta
    without = linear.vjp((torch.sigmoid(linear.outputs) - y) / 600)
    assert float(with_l2.norm()) < 0.05 * float(without.norm())


def test_rows_kept_for_validation_are_named() -> None:
    net, data, X_new = fitted("binary", train_split=skorch.dataset.ValidSplit(5))
    groups = {"X_val": X_new, "y_val": data.y_new, "sensitive_features_val": data.group_new}
    with pytest.warns(FairIJWarning, match="train_split"):
        FairIJ(net, search="constrained", verbose=False).fit(data.X.astype("f4"), data.y, **groups)


@pytest.mark.slow
def test_a_process_without_fairij_predicts_the_same(tmp_path: Path) -> None:
    net, _, X_new = fitted("binary")
    editable = adapt(net)
    edited = editable.edited(editable.theta * 0.9)
    edited.save_params(f_params=tmp_path / "fair.safetensors", use_safetensors=True)
    np.save(tmp_path / "X.npy", X_new)
    code = """
import sys, numpy as np, skorch
from torch import nn
module = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1))
net = skorch.NeuralNetBinaryClassifier(module).initialize()
net.load_params(sys.argv[1] + "/fair.safetensors", use_safetensors=True)
np.save(sys.argv[1] + "/p.npy", net.predict_proba(np.load(sys.argv[1] + "/X.npy")))
assert "fairij" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert np.array_equal(np.load(tmp_path / "p.npy"), edited.predict_proba(X_new))


def test_what_cannot_be_edited_is_refused() -> None:
    net, _, _ = fitted("binary", criterion__pos_weight=torch.tensor(2.0))
    with pytest.raises(InvalidInputError, match="class weights"):
        adapt(net)
    net, _, _ = fitted("binary", threshold=0.3)
    with pytest.raises(InvalidInputError, match=r"from 0\.3"):
        adapt(net)
    net, _, _ = fitted("regressor", criterion=nn.L1Loss)
    with pytest.raises(InvalidInputError, match="got L1Loss"):
        adapt(net)


@pytest.mark.slow
def test_a_lightning_module_is_a_torch_module() -> None:
    """Its forward pass is edited; hooks and settings come along."""
    pytest.importorskip("lightning_utilities")
    try:
        import lightning
    except Exception as error:
        pytest.skip(f"lightning cannot be imported here: {error}")

    class Net(lightning.LightningModule):
        def __init__(self, width: int = 6) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layers = nn.Sequential(nn.Linear(5, width), nn.Tanh(), nn.Linear(width, 1))

        def forward(self, X: Any) -> Any:
            return self.layers(X)[:, 0]

    torch.manual_seed(0)
    data, net = table(), Net().double()
    editable = adapt(net, outputs="logits")
    assert isinstance(editable, TorchEditable)
    theta = editable.theta + 0.1
    edited = editable.edited(theta)
    assert isinstance(edited, Net)
    assert edited.hparams == net.hparams
    X = torch.from_numpy(data.X_new)
    assert torch.allclose(edited(X), editable.outputs(X, theta))
