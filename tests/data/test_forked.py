"""A fit in a forked process ends, although the threads of its parent do not exist there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from biased import fair, problem
from fairij import Grid
from fairij.data import forked
from fairij.method.selection import SelectionDefaults

SCRIPT = """
import os, sys, warnings
sys.path.insert(0, {tests!r})
warnings.simplefilter("ignore")
import numpy as np, torch
from fairij import FairIJ, Grid, stream_influence
from biased import fitted, problem
D = problem()
def models():
    from lightgbm import LGBMClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from xgboost import XGBClassifier
    yield fitted()
    yield LGBMClassifier(n_estimators=5, n_jobs=2, verbose=-1).fit(D.X, D.y)
    yield XGBClassifier(n_estimators=5, n_jobs=2).fit(D.X, D.y)
    yield HistGradientBoostingClassifier(max_iter=5).fit(D.X, D.y)
    yield LogisticRegression().fit(D.X, D.y)
def fit(model):
    fair = FairIJ(model, verbose=False, search=Grid(points=3, scales=(1.0,)))
    D.fit(fair)
    stream_influence(fair, D.X, D.y)
    fair.predict(D.X)
    return fair.influence_
torch.set_num_threads(2)
torch.randn(3_000_000).exp().sum()  # starts the threads
for model in models():
    expected = fit(model)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(not np.allclose(fit(model), expected, rtol=1e-3, atol=1e-9))
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0, model
    print(type(model).__name__)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="has no fork")
def test_fits_in_forked_processes() -> None:
    script = SCRIPT.format(tests=str(Path(__file__).parents[1]))
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "2")
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | threads,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.split()) == 5, done.stdout


def test_one_thread_in_a_forked_process(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, inside = torch.get_num_threads(), list[int]()
    torch.set_num_threads(2)
    try:
        with forked.one_thread_if_forked():
            assert torch.get_num_threads() == 2  # this process is none
        monkeypatch.setattr(forked, "_started_in", -1)
        model = fair(search=Grid(points=2, scales=(1.0,)))
        model.selection = Listens(inside)
        problem().fit(model)
        assert inside
        assert set(inside) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


class Listens(SelectionDefaults):
    """A rule of choice that notes the number of threads."""

    def __init__(self, inside: list[int]) -> None:
        self.inside = inside

    def choose(self, candidates: object) -> int:
        self.inside.append(torch.get_num_threads())
        return 0
