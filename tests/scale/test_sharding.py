"""Several processes under `torchrun`, on rows and on the command line; a single process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairij.errors import InvalidInputError
from fairij.scale.collectives import check_agreement
from fairij.scale.run import ScaledRun
from fairij.scale.sharding import Shard, start, whole_column

HERE = Path(__file__).parents[1]
WORKER = """
import json, sys, warnings
from pathlib import Path
sys.path.insert(0, {here!r})
warnings.simplefilter("ignore")
import numpy as np, torch
from fairij import FairIJ, Grid
from fairij.scale.sharding import Shard, start
from biased import L2, fitted, problem

torch.set_num_threads(1)
rank, D = start(), problem()
size = torch.distributed.get_world_size()
out = Path(sys.argv[1])


def model(kind):
    if kind in ("torch", "float32"):
        return fitted(dtype=torch.float32 if kind == "float32" else torch.float64)
    if kind == "linear":
        from sklearn.linear_model import LogisticRegression
        return LogisticRegression(C=0.5).fit(D.X.astype(float), D.y)
    import lightgbm
    kind = lightgbm.LGBMClassifier(n_estimators=5, num_leaves=4, verbose=-1, n_jobs=1)
    return kind.fit(D.X.astype(float), D.y)


def own(values):
    n = len(values)
    return values[n * rank // size : n * (rank + 1) // size]


def run(kind, sharded_validation=False, **settings):
    settings = {{"search": Grid(points=5, scales=(1.0, 3.0))}} | settings
    given = {{"X_val": D.X_val.astype(float), "y_val": D.y_val}}
    given["sensitive_features_val"] = D.sex_val
    if sharded_validation:
        given = {{name: own(values) for name, values in given.items()}}
        given["X_val"] = Shard(given["X_val"])
    rows = Shard.of(D.X.astype(float))
    settings = {{"selection": "lowest_gap"}} | settings
    fair = FairIJ(model(kind), verbose=False, weight_decay=L2, **settings)
    fair.fit(rows, own(D.y), sample_weight=own(np.linspace(1, 2, len(D.y))), **given)
    return {{
        "influence": fair.influence_.tolist(),
        "delta": fair.edit_.delta.double().tolist(),
        "gap": fair.candidates_["gap"].tolist(),
        "dropped": fair.dropped_.tolist(),
        "data": fair.edit_.data,
    }}

{body}
if rank == 0:
    out.write_text(json.dumps(result))
"""


def launch(tmp_path: Path, processes: int, body: str) -> Any:
    script, out = tmp_path / "worker.py", tmp_path / f"out-{processes}.json"
    script.write_text(WORKER.format(here=str(HERE), body=body))
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
    done = subprocess.run(
        [*command, "--master-port=0", "--standalone", str(script), str(out)],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert out.exists(), done.stderr[-3000:]
    return json.loads(out.read_text())


ALL = """
result = {kind: run(kind) for kind in ("torch", "float32", "linear", "trees")}
result["validation"] = run("torch", True, validation_use="cross_fit")
for solver in ("woodbury", "neumann", "printed_woodfisher", "exact"):
    result[solver] = run("torch", solver=solver)
result["fisher"] = run("torch", curvature="empirical_fisher", damping=(0.01, 0.1))
"""


@pytest.mark.slow
def test_one_two_and_four_processes_agree(tmp_path: Path) -> None:
    one, *others = (launch(tmp_path, processes, ALL) for processes in (1, 2, 4))
    for other in others:
        for case, expected in one.items():
            found = other[case]
            assert found["data"] == expected["data"], case
            compared = ["influence", "delta"]
            # a solve magnifies the rounding of its products
            allowed = 1e-5 if case == "float32" else 1e-6
            if case == "trees":  # rows in the same leaves have one score, and rounding orders them
                compared = ["influence"]
            else:
                assert found["dropped"] == expected["dropped"], case
                np.testing.assert_allclose(found["gap"], expected["gap"], rtol=1e-6, err_msg=case)
            for name in compared:
                left, right = np.array(found[name]), np.array(expected[name])
                assert np.abs(left - right).max() <= allowed * np.abs(right).max(), (case, name)


@pytest.mark.slow
@pytest.mark.parametrize("own_validation", [True, False])
def test_the_command_line_under_torchrun(tmp_path: Path, own_validation: bool) -> None:
    import lightgbm
    import pandas as pd

    from biased import problem

    data = problem()
    for part in ("", "_val"):
        table = pd.DataFrame(getattr(data, f"X{part}"), columns=list("abcd"))
        table["y"], table["sex"] = getattr(data, f"y{part}"), getattr(data, f"sex{part}")
        table.to_csv(tmp_path / f"rows{part}.csv", index=False)
    rows = pd.read_csv(tmp_path / "rows.csv")
    model = lightgbm.LGBMClassifier(n_estimators=5, num_leaves=4, verbose=-1, n_jobs=1)
    model.fit(rows[list("abcd")], rows["y"]).booster_.save_model(tmp_path / "model.txt")
    asked = ["influence", "--model", "model.txt", "--train", "rows.csv"]
    asked += ["--label", "y", "--sensitive", "sex"]
    asked += ["--validation", "rows_val.csv"] if own_validation else []
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "fairij"]
    for command, out in ((["-m", "fairij"], "one.csv"), (launch, "two.csv")):
        done = subprocess.run(
            [sys.executable, *command, *asked, "--out", out],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.count("Wrote the scores of 240 rows") == 1
    one, two = (pd.read_csv(tmp_path / name) for name in ("one.csv", "two.csv"))
    largest = one["influence"].abs().max()
    np.testing.assert_allclose(two["influence"], one["influence"], atol=1e-6 * largest)


def test_one_process_needs_nothing() -> None:
    assert start() == 0
    assert ScaledRun().seed(7) == 7
    check_agreement(lambda: pytest.fail("nobody to agree with"))
    assert whole_column(np.zeros((2, 2)), [1, 2]) == [1, 2]
    with pytest.raises(InvalidInputError, match="start them with `torchrun`"):
        Shard(np.zeros((2, 2)))
    with pytest.raises(InvalidInputError, match="start them with `torchrun`"):
        Shard.of(np.zeros((2, 2)))
