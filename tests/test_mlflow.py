"""Results in MLflow: a store of files, and a real server."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import fairij.mlflow
from biased import problem
from fairij import Edit, FairIJ
from fairij.errors import InvalidInputError

mlflow = pytest.importorskip("mlflow")
pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow complains of its own parts


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"file://{tmp_path / 'store'}")
    yield str(tmp_path / "store")
    mlflow.set_tracking_uri(before)


@pytest.fixture(scope="module")
def fitted() -> Any:
    data = problem()
    model = LogisticRegression().fit(data.X, data.y)
    return data.fit(FairIJ(model, selection="lowest_gap", verbose=False))


def test_a_run_holds_model_edit_figures_and_card(
    store: str, fitted: FairIJ, tmp_path: Path
) -> None:
    data = problem()
    page = tmp_path / "page.html"
    page.write_text("<p>page</p>")
    about = fairij.mlflow.log(
        fitted,
        X_test=data.X_val,
        y_test=data.y_val,
        sensitive_features_test=data.sex_val,
        page=page,
        pip_requirements=["scikit-learn"],  # else MLflow starts a process to find them
    )
    model = mlflow.sklearn.load_model(about.model_uri)
    np.testing.assert_array_equal(model.predict(data.X), fitted.estimator_.predict(data.X))
    run = mlflow.get_run(about.run_id)
    assert run.data.params["fairij.constraint"] == "demographic_parity"
    gap = "demographic_parity_difference"
    assert run.data.metrics[f"validation/after/{gap}"] == fitted.after_[gap]
    assert run.data.metrics["test/before/accuracy"] == np.mean(
        fitted.estimator.predict(data.X_val) == data.y_val
    )
    files = mlflow.artifacts.download_artifacts(run_id=about.run_id, dst_path=str(tmp_path / "got"))
    names = {path.name for path in Path(files).iterdir()}
    assert {"edit.safetensors", "candidates.csv", "README.md", "report.html"} <= names
    undone = Edit.load(Path(files) / "edit.safetensors").undo(model)
    np.testing.assert_array_equal(undone.coef_, fitted.estimator.coef_)


def test_an_active_run_is_used_and_stays_active(store: str, fitted: FairIJ) -> None:
    with mlflow.start_run() as run:
        about = fairij.mlflow.log(fitted, pip_requirements=["scikit-learn"])
        assert mlflow.active_run() is not None
    assert about.run_id == run.info.run_id


def test_nothing_is_logged_for_a_page_that_is_not_there(store: str, fitted: FairIJ) -> None:
    with pytest.raises(InvalidInputError, match="there is none at"):
        fairij.mlflow.log(fitted, page="nowhere.html")
    assert not Path(store).exists()


@pytest.mark.slow
def test_a_real_server_takes_it(
    fitted: FairIJ, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is the whole of MLflow, in an environment of its own."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    uv = str(Path(sys.executable).with_name("uv"))
    place = tmp_path / "server"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(place)], check=True)
    python = str(place / "bin" / "python")
    wanted = f"mlflow=={mlflow.__version__}"
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, wanted], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [str(place / "bin" / "mlflow"), "server", "--host", "127.0.0.1", "--port", str(port),
               "--workers", "1", "--backend-store-uri", f"sqlite:///{tmp_path / 'runs.db'}",
               "--artifacts-destination", str(tmp_path / "artifacts")]  # fmt: skip
    before = mlflow.get_tracking_uri()
    server = subprocess.Popen(command, cwd=tmp_path)
    try:
        wait_for(f"{address}/health")
        mlflow.set_tracking_uri(address)
        about = fairij.mlflow.log(fitted, registered_model_name="loans")
        model = mlflow.sklearn.load_model("models:/loans/1")
        np.testing.assert_array_equal(model.coef_, fitted.estimator_.coef_)
        assert "validation/after/accuracy" in mlflow.get_run(about.run_id).data.metrics
    finally:
        mlflow.set_tracking_uri(before)
        server.terminate()
        server.wait(timeout=30)


def wait_for(address: str, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            assert time.monotonic() < end, f"no answer from {address}"
            time.sleep(0.5)
