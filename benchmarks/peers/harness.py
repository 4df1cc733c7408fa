"""The command that every peer script shares: read the problem, warm up, measure, write."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmarks.measure import measure
from benchmarks.problem import Problem, load


@dataclass(frozen=True)
class Method:
    """One way to ask a peer for the scores: `scores(problem, **settings)` gives them, (N,)."""

    scores: Callable[..., Tensor]
    settings: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def main(name: str, methods: dict[str, Method]) -> None:
    """Run `--method` on `--problem`; write `--out`, and the scores next to it as `.npy`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--problem", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--method", choices=list(methods), default=next(iter(methods)))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    method, problem = methods[arguments.method], load(arguments.problem)
    work = partial(method.scores, **method.settings)
    work(problem.head(512))  # late imports and compilation do not count
    measured = measure(partial(work, problem), clock=process_time)
    np.save(arguments.out.with_suffix(".npy"), measured.value.detach().double().numpy())
    row = {
        "name": f"{name} {arguments.method}",
        "seconds": measured.seconds,
        "peak_mb": measured.peak_mb,
        "settings": method.settings,
        "note": method.note,
    }
    arguments.out.write_text(json.dumps(row, indent=2))


class Rows(Dataset):
    """Tensors with rows in common, fetched a whole batch at a time."""

    def __init__(self, *tensors: Tensor) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, row: int) -> tuple[Tensor, ...]:
        return tuple(tensor[row] for tensor in self.tensors)

    def __getitems__(self, rows: list[int]) -> list[Tensor]:
        return [tensor[rows] for tensor in self.tensors]


def whole(batch: list[Tensor]) -> list[Tensor]:
    """Collate nothing: `Rows` returns whole batches."""
    return batch


def loader(*tensors: Tensor, batch_size: int) -> DataLoader:
    return DataLoader(Rows(*tensors), batch_size=batch_size, collate_fn=whole)


def gap_weights(problem: Problem) -> Tensor:
    """Weights (V,) with M = |sum_v weights_v sigmoid(z_v)|: the gap without a boolean mask.

    For tools that map a function over test points. The validation set is one such point.
    """
    group = problem.group_validation
    return group / group.sum() - ~group / (~group).sum()


def weighted_gap(z: Tensor, weights: Tensor) -> Tensor:
    return (weights * torch.sigmoid(z)).sum().abs()
