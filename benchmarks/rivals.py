"""Our baselines and other implementations on the same rows: `python -m benchmarks.rivals`.

The true dependence of the rows is known: ``z ~ N(m_s, 1)`` in group s, and ``y`` is 1 with
probability ``sigmoid(z)``.
"""

from __future__ import annotations

import json
import math
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import integrate, stats
from torch import nn

from benchmarks.environments import ROOT, interpreter
from fairij.baselines import make_baseline
from fairij.baselines.in_processing import Sampler
from fairij.baselines.penalties import GapReg, chi_square
from fairij.datasets.splits import Split

RESULTS = Path(__file__).parent / "results" / "rivals.json"
ROWS, MEANS, SHARE = 20_000, (-1.0, 0.5), 0.4


def draw(seed: int = 0) -> Split:
    random = np.random.default_rng(seed)
    s = (random.random(ROWS) < SHARE).astype(np.int64)
    z = random.normal(np.take(MEANS, s), 1.0)
    y = (random.random(ROWS) < 1 / (1 + np.exp(-z))).astype(np.int64)
    return Split(z[:, None], y, s)


def identity() -> nn.Module:
    """A network whose logit is the only feature."""
    layer = nn.Linear(1, 1)
    nn.init.ones_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def ours(rows: Split) -> dict[str, Any]:
    scores = [torch.sigmoid(torch.from_numpy(rows.X[rows.s == g, 0])) for g in (0, 1)]
    shares = torch.tensor([float((rows.s == g).mean()) for g in (0, 1)])
    labels = Split(np.where(rows.X > 0, 1.0, -1.0), rows.y, rows.s)  # all that AIF360 is given
    return {
        "gapreg": {name: _gap(rows, name) for name in ("demographic_parity", "equal_opportunity")},
        "hgr": math.sqrt(float(chi_square(scores, shares))),
        "hps": _odds(rows),
        "hps_on_labels": _odds(labels),
    }


def _odds(rows: Split) -> dict[str, float]:
    """Return accuracy and gap of HPS in expectation over its draws."""
    hps = make_baseline("hps", constraint="equalized_odds", value=None, seed=0)
    predictor = hps.fit(identity(), rows, rows)
    chosen = predictor.predict_proba(rows.X, rows.s)[:, 1]
    rates = [[chosen[(rows.y == label) & (rows.s == g)].mean() for g in (0, 1)] for label in (0, 1)]
    return {
        "accuracy": float(np.where(rows.y == 1, chosen, 1 - chosen).mean()),
        "equalized_odds": float(sum(abs(a - b) for a, b in rates)),
    }


def _gap(rows: Split, constraint: str) -> float:
    everything = Sampler.of(rows, constraint, 2).draw(None, torch.Generator())
    return float(GapReg(constraint=constraint).penalty(identity(), everything).detach())


def true_dependence() -> float:
    """Return the maximal correlation of z and s, the standardised deviation of P(s | z)."""

    def squared(z: float) -> float:
        first, second = (stats.norm.pdf(z, mean) for mean in MEANS)
        density = (1 - SHARE) * first + SHARE * second
        return float((SHARE * second / density - SHARE) ** 2 * density)

    return math.sqrt(integrate.quad(squared, -12, 12)[0] / (SHARE * (1 - SHARE)))


def run() -> dict[str, Any]:
    rows, python = draw(), interpreter("rivals")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, z=rows.X[:, 0], y=rows.y, s=rows.s)
        done = subprocess.run(
            [str(python), "-W", "ignore", "-m", "benchmarks.peers.rivals", str(path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    theirs = json.loads(done.stdout.splitlines()[-1])
    return {"rows": ROWS, "ours": ours(rows), **theirs, "true_dependence": true_dependence()}


if __name__ == "__main__":
    result = run()
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
