"""Small real results of each kind; one has names and values that try to break a page."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import lightgbm
import numpy as np
import pandas as pd

from biased import fair, fitted, problem
from fairij import FairIJ, Grid
from fairij.errors import FairIJWarning
from tree_cases import table

HOSTILE = (
    "<script>window.hacked=1</script>",
    "</script><script>window.hacked=2</script>",
    "<img src=x onerror=window.hacked=3>",
    "\"'><svg onload=window.hacked=4>",
    "<!--<script>",
    "line\u2028end\u2029]]>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:window.hacked=5",
)


@dataclass(frozen=True)
class Case:
    """A fitted result, and the arguments of `write_report` for it."""

    fitted: FairIJ
    arguments: dict[str, Any]


def _binary() -> Case:
    data = problem()
    result = data.fit(fair(damping=(1e-2, 1e-1)))
    return Case(result, {"X": data.X, "y": data.y} | _test(data))


def _three() -> Case:
    data = problem("three")
    result = data.fit(fair(fitted("three")), sensitive_features_val=data.race_val)
    return Case(result, {"X": data.X, "y": data.y, "sensitive_features": data.race})


def _real() -> Case:
    data = problem("real")
    result = data.fit(fair(fitted("real"), loss="squared_error", constraints="mean_prediction"))
    return Case(result, {"X": data.X, "y": data.y} | _test(data))


def _lightgbm() -> Case:
    data = table(categories=True, missing=True)
    model = lightgbm.LGBMClassifier(n_estimators=20, verbose=-1, random_state=0, n_jobs=1)
    model.fit(data.X, data.y)
    mitigator = FairIJ(
        model, constraints="equal_opportunity", search=Grid(points=5, scales=(1.0, 3.0)),
        selection="lowest_gap", verbose=False,
    )  # fmt: skip
    half = np.arange(len(data.y_new)) < 300
    result = mitigator.fit(
        data.X,
        data.y,
        X_val=data.X_new[half],
        y_val=data.y_new[half],
        sensitive_features_val=data.group_new[half],
    )
    test = {
        "X_test": data.X_new[~half],
        "y_test": data.y_new[~half],
        "sensitive_features_test": data.group_new[~half],
    }
    return Case(result, {"X": data.X, "y": data.y, "sensitive_features": data.group} | test)


def _path() -> Case:
    """Small steps, no dropped rows, and rows that the mitigator itself held out."""
    data = problem()
    result = data.fit(fair(search="path", holdout_fraction=0.4))
    return Case(result, {"X": data.X, "y": data.y})


def _reweight() -> Case:
    data = problem()
    return Case(data.fit(fair(search="reweight")), {"X": pd.DataFrame(data.X), "y": data.y})


def _hostile() -> Case:
    data = problem()
    groups = np.where(data.sex_val == "f", HOSTILE[1], HOSTILE[2])
    result = data.fit(fair(), sensitive_features_val=groups)
    rng = np.random.default_rng(0)
    shown = pd.DataFrame(
        {
            HOSTILE[3]: rng.choice(HOSTILE, len(data.y)),
            HOSTILE[4]: np.where(data.X[:, 0] > 1, HOSTILE[0], HOSTILE[5]),
            HOSTILE[6]: data.X[:, 1],
            "plain": HOSTILE[7],
        }
    )
    test = _test(data) | {"sensitive_features_test": groups[::2]}
    return Case(result, {"X": shown, "y": data.y, "title": HOSTILE[1]} | test)


def _unedited() -> Case:
    """No candidate is better than the unedited model."""
    data = problem()
    result = data.fit(fair(search=Grid(k=(1,), scales=(1e-9,))))
    assert len(result.dropped_) == 0
    return Case(result, {"X": (data.X, data.X)})


def _test(data: Any) -> dict[str, Any]:
    half = slice(None, None, 2)
    return {
        "X_test": data.X_val[half],
        "y_test": data.y_val[half],
        "sensitive_features_test": data.sex_val[half],
    }


MAKERS = {
    "binary": _binary,
    "three": _three,
    "real": _real,
    "lightgbm": _lightgbm,
    "hostile": _hostile,
    "unedited": _unedited,
    "path": _path,
    "reweight": _reweight,
}
CASES = ("binary", "three", "real", "lightgbm", "hostile", "unedited")  # looked at in a browser


@cache
def make_case(name: str) -> Case:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairIJWarning)  # small groups are not the point here
        return MAKERS[name]()
