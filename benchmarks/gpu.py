"""CPU and GPU compared: scores, edits, and absolute times.

`python -m benchmarks.gpu` on a machine with CUDA; writes `benchmarks/results/gpu.json`, or the file
named by `--out`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.peers.fairij import scores
from benchmarks.problem import Problem, agreement, make, reference
from fairij import FairIJ
from fairij.models.torch.training import mlp


def on(problem: Problem, device: str) -> Problem:
    return replace(
        problem,
        X=problem.X.to(device),
        y=problem.y.to(device),
        X_validation=problem.X_validation.to(device),
        group_validation=problem.group_validation.to(device),
        weights={name: weight.to(device) for name, weight in problem.weights.items()},
    )


class OnDevice(Problem):
    """A problem whose network is on the device of its rows."""

    def model(self) -> torch.nn.Sequential:
        return super().model().to(self.X.device)


def best_of(work: Callable[[], Any], repeats: int = 5) -> tuple[Any, float]:
    """Return the result and the shortest time. The device is idle at the start and at the end."""
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        result = work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return result, min(times)


def scores_row(problem: Problem, rows: int) -> dict[str, Any]:
    pick = torch.randint(len(problem.X), (rows,), generator=torch.Generator().manual_seed(0))
    large = OnDevice(**vars(on(replace(problem, X=problem.X[pick], y=problem.y[pick]), "cuda")))
    scores(large, tolerance=1e-3)
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    _, seconds = best_of(lambda: scores(large, tolerance=1e-3), 3)
    peak = (torch.cuda.max_memory_allocated() - held) / 1e6
    return {"rows": rows, "seconds": seconds, "peak_mb_beyond_data": peak}


def edit(device: str, constraint: str) -> dict[str, Any]:
    """Time a whole fit on biased synthetic rows; return the chosen edit and the gap."""
    rng = np.random.default_rng(0)
    s = rng.integers(2, size=60_000)
    X = (rng.normal(size=(60_000, 50)) + 0.5 * s[:, None]).astype(np.float32)
    y = (X[:, 0] + 0.5 * X[:, 1] * X[:, 2] + rng.normal(size=60_000) > 0.4).astype(np.float32)
    torch.manual_seed(0)
    module = mlp(50).to(device)
    data, labels = torch.from_numpy(X[:40_000]), torch.from_numpy(y[:40_000])
    state = Path("build/gpu-model.pt")
    if state.exists():
        module.load_state_dict(torch.load(state, map_location=device, weights_only=True))
    else:
        optimiser = torch.optim.Adam(module.parameters(), 1e-3)
        for _ in range(3):
            for batch in torch.randperm(40_000).split(256):
                optimiser.zero_grad()
                z = module(data[batch].to(device))[:, 0]
                loss = torch.nn.functional.binary_cross_entropy_with_logits(z, labels[batch].to(z))
                loss.backward()
                optimiser.step()
        state.parent.mkdir(exist_ok=True)
        torch.save(module.state_dict(), state)
    rest = {"X_val": X[40_000:], "y_val": y[40_000:], "sensitive_features_val": s[40_000:]}

    def fit() -> FairIJ:
        fair = FairIJ(
            module, constraints=constraint, search="grid", selection="lowest_gap", verbose=False
        )
        return fair.fit(X[:40_000], y[:40_000], **rest)

    fair, seconds = best_of(fit, 2)
    chosen = fair.candidates_.iloc[fair.chosen_]
    return {
        "device": device,
        "seconds": seconds,
        "k": int(chosen["k"]),
        "scale": float(chosen["scale"]),
        "gap_before": float(fair.candidates_["gap"][0]),
        "gap_after": float(chosen["gap"]),
        "influence": fair.influence_,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gpu.json")
    out = parser.parse_args().out
    problem = make()
    expected = reference(problem)
    device = OnDevice(**vars(on(problem, "cuda")))
    found, seconds = best_of(lambda: scores(device, tolerance=1e-3))
    result: dict[str, Any] = {
        "machine": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "scores": {"seconds": seconds} | agreement(found.double().cpu().numpy(), expected),
        "growth": [scores_row(problem, n) for n in (20_000, 200_000, 2_000_000, 10_000_000)],
    }
    for constraint in ("demographic_parity", "equalized_odds_balanced"):
        first, second = edit("cpu", constraint), edit("cuda", constraint)
        found = agreement(second.pop("influence"), first.pop("influence"))
        result[f"fit, {constraint}"] = {"agreement": found, "runs": [first, second]}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
