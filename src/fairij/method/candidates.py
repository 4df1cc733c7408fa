"""Candidate edits, judged: hard metrics on rows that carry a group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.fairness import counts
from fairij.fairness.constraints import Constraint
from fairij.fairness.groups import Groups
from fairij.fairness.metrics import group_means
from fairij.method.losses import Loss
from fairij.method.search.base import Scene, Search
from fairij.method.search.dropping import Progress
from fairij.models.base import Evaluator

AT_ONCE = 2**20  # rows times edits that are counted together
Moves = dict[tuple[int, float], Tensor]  # by k and scale


@dataclass(frozen=True)
class Counts:
    """Confusion counts ``(S, G, C, C)`` of S edits, and which of them had finite outputs."""

    table: NDArray[Any]
    finite: NDArray[np.bool_]

    @staticmethod
    def joined(parts: Sequence[Counts]) -> Counts:
        return Counts(
            np.concatenate([part.table for part in parts]),
            np.concatenate([part.finite for part in parts]),
        )

    @staticmethod
    def pooled(parts: Sequence[Counts], rows: Sequence[NDArray[np.int64]]) -> Counts:
        """The same edits on the rows of all parts together; of each part, which rows they are."""
        first, *others = zip(parts, rows, strict=True)
        table, finite = (values[first[1]] for values in (first[0].table, first[0].finite))
        for part, index in others:
            table += part.table[index]
            finite &= part.finite[index]
        return Counts(table.astype(np.float64), finite)


@dataclass(frozen=True)
class Candidates:
    """All candidates of a search, judged."""

    table: pd.DataFrame
    counts: Counts | None  # of each row of the table, where they are what it was made of
    moves: Moves  # the changes of the parameters, where they are solved for good
    screened: dict[int, Tensor]  # the directions of those that were only screened, by k


@dataclass(frozen=True)
class Judge:
    """Hard metrics of edited models on one set of rows."""

    evaluator: Evaluator
    y: Tensor
    groups: Groups
    loss: Loss
    constraint: Constraint
    n_classes: int
    # where asked for, the labels (S, N) of all edits, in bytes; and whether these were screened
    recorded: list[tuple[Tensor, bool]] | None = None
    counted: list[Counts] | None = None  # where asked for, those of all edits

    @property
    def screens(self) -> bool:
        """Whether several scales at once are only estimates, corrected by each single one."""
        return self.evaluator.estimates

    @property
    def settles(self) -> bool:
        """Whether a single edit can be judged by running the model where labels are in doubt."""
        return self.screens and self.constraint.is_counted(self.loss)

    def forget_screened(self) -> None:
        """Keep what was run by itself only."""
        if self.recorded is not None:
            self.recorded[:] = [part for part in self.recorded if not part[1]]

    def labels(self) -> NDArray[np.uint8] | None:
        """What all edits that are recorded predict, (K, N)."""
        if self.recorded is None:
            return None
        return torch.cat([part.cpu() for part, _ in self.recorded]).numpy()

    def judge(self, direction: Tensor, scales: tuple[float, ...]) -> dict[str, NDArray[Any]]:
        """Gap, performance and each group's rates at ``theta + c direction`` for each scale c."""
        steps = torch.tensor(scales, dtype=torch.float64)
        screened = self.screens and len(scales) > 1
        return self._judged(self.evaluator.along(direction, steps), screened=screened)

    def judge_nearly(self, direction: Tensor, scale: float) -> dict[str, NDArray[Any]]:
        """The same of one edit, run only on rows whose label is in doubt."""
        z = self.evaluator.confirm(direction, scale, everywhere=False)
        return self._judged(z, screened=True)

    def _judged(self, z: Tensor, *, screened: bool) -> dict[str, NDArray[Any]]:
        """``z`` is (S, N) or (S, N, C)."""
        finite = torch.isfinite(z).flatten(1).all(1).cpu().numpy()
        if not finite.all():
            z = z.nan_to_num(0.0, 0.0, 0.0)  # a candidate that blew up gets no value from these
        if self.loss.is_classification:
            table = self._table(z, finite, screened)
            if self.counted is not None:
                self.counted.append(Counts(table.astype(np.int32), finite))
            return self.measures(
                Counts(table, finite), self.constraint.gap(z, self.y, self.groups, table)
            )
        gap = self.constraint.gap(z, self.y, self.groups, None)
        error = ((z - self.y) ** 2).mean(-1).double() / self.y.var(correction=0).double()
        performance = {"r2": np.where(finite, 1 - error.cpu().numpy(), -np.inf)}
        return _gaps(gap, finite) | performance | self._by_group(self._means(z), finite)

    def measures(self, counted: Counts, gap: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """What is said of edits whose predictions were counted, with these gaps."""
        table, finite = counted.table, counted.finite
        performance = {
            "accuracy": np.where(finite, counts.accuracy(table), 0.0),
            "balanced_accuracy": np.where(finite, counts.balanced_accuracy(table), 0.0),
        }
        rates = self._by_group(counts.rates_by_name(table), finite)
        return _gaps(gap, finite) | performance | rates

    def _by_group(
        self, rates: dict[str, NDArray[np.float64]], finite: NDArray[np.bool_]
    ) -> dict[str, NDArray[Any]]:
        return {
            f"{rate}[{group}]": np.where(finite, values[:, code], np.nan)
            for rate, values in rates.items()
            for code, group in enumerate(self.groups.names)
        }

    def _means(self, z: Tensor) -> dict[str, NDArray[np.float64]]:
        values = {"mean_prediction": z, "mean_error": z - self.y}
        return {
            name: group_means(value.double().cpu().numpy(), self.groups)
            for name, value in values.items()
        }

    def _table(
        self, z: Tensor, finite: NDArray[np.bool_], screened: bool = False
    ) -> NDArray[np.float64]:
        """Confusion counts ``(S, G, C, C)``, counted where the outputs are."""
        predicted = self.loss.predict(z)
        if self.recorded is not None:
            kept = predicted[torch.as_tensor(finite)].to(torch.uint8)
            self.recorded.append((kept, screened))
        shape = (len(self.groups.names), self.n_classes, self.n_classes)
        size = math.prod(shape)
        together = max(1, AT_ONCE // predicted.shape[1])  # edits: on a GPU each count waits
        counted = []
        for some in predicted.split(together):
            offset = size * torch.arange(len(some), device=some.device)[:, None]
            cells = (self._cells + some + offset).flatten()
            counted.append(torch.bincount(cells, minlength=size * len(some)))
        return torch.cat(counted).cpu().numpy().astype(np.float64).reshape(-1, *shape)

    @cached_property
    def _cells(self) -> Tensor:
        """The place of each row's group and true class in a table of counts."""
        codes = torch.as_tensor(self.groups.codes, device=self.y.device)
        return (codes * self.n_classes + self.y.long()) * self.n_classes


def _gaps(gap: NDArray[np.float64], finite: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    return {"gap": np.where(finite & ~np.isnan(gap), gap, np.inf)}


def performance_column(loss: Loss) -> str:
    return "accuracy" if loss.is_classification else "r2"


def candidates(
    search: Search, scene: Scene, judge: Judge, progress: Progress, *, keep: bool = True
) -> Candidates:
    """Judge every candidate of a search; the first row is the model as it is (k = 0).

    ``keep``: also the changes of the parameters, from which the chosen one is taken.
    """
    damping, nothing = scene.inverse.damping, torch.zeros_like(scene.objective.theta)
    parts = [_rows(0, (1.0,), damping, judge.judge(nothing, (1.0,)))]
    best = float(parts[0]["gap"][0])
    moves: Moves = {}
    screened: dict[int, Tensor] = {}
    total = search.count(scene)
    for done, proposal in enumerate(search.propose(scene)):
        result = judge.judge(proposal.direction, proposal.scales)
        labels = proposal.scales if proposal.label is None else (proposal.label,)
        parts.append(_rows(proposal.k, labels, damping, result))
        if keep and judge.screens and len(proposal.scales) > 1:
            screened[proposal.k] = proposal.direction
        if keep and not search.drops:
            for label, scale in zip(labels, proposal.scales, strict=True):
                moves[proposal.k, label] = scale * proposal.direction
        progress("candidates", done + 1, total)
        if search.stops_early:
            if not result["gap"][0] < best:
                break
            best = float(result["gap"][0])
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    counted = None
    if judge.counted is not None:
        counted = Counts.joined(judge.counted)
        judge.counted.clear()  # the next damping's are its own
    return Candidates(pd.DataFrame(columns), counted, moves, screened)


def together(parts: Sequence[Candidates], judge: Judge) -> pd.DataFrame:
    """The candidates that all folds have, each judged on the rows of all folds.

    What the folds predict is counted together where it can be; the gap of all rows is far less a
    matter of luck than the mean of the gaps of each part. Elsewhere it is that mean.
    """
    if len(parts) == 1:
        return parts[0].table
    keys = ["damping", "k", "scale"]
    tables = [part.table.drop_duplicates(keys) for part in parts]
    named = [pd.MultiIndex.from_frame(table[keys]) for table in tables]
    shared = reduce(pd.MultiIndex.intersection, named).sort_values()
    rows = [table.iloc[n.get_indexer(shared)] for table, n in zip(tables, named, strict=True)]
    folds = [part.counts for part in parts if part.counts is not None]
    if not folds:
        return pd.concat(rows).groupby(keys).mean().reset_index()
    pooled = Counts.pooled(folds, [some.index.to_numpy() for some in rows])
    assert judge.constraint.metric is not None  # of counts
    columns = judge.measures(pooled, judge.constraint.metric(pooled.table))
    return pd.DataFrame(columns, index=shared).reset_index()


def _rows(
    k: int, scales: tuple[float, ...], damping: float, result: dict[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    each = len(scales)
    named = {"damping": np.full(each, damping), "k": np.full(each, k), "scale": np.array(scales)}
    return named | result
