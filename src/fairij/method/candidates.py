"""Candidate edits, judged by hard metrics on rows that carry a group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.fairness.constraints import Constraint
from fairij.fairness.groups import Groups
from fairij.fairness.rates import PERFORMANCES, group_means
from fairij.fairness.scores import scored
from fairij.method.counts import Counts, by_group, columns_of
from fairij.method.run import Progress
from fairij.method.search.base import Search, SearchContext
from fairij.models.base import Evaluator
from fairij.models.losses import Loss

AT_ONCE = 2**20  # rows times edits that are counted together
Moves = dict[tuple[int, float], Tensor]
"""Parameter changes by k and scale."""


@dataclass(frozen=True)
class Candidates:
    """All candidates of a search, judged."""

    table: pd.DataFrame
    counts: Counts | None  # of each row of the table, if they were recorded
    moves: Moves  # the parameter changes, if they need no second solve
    estimated: dict[int, Tensor]  # the directions whose outputs were only estimated, by k


@dataclass(frozen=True)
class Recorded:
    """What some edits predict on all rows, and what their scores are worth."""

    labels: Tensor  # (S, N) uint8
    of_scores: dict[str, NDArray[np.float64]]  # (S,) each
    is_estimate: bool


@dataclass(frozen=True)
class Judge:
    """Hard metrics of edited models on one set of rows."""

    evaluator: Evaluator
    y: Tensor
    groups: Groups
    loss: Loss
    constraint: Constraint
    n_classes: int
    recorded: list[Recorded] | None = None  # if asked for: what all edits predict
    counted: list[Counts] | None = None  # if asked for: the counts of all edits

    @property
    def can_doubt(self) -> bool:
        """Whether one edit can be judged by running rows in doubt alone (trigger tokens)."""
        return self.evaluator.estimates and self.constraint.is_counted(self.loss)

    def forget_estimates(self) -> None:
        if self.recorded is not None:
            self.recorded[:] = [part for part in self.recorded if not part.is_estimate]

    def labels(self) -> NDArray[np.uint8] | None:
        """What all recorded edits predict, ``(K, N)``."""
        if self.recorded is None:
            return None
        return torch.cat([part.labels.cpu() for part in self.recorded]).numpy()

    def of_scores(self) -> dict[str, NDArray[np.float64]]:
        """The measures of the scores of all recorded edits, by name, ``(K,)``."""
        parts = [part.of_scores for part in self.recorded or ()]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def judge(self, direction: Tensor, scales: tuple[float, ...]) -> dict[str, NDArray[Any]]:
        """Gap, performance and each group's rates at ``theta + c direction`` for each scale c."""
        steps = torch.tensor(scales, dtype=torch.float64)
        is_estimate = self.evaluator.estimates and len(scales) > 1
        return self._judged(self.evaluator.along(direction, steps), is_estimate=is_estimate)

    def confirm(
        self, direction: Tensor, scale: float, *, everywhere: bool
    ) -> dict[str, NDArray[Any]]:
        """The same for one edit, run by the model on all rows, or only on rows in doubt."""
        z = self.evaluator.confirm(direction, scale, everywhere=everywhere)
        return self._judged(z, is_estimate=not everywhere)

    def _judged(self, z: Tensor, *, is_estimate: bool) -> dict[str, NDArray[Any]]:
        """``z`` is ``(S, N)`` or ``(S, N, C)``."""
        finite = torch.isfinite(z).flatten(1).all(1).cpu().numpy()
        if not finite.all():
            z = z.nan_to_num(0.0, 0.0, 0.0)  # a candidate that diverged gets no value from these
        if not self.loss.is_classification:
            return self._of_numbers(z, finite)
        predicted = self.loss.predict(z)
        of_scores = scored(self.loss.scores(z), self.y, self.groups)
        counted = Counts(self._table(predicted), finite, of_scores)
        if self.recorded is not None:
            kept = predicted[torch.as_tensor(finite)].to(torch.uint8)
            measures = of_scores.measures(self.groups)
            values = {name: value[finite] for name, value in measures.items()}
            self.recorded.append(Recorded(kept, values, is_estimate))
        if self.counted is not None:
            self.counted.append(replace(counted, table=counted.table.astype(np.int32)))
        return self.measures(counted, self.constraint.gap(z, self.y, self.groups, counted.table))

    def measures(self, counted: Counts, gap: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """The columns of the table for edits with these counts and gaps."""
        finite, names = counted.finite, self.groups.names
        of_labels = columns_of(counted.table, names, self.constraint.uncertainty)
        worst = {name: np.where(finite, of_labels[name], 0.0) for name in PERFORMANCES}
        of_scores = counted.scored.measures(self.groups)
        return _gaps(gap, finite) | _known(of_labels | of_scores, finite) | worst

    def _of_numbers(self, z: Tensor, finite: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        """The columns in regression."""
        error = ((z - self.y) ** 2).mean(-1).double()
        r2 = 1 - (error / self.y.var(correction=0).double()).cpu().numpy()
        return (
            _gaps(self.constraint.gap(z, self.y, self.groups, None), finite)
            | _known(self.constraint.how_sure(z, self.y, self.groups), finite)
            | {"r2": np.where(finite, r2, -np.inf)}
            | _known({"mean_squared_error": error.cpu().numpy()}, finite)
            | _known(by_group(self._means(z), self.groups.names), finite)
        )

    def _means(self, z: Tensor) -> dict[str, NDArray[np.float64]]:
        values = {"mean_prediction": z, "mean_error": z - self.y}
        return {
            name: group_means(value.double().cpu().numpy(), self.groups)
            for name, value in values.items()
        }

    def _table(self, predicted: Tensor) -> NDArray[np.float64]:
        """Confusion counts ``(S, G, C, C)``, counted on the device of the outputs."""
        shape = (len(self.groups.names), self.n_classes, self.n_classes)
        size = math.prod(shape)
        edits = max(1, AT_ONCE // predicted.shape[1])  # several: on a GPU each count waits
        counted = []
        for some in predicted.split(edits):
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


def _known(
    columns: Mapping[str, NDArray[Any]], finite: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """The columns; NaN for edits that diverged."""
    return {name: np.where(finite, values, np.nan) for name, values in columns.items()}


def judged_candidates(
    search: Search, context: SearchContext, judge: Judge, progress: Progress, *, keep: bool = True
) -> Candidates:
    """Judge every candidate of a search; the first row is the model as it is (k = 0).

    ``keep``: also keep the parameter changes, from which the chosen one is taken.
    """
    damping, nothing = context.inverse.damping, torch.zeros_like(context.objective.theta)
    parts = [_rows(0, (1.0,), damping, judge.judge(nothing, (1.0,)))]
    best = float(parts[0]["gap"][0])
    moves: Moves = {}
    estimated: dict[int, Tensor] = {}
    total = search.count(context)
    for done, proposal in enumerate(search.propose(context)):
        result = judge.judge(proposal.direction, proposal.scales)
        labels = proposal.scales if proposal.label is None else (proposal.label,)
        parts.append(_rows(proposal.k, labels, damping, result))
        if keep and judge.evaluator.estimates and len(proposal.scales) > 1:
            estimated[proposal.k] = proposal.direction
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
        counted = Counts.together(judge.counted)
        judge.counted.clear()  # the next damping starts over
    return Candidates(pd.DataFrame(columns), counted, moves, estimated)


def pooled_table(parts: Sequence[Candidates], judge: Judge) -> pd.DataFrame:
    """The candidates that all folds have, each judged on the rows of all folds.

    One gap of all rows depends far less on chance than the mean of the folds' gaps, which is taken
    if predictions cannot be counted.
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
    assert judge.constraint.metric is not None  # as the gap is one of counts
    columns = judge.measures(pooled, judge.constraint.metric(pooled.table))
    return pd.DataFrame(columns, index=shared).reset_index()


def _rows(
    k: int, scales: tuple[float, ...], damping: float, result: dict[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    each = len(scales)
    named = {"damping": np.full(each, damping), "k": np.full(each, k), "scale": np.array(scales)}
    return named | result
