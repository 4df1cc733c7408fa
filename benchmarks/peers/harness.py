"""The command that every peer script shares: read the problem, warm up, measure, write."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import measure
from benchmarks.problem import Problem, gap, load


@dataclass(frozen=True)
class Method:
    """One way to ask a peer for the scores: `scores(problem, **settings)` gives them, (N,)."""

    scores: Callable[..., Tensor]
    settings: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def main(name: str, methods: dict[str, Method]) -> None:
    """Run `--method` on `--problem`; write `--out` and the scores beside it as `.npy`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--problem", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--method", choices=list(methods), default=next(iter(methods)))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    method, problem = methods[arguments.method], load(arguments.problem)
    work = partial(method.scores, **method.settings)
    work(problem.head(512))  # what is imported or compiled late is set-up, not work
    measured = measure(partial(work, problem))
    np.save(arguments.out.with_suffix(".npy"), measured.value.detach().double().numpy())
    row = {
        "name": f"{name} {arguments.method}",
        "seconds": measured.seconds,
        "peak_mb": measured.peak_mb,
        "settings": method.settings,
        "note": method.note,
    }
    arguments.out.write_text(json.dumps(row, indent=2))


def gap_slopes(problem: Problem) -> Tensor:
    """Differentiate M by the validation outputs, (V,): sum_v slopes_v z_v has the gradient of M.

    For tools that take a test quantity only as a sum over rows.
    """
    with torch.no_grad():
        z = problem.model()(problem.X_validation).squeeze(1)
    z.requires_grad_()
    (slopes,) = torch.autograd.grad(gap(z, problem.group_validation), z)
    return slopes
