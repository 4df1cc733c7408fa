"""Whatever breaks, a run ends with the right result or with a clear error, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from disks import read_only, small_disk

HERE = Path(__file__).parents[1]
WORKER = """
import os, sys, time, warnings
sys.path.insert(0, {here!r})
warnings.simplefilter("ignore")
import numpy as np, torch
import torch.distributed as dist
from fairij import Edit, Grid
from fairij.scale import checkpoints
from fairij.scale.sharding import Shard, start
from fairij.errors import FairIJError
from fairij.scale import streaming as streamed
from fairij.data.sources import ArraySource
from biased import fair, fitted, problem

torch.set_num_threads(1)
checkpoints.EVERY_SECONDS = 0.0
rank, D, out, folder = start(), problem(), sys.argv[1], sys.argv[2]
size = dist.get_world_size() if dist.is_initialized() else 1
recalled = checkpoints.Journal.recalled
fall = int(os.environ.get("FALL", "-1"))

def slowly(self, name, given, make):
    time.sleep(0.02)  # so that a moment to be killed at is found in every phase
    if self._next == fall and rank == 1 and not os.path.exists(folder + "/fell"):
        open(folder + "/fell", "w").close()
        os.kill(os.getpid(), 9)
    return recalled(self, name, given, make)

checkpoints.Journal.recalled = slowly
own = slice(240 * rank // size, 240 * (rank + 1) // size)
rows = D.X
if os.environ.get("STREAMED"):
    rows, streamed.CHUNK_ROWS = ArraySource(D.X), 50
X = Shard(D.X[own]) if size > 1 else rows
model = fair(search=Grid(points=4, scales=(1.0, 3.0)), checkpoint=folder)
try:
    D.fit(model, X=X, y=D.y[own] if size > 1 else D.y)
    if rank == 0:
        model.edit_.save(out, overwrite=True)
        np.save(out + ".npy", model.influence_)
except (FairIJError, OSError) as error:
    print("error:", error)
    sys.exit(3)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "worker.py"
    path.write_text(WORKER.format(here=str(HERE)))
    return path


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )


def same_edit(left: Path, right: Path) -> None:
    """To the last bit, header and all."""
    assert left.read_bytes() == right.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moments", "said"), [(20, {}), (6, {"STREAMED": "1"})], ids=["in memory", "streamed"]
)
def test_killed_at_many_moments(
    script: Path, tmp_path: Path, moments: int, said: dict[str, str]
) -> None:
    out = tmp_path / "whole.safetensors"
    began = time.monotonic()
    done = run(script, out, tmp_path / "whole", **said)
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    passes = len(list((tmp_path / "whole").rglob("0*.safetensors")))
    rng, met = np.random.default_rng(0), set()
    for moment in range(moments):
        folder, again = tmp_path / f"kill-{moment}", tmp_path / f"again-{moment}.safetensors"
        process = subprocess.Popen(
            [sys.executable, str(script), str(again), str(folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | said,
        )
        wanted = int(rng.integers(passes))
        deadline = time.monotonic() + 10 * seconds + 60
        while len(list(folder.rglob("0*.safetensors"))) < wanted and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(float(rng.random() * 0.02))  # also in the midst of a write
        process.send_signal(signal.SIGKILL)
        process.wait()
        met.add(len(list(folder.rglob("0*.safetensors"))))
        done = run(script, again, folder, **said)
        assert done.returncode == 0, done.stdout + done.stderr
        same_edit(again, out)
        np.testing.assert_array_equal(np.load(f"{again}.npy"), np.load(f"{out}.npy"))
    assert len(met) > moments * 2 // 5  # the moments were not all alike


@pytest.mark.slow
@pytest.mark.parametrize("fall", ["2", "9"])
def test_a_worker_killed_under_torchrun(script: Path, tmp_path: Path, fall: str) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "plain").mkdir()
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    plain, out = tmp_path / "plain.safetensors", tmp_path / "out.safetensors"
    assert run(*launch, script, plain, tmp_path / "plain").returncode == 0
    done = run(*launch, "--max-restarts=2", script, out, tmp_path / "c", FALL=fall)
    assert (tmp_path / "c" / "fell").exists()
    assert done.returncode == 0, done.stderr[-2000:]
    same_edit(out, plain)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", 64) as folder:
        yield folder


@pytest.mark.slow
def test_a_full_disk(script: Path, tmp_path: Path, disk: Path) -> None:
    earlier = disk / "earlier.safetensors"
    assert run(script, tmp_path / "e.safetensors", tmp_path / "c").returncode == 0
    shutil.copy(tmp_path / "e.safetensors", earlier)
    before = earlier.read_bytes()
    done = run(script, earlier, disk / "checkpoint")
    assert done.returncode == 3, done.stderr
    assert "cannot be written: No space left on device" in done.stdout
    assert "Traceback" not in done.stderr
    assert earlier.read_bytes() == before
    (disk / "filler").write_bytes(b"0" * (shutil.disk_usage(disk).free // 4096 * 4096))
    done = run(script, earlier, tmp_path / "c")  # the edit itself has no room
    assert done.returncode == 3
    assert "No space left on device" in done.stdout
    assert earlier.read_bytes() == before


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="permissions of another kind")
def test_a_folder_that_may_not_be_written(script: Path, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    earlier = folder / "earlier.safetensors"
    assert run(script, earlier, tmp_path / "c").returncode == 0
    before = earlier.read_bytes()
    with read_only(folder) as said:
        for out, checkpoint in ((tmp_path / "o", folder / "c"), (earlier, tmp_path / "c")):
            done = run(script, out, checkpoint)
            assert done.returncode == 3, done.stderr
            assert said in done.stdout
            assert "Traceback" not in done.stderr
    assert earlier.read_bytes() == before
