"""Fits whose results must not change by a bit when the code is rearranged.

``python -m benchmarks.digests write`` records a digest of every result; ``check`` repeats the fits
and compares. The bits depend on the machine and on the versions of the libraries, which the record
names: compare on the machine that wrote it.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

import fairij
from fairij import (
    AccuracyBudget,
    AllPositive,
    ArraySource,
    FairIJ,
    Grid,
    LowestGap,
    Sequential,
    TargetGap,
    Woodbury,
)
from fairij import Path as SmallSteps

RECORD = Path(__file__).parent / "results" / "digests.json"
QUICK = Grid(points=6, scales=(1.0, 5.0))
L2 = 1e-2
CASES: dict[str, Callable[[], FairIJ]] = {}


def case(work: Callable[[], FairIJ]) -> Callable[[], FairIJ]:
    CASES[work.__name__] = work
    return work


@cache
def rows(task: str = "binary", n: int = 600, seed: int = 7) -> dict[str, Any]:
    """Rows whose first feature leaks the group and sways the label; the second half validates."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n, p=[0.4, 0.6])
    race = rng.choice(["black", "other", "white"], n, p=[0.3, 0.3, 0.4])
    X = rng.normal(size=(n, 4))
    X[:, 0] += 1.2 * (sex == "m") + 0.6 * (race == "white")
    latent = X @ [1.2, 1.0, -0.7, 0.0] - 0.8 + rng.logistic(size=n)
    y = {
        "binary": (latent > 0).astype(int),
        "three": np.digitize(latent, [-1.0, 1.5]),
        "real": latent,
    }[task]
    half = n // 2
    given = {"X": X.astype(np.float32), "y": y, "sex": sex, "race": race}
    own = {name: values[:half] for name, values in given.items()}
    return own | {f"{name}_val": values[half:] for name, values in given.items()}


@cache
def network(task: str = "binary") -> nn.Module:
    """A small network after 300 full-batch steps."""
    torch.manual_seed(0)
    data = rows(task)
    outputs = 3 if task == "three" else 1
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs))
    X = torch.from_numpy(data["X"])
    y = torch.as_tensor(data["y"]).to(torch.long if task == "three" else torch.float32)
    measure = {
        "binary": lambda z: nn.functional.binary_cross_entropy_with_logits(z[:, 0], y),
        "three": lambda z: nn.functional.cross_entropy(z, y),
        "real": lambda z: ((z[:, 0] - y) ** 2).mean() / 2,
    }[task]
    steps = torch.optim.Adam(module.parameters(), lr=0.03, weight_decay=L2)
    for _ in range(300):
        steps.zero_grad()
        measure(module(X)).backward()
        steps.step()
    return module


def fitted(model: Any, task: str = "binary", group: str = "sex", **settings: Any) -> FairIJ:
    changes = settings.pop("given", {})
    data = rows(task)
    given = {name: data[name] for name in ("X", "y", "X_val", "y_val")}
    given["sensitive_features_val"] = data[f"{group}_val"]
    defaults = {
        "weight_decay": L2,
        "verbose": False,
        "search": QUICK,
        "selection": "lowest_gap",
    }
    return FairIJ(model, **(defaults | settings)).fit(**(given | changes))


@case
def torch_grid_defaults() -> FairIJ:
    return fitted(network(), search="grid")


@case
def torch_sequential_equal_opportunity() -> FairIJ:
    search = Sequential(step=5)
    return fitted(network(), search=search, constraints="equal_opportunity")


@case
def torch_all_positive_loss_aware_woodbury() -> FairIJ:
    search = AllPositive(scales=(0.5, 1.0))
    return fitted(network(), search=search, drop="loss_aware", solver=Woodbury(rows=100))


@case
def torch_reweight_balanced_odds_dampings() -> FairIJ:
    return fitted(
        network(),
        search="reweight",
        constraints="equalized_odds_balanced",
        damping=(3e-3, 1e-2),
        selection=AccuracyBudget(0.02),
    )


@case
def torch_path_cross_fit_equalized_odds() -> FairIJ:
    return fitted(
        network(), search="path", constraints="equalized_odds_balanced", validation_use="cross_fit"
    )


@case
def torch_hessian_exact_auto_damping() -> FairIJ:
    return fitted(network(), curvature="hessian", solver="exact", damping="auto", temperature=3.0)


@case
def torch_neumann_empirical_fisher() -> FairIJ:
    return fitted(network(), solver="neumann", curvature="empirical_fisher", damping=1.0)


@case
def torch_printed_woodfisher() -> FairIJ:
    return fitted(network(), solver="printed_woodfisher", curvature="empirical_fisher")


@case
def torch_own_constraint_target_gap_weights() -> FairIJ:
    def gap(z: torch.Tensor, y: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        p = torch.sigmoid(z)
        return (p[groups == 0].mean() - p[groups == 1].mean()) ** 2

    weights = {"sample_weight": np.linspace(1.0, 2.0, 300)}
    return fitted(network(), constraints=gap, selection=TargetGap(0.001), given=weights)


@case
def torch_three_classes_several_groups() -> FairIJ:
    return fitted(
        network("three"), "three", "race", constraints="demographic_parity_balanced", search=QUICK
    )


@case
def torch_regression_mean_error() -> FairIJ:
    return fitted(
        network("real"), "real", constraints="mean_error", loss="squared_error", search="reweight"
    )


@case
def torch_files_in_place_of_memory() -> FairIJ:
    return fitted(network(), memory_limit=0, batch_size=64)


@case
def torch_streamed_cross_fit() -> FairIJ:
    data = rows()
    given = {"X": ArraySource(data["X"])}
    return fitted(network(), validation_use="cross_fit", batch_size=64, given=given)


@case
def torch_checkpointed() -> FairIJ:
    with tempfile.TemporaryDirectory() as folder:
        fitted(network(), checkpoint=folder, search="path")
        return fitted(network(), checkpoint=folder, search="path")


@case
def linear_pipeline_split_holdout() -> FairIJ:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = rows()
    model = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced"))
    model.fit(data["X"].astype(float), data["y"])
    given = {name: data[name].astype(float) for name in ("X", "X_val")}
    settings: dict[str, Any] = {"validation_use": "split", "holdout_fraction": 0.2}
    return fitted(model, weight_decay=0.0, given=given, selection=LowestGap(0.01), **settings)


@case
def perceptron() -> FairIJ:
    from sklearn.neural_network import MLPClassifier

    data = rows()
    model = MLPClassifier((6,), max_iter=400, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data["X"].astype(float), data["y"])
    given = {name: data[name].astype(float) for name in ("X", "X_val")}
    return fitted(model, weight_decay=0.0, given=given)


@case
def lightgbm_path_several_groups() -> FairIJ:
    import lightgbm

    data = rows()
    frame = pd.DataFrame(data["X"].astype(float), columns=list("abcd"))
    validation = pd.DataFrame(data["X_val"].astype(float), columns=list("abcd"))
    model = lightgbm.LGBMClassifier(n_estimators=20, num_leaves=6, n_jobs=1, verbose=-1)
    model.fit(frame, data["y"])
    groups = pd.DataFrame({"sex": data["sex_val"], "race": data["race_val"]})
    given = {"X": frame, "X_val": validation, "sensitive_features_val": groups}
    return fitted(model, weight_decay=0.0, search=SmallSteps(steps=8), given=given)


@case
def xgboost_three_classes_reweight() -> FairIJ:
    import xgboost

    data = rows("three")
    model = xgboost.XGBClassifier(n_estimators=10, max_depth=3, n_jobs=1, random_state=0)
    model.fit(data["X"], data["y"])
    return fitted(model, "three", weight_decay=0.0, search="reweight")


@case
def hist_gradient_boosting_grid() -> FairIJ:
    from sklearn.ensemble import HistGradientBoostingClassifier

    data = rows()
    model = HistGradientBoostingClassifier(max_iter=15, max_leaf_nodes=6, random_state=0)
    model.fit(data["X"], data["y"])
    return fitted(model, weight_decay=0.0, constraints="equalized_odds")


def comments(n: int, seed: int) -> tuple[dict[str, torch.Tensor], Any, Any]:
    """Token rows, labels and who mentions word 5, which are called toxic more often."""
    rng = np.random.default_rng(seed)
    s = rng.integers(0, 2, n)
    y = (rng.random(n) < np.where(s == 1, 0.65, 0.3)).astype(np.int64)
    ids = rng.integers(20, 60, (n, 10))
    ids[:, 0] = 1
    ids[y == 1, 3] = rng.integers(10, 20, int(y.sum()))
    ids[s == 1, 6] = 5
    tokens = torch.from_numpy(ids)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, y, s


@case
def trigger_tokens() -> FairIJ:
    from fairij.language import TriggerTokens
    from fairij.models.text.library import load_transformers

    transformers = load_transformers()
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
    )
    model = TriggerTokens(transformers.BertModel(config).eval(), 3)
    X, y, _ = comments(150, 0)
    X_val, y_val, s_val = comments(150, 1)
    steps = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02)
    target = torch.as_tensor(y).float()
    for _ in range(15):
        steps.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(**X).view(-1), target).backward()
        steps.step()
    given = {"X": X, "y": y, "X_val": X_val, "y_val": y_val, "sensitive_features_val": s_val}
    return FairIJ(model, verbose=False, search=QUICK, selection="lowest_gap").fit(**given)


WORKER = """
import json, sys, warnings
warnings.simplefilter("ignore")
import torch
from fairij import Shard
torch.set_num_threads(1)
from fairij.scale.sharding import start
from benchmarks.digests import digest, fitted, network, rows
rank = start()
data = rows()
y = data["y"][:150] if rank == 0 else data["y"][150:]
fair = fitted(network(), search="reweight", given={"X": Shard.of(data["X"]), "y": y})
if rank == 0:
    open(sys.argv[1], "w").write(json.dumps(digest(fair)))
"""


def two_processes() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        script, out = Path(folder) / "worker.py", Path(folder) / "out.json"
        script.write_text(WORKER)
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
        done = subprocess.run(
            [*launch, "--master-port=0", "--standalone", str(script), str(out)],
            capture_output=True,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())},
        )
        if not out.exists():
            raise SystemExit(done.stderr[-3000:])
        found: dict[str, str] = json.loads(out.read_text())
        return found


def digest(fair: FairIJ) -> dict[str, str]:
    """A short hash of each result, so that a difference says where it is."""
    return {name: _hash(value) for name, value in _results(fair)}


def _results(fair: FairIJ) -> Iterator[tuple[str, Any]]:
    for name in ("influence_", "direction_", "dropped_", "loss_influence_", "moves_"):
        yield name, getattr(fair, name)
    table = fair.candidates_
    yield "candidates_ columns", list(table.columns)
    yield "candidates_", table.to_numpy(dtype=np.float64)
    yield "chosen_", fair.chosen_
    yield "delta", fair.edit_.delta
    yield "frame", fair.edit_.frame
    yield "data", fair.edit_.data
    yield "settings", {k: v for k, v in fair.edit_.settings.items() if k != "version"}
    for name in ("before_", "after_", "holdout_before_", "holdout_after_"):
        audit = getattr(fair, name)
        if audit is not None:
            yield f"{name} metrics", audit.metrics.to_numpy(dtype=np.float64)
            yield f"{name} by group", audit.by_group.to_numpy(dtype=np.float64)
            yield f"{name} intervals", audit.group_intervals.to_numpy(dtype=np.float64)
    honest = fair.honest_gap_
    yield "honest_gap_", None if honest is None else repr(honest)
    kept = {k: v for k, v in fair.diagnostics_.items() if k not in ("seconds", "caveats")}
    yield "diagnostics_", kept


def _hash(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        text = f"{value.dtype.kind}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    else:
        text = repr(value).encode()
    return hashlib.sha256(text).hexdigest()[:16]


def machine() -> dict[str, str]:
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    return {
        "cpu": cpu[0].split(":")[1].strip() if cpu else "unknown",
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    asked = sys.argv[2:]
    found = {}
    for name, work in CASES.items():
        if not asked or name in asked:
            found[name] = digest(work())
            print(name, _hash(sorted(found[name].items())), flush=True)
    if not asked or "two_processes" in asked:
        found["two_processes"] = two_processes()
        print("two_processes", _hash(sorted(found["two_processes"].items())), flush=True)
    if sys.argv[1] == "write":
        record = {"machine": machine(), "fairij": fairij.__version__, "digests": found}
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        return
    kept = json.loads(RECORD.read_text())
    if kept["machine"] != machine():
        print(f"The record is of another machine: {kept['machine']}; this is {machine()}.")
    wrong = [
        f"{name}: {part}"
        for name, parts in found.items()
        for part, value in kept["digests"][name].items()
        if parts.get(part) != value
    ]
    print("\n".join(wrong) if wrong else f"All {len(found)} fits are equal to the bit.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
