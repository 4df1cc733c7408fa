"""Settings, data and versions: all that is needed to repeat a result."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fairij.mitigator import FairIJ
from fairij.report.wording import plain, shortened

PACKAGES = (
    "fairij",
    "torch",
    "numpy",
    "scipy",
    "pandas",
    "scikit-learn",
    "lightgbm",
    "xgboost",
    "xgboost-cpu",
    "transformers",
    "altair",
)


def settings(fitted: FairIJ) -> list[tuple[str, str]]:
    """The settings in the edit file."""
    return [(plain(name), _shown(value)) for name, value in fitted.edit_.settings.items()]


def data(fitted: FairIJ) -> list[tuple[str, str]]:
    """The rows and the model that the edit belongs to."""
    edit, found = fitted.edit_, fitted.diagnostics_
    rows = [
        ("model", type(fitted.estimator).__name__),
        ("training rows", f"{found['n_train']:,}"),
        ("rows to judge edits on", f"{int(fitted.before_.by_group['count'].sum()):,}"),
        *_positive(fitted),
        ("edited parameters", f"{found['n_parameters']:,}"),
        ("fingerprint of the training rows (SHA-256)", edit.data),
        ("fingerprint of the unedited part of the model", edit.frame),
    ]
    seconds = found.get("seconds", {})
    if seconds:
        parts = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items())
        rows.append(("seconds", f"{sum(seconds.values()):.2f} ({parts})"))
    return rows


def _positive(fitted: FairIJ) -> list[tuple[str, str]]:
    label = fitted.before_.positive_label
    return [] if label is None else [("positive label", shortened(label))]


def versions() -> list[tuple[str, str]]:
    found = [("Python", platform.python_version())]
    for name in PACKAGES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return found


def _shown(value: Any) -> str:
    return f"{value:,g}" if isinstance(value, (int, float)) else shortened(value, 400)
