"""Candidate edits, judged by hard metrics on rows that carry a group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.errors import InvalidInputError
from fairij.fairness.constraints import Constraint
from fairij.fairness.decisions import OWN, Decision, weight_of
from fairij.fairness.groups import Groups
from fairij.fairness.rates import PERFORMANCES, group_means
from fairij.fairness.scores import OF_SCORES, Before, scored
from fairij.method.counts import Counts, by_group, columns_of
from fairij.method.other_rows import OtherRows, summed, with_other_gaps
from fairij.method.run import Progress
from fairij.method.search.base import Search, SearchContext
from fairij.models.base import Evaluator
from fairij.models.losses import Loss

AT_ONCE = 2**20  # rows times edits that are counted together
Key = tuple[float, int, float]
"""Damping, k and scale: what names a candidate."""


@dataclass(frozen=True)
class Move:
    """A parameter change ``scale * direction``, and the error in energy of its solves."""

    direction: Tensor
    scale: float
    error: float = math.nan  # NaN if it was not measured

    @property
    def delta(self) -> Tensor:
        return self.scale * self.direction


def keys_of(table: pd.DataFrame) -> list[Key]:
    """What names each candidate of a table."""
    return list(zip(table["damping"], table["k"], table["scale"], strict=True))


@dataclass(frozen=True)
class Candidates:
    """All candidates of a search, judged."""

    table: pd.DataFrame
    counts: Counts | None  # of each row of the table, if they were recorded
    moves: dict[tuple[int, float], Move]  # by k and scale
    estimated: dict[int, Tensor]  # the directions whose outputs were only estimated, by k


@dataclass(frozen=True)
class Judge:
    """Hard metrics of edited models on one set of rows.

    Labels are decisions: 1 is the favourable one.
    """

    evaluator: Evaluator
    y: Tensor
    groups: Groups
    loss: Loss
    constraint: Constraint
    n_classes: int
    # if asked for: the labels (N,) as uint8 that each candidate was last seen to predict
    recorded: dict[Key, Tensor] | None = None
    counted: list[Counts] | None = None  # if asked for: the counts of all edits
    decision: Decision = OWN
    others: tuple[OtherRows, ...] = ()  # constraints on rows of their own
    # the scores that changes are measured from: of the first edit that is judged, the model as is
    before: list[Before] = field(default_factory=list)

    @property
    def can_doubt(self) -> bool:
        """Whether one edit can be judged by running rows in doubt alone (trigger tokens)."""
        is_able = self.evaluator.estimates and self.decision.is_own
        return is_able and self.constraint.is_counted(self.loss)

    def labels(self, table: pd.DataFrame) -> NDArray[np.uint8] | None:
        """What the candidates of the table predict, ``(K, N)``; not those that diverged."""
        if self.recorded is None:
            return None
        keys = [key for key in keys_of(table) if key in self.recorded]
        return torch.stack([self.recorded[key].cpu() for key in keys]).numpy()

    def of_scores(self, table: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
        """The measures of the scores of the same candidates, by name, ``(K,)``."""
        seen = [key in (self.recorded or {}) for key in keys_of(table)]
        names = [name for name in table if str(name).partition("[")[0] in OF_SCORES]
        return {str(name): table[name].to_numpy()[seen] for name in names}

    def judge(
        self, direction: Tensor, scales: tuple[float, ...], keys: Sequence[Key] = ()
    ) -> dict[str, NDArray[Any]]:
        """Gap, performance and each group's rates at ``theta + c direction`` for each scale c.

        ``keys`` name these candidates for the record.
        """
        steps = torch.tensor(scales, dtype=torch.float64)
        found = self._judged(self.evaluator.along(direction, steps), keys)
        return with_other_gaps(found, self.others, direction, scales)

    def confirm(self, move: Move, key: Key, *, everywhere: bool) -> dict[str, NDArray[Any]]:
        """The same for one edit, run by the model on all rows, or only on rows in doubt."""
        z = self.evaluator.confirm(move.direction, move.scale, everywhere=everywhere)
        found = self._judged(z, [key])
        return with_other_gaps(found, self.others, move.direction, (move.scale,))

    def _judged(self, z: Tensor, keys: Sequence[Key]) -> dict[str, NDArray[Any]]:
        """``z`` is ``(S, N)`` or ``(S, N, C)``."""
        finite = torch.isfinite(z).flatten(1).all(1).cpu().numpy()
        if not finite.all():
            z = z.nan_to_num(0.0, 0.0, 0.0)  # a candidate that diverged gets no value from these
        if not self.loss.is_classification:
            return self._of_numbers(z, finite)
        predicted = self.loss.predict(self.decision.outputs(z, weight_of(self.groups, z)))
        of_scores = scored(self.loss.scores(z), self.y, self.groups, self.before)
        counted = Counts(self._table(predicted), finite, of_scores)
        self._record(predicted, finite, keys)
        if self.counted is not None:
            whole = np.int32 if self.groups.is_plain else np.float64
            self.counted.append(replace(counted, table=counted.table.astype(whole)))
        return self.measures(counted, self._gap(z, counted.table[:, : len(self.groups.names)]))

    def _record(self, predicted: Tensor, finite: NDArray[np.bool_], keys: Sequence[Key]) -> None:
        if self.recorded is None:
            return
        for key, labels, sound in zip(keys, predicted.to(torch.uint8), finite, strict=True):
            self.recorded.pop(key, None)
            if sound:
                self.recorded[key] = labels

    def measures(
        self,
        counted: Counts,
        gap: NDArray[np.float64],
        squares: NDArray[np.float64] | None = None,  # of all folds, if counts are theirs
    ) -> dict[str, NDArray[Any]]:
        """The columns of the table for edits with these counts and gaps."""
        finite, names = counted.finite, self.groups.names
        uncertainty, squares = (
            self.constraint.uncertainty,
            self.squares if squares is None else squares,
        )
        if uncertainty is not None and squares is not None:
            uncertainty = partial(uncertainty, squares=squares)
        of_labels = columns_of(counted.table, names, uncertainty)
        worst = {name: np.where(finite, of_labels[name], 0.0) for name in PERFORMANCES}
        of_scores = counted.scored.measures(self.groups)
        named = self._named(counted.table[..., : len(names), :, :])
        return _gaps(gap, finite) | _known(named | of_labels | of_scores, finite) | worst

    def _named(self, *data: Any) -> dict[str, NDArray[np.float64]]:
        """The gaps that the constraint puts together, by name."""
        return {} if self.constraint.named is None else self.constraint.named(*data)

    @cached_property
    def squares(self) -> NDArray[np.float64] | None:
        """Sums of squared weights by group and label, ``(G, C, C)``; None if all count alike."""
        if self._member is None:
            return None
        squares = np.zeros((len(self.groups.names), self.n_classes, self.n_classes))
        for label in range(self.n_classes):
            own = self._member[self.truth == label].square().sum(0).cpu().numpy()
            squares[:, label, 0] = own[: len(self.groups.names)]
        return squares

    def _of_numbers(self, z: Tensor, finite: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        """The columns in regression."""
        if self._member is not None:
            raise InvalidInputError(
                "`sample_weight_val` and chances of groups must be left out, because this model "
                "predicts numbers: they are for classification."
            )
        taken = self.constraint.takes_outputs or self.constraint.takes_losses
        predicted = self.loss.predict(z)  # of a log link the exponential
        gap = self._gap(z if taken else predicted, None)
        error = ((predicted - self.y) ** 2).mean(-1).double()
        r2 = 1 - (error / self.y.var(correction=0).double()).cpu().numpy()
        return (
            _gaps(gap, finite)
            | _known(self._named(*_arrays(predicted, self.y), self.groups), finite)
            | _known(self.constraint.how_sure(predicted, self.y, self.groups), finite)
            | {"r2": np.where(finite, r2, -np.inf)}
            | _known({"mean_squared_error": error.cpu().numpy()}, finite)
            | _known(by_group(self._means(predicted), self.groups.names), finite)
        )

    def _gap(self, z: Tensor, table: NDArray[np.float64] | None) -> NDArray[np.float64]:
        return self.constraint.gap(z, self.y, self.groups, table, self.loss)

    def _means(self, z: Tensor) -> dict[str, NDArray[np.float64]]:
        values = {"mean_prediction": z, "mean_error": z - self.y}
        return {
            name: group_means(value.double().cpu().numpy(), self.groups)
            for name, value in values.items()
        }

    def _table(self, predicted: Tensor) -> NDArray[np.float64]:
        """Confusion counts ``(S, G, C, C)``, counted on the device of the outputs."""
        shape = (self.groups.slots, self.n_classes, self.n_classes)
        size = math.prod(shape)
        if self._member is not None:
            return self._weighted(predicted)
        edits = max(1, AT_ONCE // predicted.shape[1])  # several: on a GPU each count waits
        counted = []
        for some in predicted.split(edits):
            offset = size * torch.arange(len(some), device=some.device)[:, None]
            cells = (self._cells + some + offset).flatten()
            counted.append(torch.bincount(cells, minlength=size * len(some)))
        return torch.cat(counted).cpu().numpy().astype(np.float64).reshape(-1, *shape)

    def _weighted(self, predicted: Tensor) -> NDArray[np.float64]:
        """The same, of rows that count by weights, some for several groups."""
        assert self._member is not None
        found = predicted.new_zeros(
            (len(predicted), self._member.shape[1], self.n_classes, self.n_classes),
            dtype=torch.float64,
        )
        for truth in range(self.n_classes):
            own = torch.nonzero(self.truth == truth)[:, 0]
            for label in range(self.n_classes):
                hits = (predicted[:, own] == label).double()
                found[:, :, truth, label] = hits @ self._member[own]
        return found.cpu().numpy()

    @cached_property
    def _member(self) -> Tensor | None:
        """What each row counts for each group, ``(N, slots)``; None if each counts one for one."""
        if self.groups.chances is None and self.groups.weight is None:
            return None
        return torch.as_tensor(self.groups.membership(), device=self.y.device)

    @cached_property
    def _cells(self) -> Tensor:
        """The place of each row's group and true class in a table of counts."""
        codes = torch.as_tensor(self.groups.codes, device=self.y.device)
        return (codes * self.n_classes + self.truth) * self.n_classes

    @cached_property
    def truth(self) -> Tensor:
        """The true classes, numbered as decisions are."""
        return self.decision.truth(self.y.long())


def _arrays(*values: Tensor) -> tuple[NDArray[np.float64], ...]:
    return tuple(value.detach().cpu().double().numpy() for value in values)


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
    unedited = judge.judge(nothing, (1.0,), [(damping, 0, 1.0)])
    parts = [_rows(0, (1.0,), damping, unedited, error=0.0)]
    best = float(parts[0]["gap"][0])
    moves: dict[tuple[int, float], Move] = {}
    estimated: dict[int, Tensor] = {}
    total = search.count(context)
    for done, proposal in enumerate(search.propose(context)):
        k, error = proposal.k, proposal.error
        labels = proposal.scales if proposal.label is None else (proposal.label,)
        keys = [(damping, k, label) for label in labels]
        result = judge.judge(proposal.direction, proposal.scales, keys)
        parts.append(_rows(k, labels, damping, result, error=error))
        if keep and judge.evaluator.estimates and len(proposal.scales) > 1:
            estimated[k] = proposal.direction
        if keep:
            for label, scale in zip(labels, proposal.scales, strict=True):
                moves[k, label] = Move(proposal.direction, scale, error)
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


def pooled_table(parts: Sequence[Candidates], judges: Sequence[Judge]) -> pd.DataFrame:
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
    judge = judges[0]
    assert judge.constraint.metric is not None  # as the gap is one of counts
    known = pooled.table[:, : len(judge.groups.names)]
    squares = [one.squares for one in judges if one.squares is not None]
    gaps = judge.constraint.metric(known)
    columns = judge.measures(pooled, gaps, np.sum(squares, axis=0) if squares else None)
    elsewhere = {
        one.column: np.mean([some[one.column].to_numpy() for some in rows], axis=0)
        for one in judge.others
    }
    columns = summed(columns, elsewhere)
    columns["solve_error"] = np.max([some["solve_error"].to_numpy() for some in rows], axis=0)
    return pd.DataFrame(columns, index=shared).reset_index()


def _rows(
    k: int,
    scales: tuple[float, ...],
    damping: float,
    result: dict[str, NDArray[Any]],
    *,
    error: float,
) -> dict[str, NDArray[Any]]:
    each = len(scales)
    named = {"damping": np.full(each, damping), "k": np.full(each, k), "scale": np.array(scales)}
    return named | result | {"solve_error": np.full(each, error)}
