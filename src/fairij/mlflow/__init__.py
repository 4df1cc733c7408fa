"""Keep a result in MLflow: the edited model in its own flavour, the edit, its figures, its card."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from fairij.data.paths import path_of
from fairij.errors import InvalidInputError
from fairij.fairness import Audit
from fairij.mitigator import FairIJ
from fairij.report import comparisons
from fairij.report.card import card_of, library_of

__all__ = ["log"]

FLAVOURS = ("sklearn", "lightgbm", "xgboost", "catboost", "pytorch", "transformers")
NOT_IN_NAMES = re.compile(r"[^\w\-. /:]")
LONGEST = 500  # characters of a parameter; some stores take no more


def log(
    fitted: FairIJ,
    *,
    name: str = "model",
    X_test: Any = None,
    y_test: Any = None,
    sensitive_features_test: Any = None,
    dataset: str = "not named",
    page: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Any:
    """Log a fitted `FairIJ` to the active MLflow run, or to a new one that is ended afterwards.

    What is logged: the edited model in the flavour of its library, the settings as parameters, the
    figures before and after as metrics, and as files ``edit.safetensors`` (to undo the edit),
    ``candidates.csv``, ``README.md`` (the model card) and the page. No training row is logged.

    Parameters
    ----------
    fitted : FairIJ
        The result.
    name : str, default="model"
        The name of the model in the run.
    X_test, y_test, sensitive_features_test : table and array-likes, optional
        Rows that the edit never used; their figures are logged as ``test/...``.
    dataset : str, default="not named"
        The name of the data, for the model card.
    page : path-like, optional
        A page that `fairij.report.write_report` wrote.
    **options
        Passed on to ``log_model`` of the flavour, such as ``registered_model_name``.

    Returns
    -------
    ModelInfo
        What MLflow says of the model, such as its ``model_uri``.

    Examples
    --------
    >>> import fairij.mlflow
    >>> about = fairij.mlflow.log(fair, pip_requirements=["scikit-learn"])
    >>> about.flavors["sklearn"]["serialization_format"]
    'skops'
    """
    check_is_fitted(fitted, "edit_")
    if page is not None and not path_of("page", page, "name a page, as in 'page.html'").is_file():
        raise InvalidInputError(f"`page` must be a file that exists; there is none at {page}.")
    flavour = flavour_of(fitted.estimator_)
    test = comparisons.on_test_rows(fitted, X_test, y_test, sensitive_features_test)
    held = comparisons.on_held_out_rows(fitted)
    validation = comparisons.on_validation_rows(fitted)
    parts = {"test": test, "held_out": held, "validation": validation}
    client = _library("mlflow")
    with _files(fitted, page) as folder, _run(client):
        card = card_of(fitted, test or held or validation, name=name, dataset=dataset)
        (folder / "README.md").write_text(card, encoding="utf-8", errors="replace")
        client.log_params(parameters(fitted))
        for part, shown in parts.items():
            if shown is not None:
                client.log_metrics(metrics(f"{part}/before", shown.before))
                client.log_metrics(metrics(f"{part}/after", shown.after))
        client.log_artifacts(str(folder))
        module = _library(f"mlflow.{flavour}")
        given = {"name": name, **_format(flavour, fitted.estimator_), **options}
        return module.log_model(fitted.estimator_, **given)


def flavour_of(model: Any) -> str:
    """MLflow's name for the library of a model."""
    library = library_of(model)
    if library not in FLAVOURS:
        raise InvalidInputError(
            f"MLflow's flavours are {', '.join(FLAVOURS)}, and a {type(model).__name__} is of "
            f"{library}: save the model as its library does, and log that file and `fair.edit_` as "
            "artifacts."
        )
    return library


def parameters(fitted: FairIJ) -> dict[str, str]:
    """The settings of the edit as text."""
    settings: Mapping[str, Any] = fitted.edit_.settings
    found = {f"fairij.{key}": str(value)[:LONGEST] for key, value in settings.items()}
    return found | {
        "fairij.selection": str(fitted.selection)[:LONGEST],
        "fairij.data": fitted.edit_.data,
        "fairij.dropped_rows": str(len(fitted.dropped_)),
    }


def metrics(prefix: str, audit: Audit) -> dict[str, float]:
    """The figures of an audit by names that MLflow takes, without those that are not defined."""
    values = audit.metrics["value"].dropna()
    return {NOT_IN_NAMES.sub("_", f"{prefix}/{name}"): float(v) for name, v in values.items()}


def _format(flavour: str, model: Any) -> dict[str, Any]:
    """How scikit-learn's models are written: without pickle, where skops knows all their parts."""
    if flavour != "sklearn":
        return {}
    try:
        from skops import io
    except ImportError:
        return {}
    try:
        unknown = io.get_untrusted_types(data=io.dumps(model))
    except Exception:  # skops has no one error for what it cannot write
        return {}
    return {} if unknown else {"serialization_format": "skops"}


@contextmanager
def _files(fitted: FairIJ, page: Any) -> Iterator[Path]:
    """A folder with the files of the result, which is removed afterwards."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        fitted.edit_.save(folder / "edit.safetensors")
        fitted.candidates_.to_csv(folder / "candidates.csv", index=False)
        if page is not None:
            (folder / "report.html").write_bytes(Path(page).read_bytes())
        yield folder


@contextmanager
def _run(client: Any) -> Iterator[None]:
    """The active run, or a new one."""
    if client.active_run() is not None:
        yield
        return
    with client.start_run():
        yield


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"`fairij.mlflow` needs MLflow and the library of the model ({error}): "
            "pip install 'fairij[mlflow]'."
        ) from error
