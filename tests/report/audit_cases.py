"""Audits of each kind, for pages; one has names and values that try to break them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from report_cases import HOSTILE

from fairij import Audit, audit
from fairij.fairness import audit_regression


def rows(n: int = 3000, seed: int = 0) -> tuple[np.random.Generator, Any, Any, pd.DataFrame]:
    """Labels, chances that are lower for women of the north, and attributes."""
    rng = np.random.default_rng(seed)
    sex, town = rng.choice(["f", "m"], n), rng.choice(["north", "south"], n)
    y = (rng.random(n) < 0.4).astype(int)
    is_low = (sex == "f") & (town == "north")
    p = 1 / (1 + np.exp(-(rng.normal(0, 1.2, n) + 2 * y - 1 - 1.2 * is_low)))
    return rng, y, p, pd.DataFrame({"sex": sex, "town": town, "age": rng.integers(18, 80, n)})


def _two() -> Audit:
    _, y, p, frame = rows()
    return audit(y, p, sensitive_features=frame["sex"], attributes=frame)


def _many() -> Audit:
    rng, y, p, _ = rows()
    towns = rng.choice([f"town {i:02d}" for i in range(87)], len(y))
    return audit(y, (p > 0.5).astype(int), sensitive_features=towns)


def _hostile() -> Audit:
    _, y, p, frame = rows()
    groups = np.where(frame["sex"] == "f", HOSTILE[1], HOSTILE[2])
    shown = pd.DataFrame(
        {HOSTILE[0]: groups, HOSTILE[6]: frame["town"].map(lambda t: HOSTILE[3] + t)}
    )
    names = [HOSTILE[4], HOSTILE[5]]
    return audit(y, p, sensitive_features=groups, attributes=shown, class_names=names)


def _three() -> Audit:
    rng, y, _, frame = rows()
    truth = np.array(["a", "b", "c"])[(y + rng.integers(2, size=len(y))) % 3]
    said = np.where(rng.random(len(y)) < 0.7, truth, "a")
    return audit(truth, said, sensitive_features=frame["town"])


def _real() -> Audit:
    _, y, p, frame = rows()
    return audit_regression(30 * y + 20 * p, 40 * p, sensitive_features=frame["sex"])


def _undefined() -> Audit:
    return audit([0, 0, 1, 1, 0], [0, 1, 1, 0, 0], sensitive_features=["a", "a", "b", "b", "a"])


MAKERS = {
    "two": _two,
    "many": _many,
    "hostile": _hostile,
    "three": _three,
    "real": _real,
    "undefined": _undefined,
}


@cache
def made(name: str) -> Audit:
    return MAKERS[name]()
