"""What it costs to read files, checks included, here and with another version of the source.

    python -m benchmarks.files --before OTHER/src

Files are made once: LightGBM and XGBoost models of 1,000 trees, and a table of a million rows as
Parquet and as Arrow. Each source reads them in processes of its own, in turn, on one thread. The
least processor time counts, as other programs disturb it little.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "files.json"
HERE = Path(__file__).parents[1] / "src"
TREES, ROWS = 1000, 1_000_000
STREAMED = "table.feather, in chunks"
NAMES = ("model.txt", "model.json", "model.ubj", "table.parquet", "table.feather", STREAMED)
ROUNDS, REPEATS = 5, 3


def make(folder: Path) -> None:
    """Write the files."""
    import lightgbm
    import pandas as pd
    import xgboost

    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 20))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + rng.logistic(size=len(X)) > 0).astype(int)
    light = lightgbm.LGBMClassifier(n_estimators=TREES, num_leaves=31, n_jobs=1, verbose=-1)
    light.fit(X, y).booster_.save_model(folder / "model.txt")
    boosted = xgboost.XGBClassifier(n_estimators=TREES, max_depth=5, n_jobs=1).fit(X, y)
    boosted.save_model(folder / "model.json")
    boosted.save_model(folder / "model.ubj")
    columns: dict[str, Any] = {f"x{i}": rng.standard_normal(ROWS) for i in range(8)}
    columns["code"] = rng.integers(0, 9, ROWS)
    columns["word"] = rng.choice(["a", "few", "words", "of", "text", "here"], ROWS)
    frame = pd.DataFrame(columns)
    frame.to_parquet(folder / "table.parquet")
    frame.to_feather(folder / "table.feather")


def read(folder: Path, name: str) -> None:
    """Read one file as the command line does."""
    from fairij.data.arrow_source import ArrowSource
    from fairij.storage.model_files import load_model
    from fairij.storage.tables import read_table

    if name == STREAMED:
        source = ArrowSource(folder / "table.feather", [f"x{i}" for i in range(8)])
        for _ in source.chunks(65_536):
            pass
    elif name.startswith("model"):
        load_model(folder / name)
    else:
        read_table(folder / name)


def seconds(folder: Path, name: str) -> float:
    """The least processor time of a few readings; the first, which imports, does not count."""
    times = []
    for _ in range(REPEATS + 1):
        start = process_time()
        read(folder, name)
        times.append(process_time() - start)
    return min(times[1:])


def of_source(source: Path, folder: Path, name: str) -> float:
    """The same, in a process that imports this source."""
    path = os.pathsep.join([str(source), str(Path(__file__).parents[1])])
    limits = {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.files", "--one", str(folder), name],
        env=os.environ | limits,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", type=Path, help="the folder `src` of the other version")
    parser.add_argument("--record", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(seconds(Path(asked.one[0]), asked.one[1]))
        return
    sources = {"before": asked.before, "now": HERE} if asked.before else {"now": HERE}
    best = {name: dict.fromkeys(sources, np.inf) for name in NAMES}
    with tempfile.TemporaryDirectory(prefix="fairij-files-") as made:
        make(Path(made))
        for _ in range(ROUNDS):
            for name in NAMES:
                for when, source in sources.items():
                    best[name][when] = min(best[name][when], of_source(source, Path(made), name))
    for name, times in best.items():
        told = ", ".join(f"{when} {time:.3f} s" for when, time in times.items())
        print(f"{name}: {told}" + (f", {times['now'] / times['before']:.2f}" * bool(asked.before)))
    if asked.record:
        RESULTS.write_text(json.dumps(best, indent=1) + "\n")


if __name__ == "__main__":
    main()
