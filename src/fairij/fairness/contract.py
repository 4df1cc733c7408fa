"""`check_constraint`: whether a constraint keeps the rules that the engine relies on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairij.fairness.constraints import Constraint, get_constraint
from fairij.fairness.counts import confusion_counts
from fairij.fairness.gaps import GAPS
from fairij.fairness.groups import Groups
from fairij.fairness.metrics import METRICS
from fairij.fairness.sizes import rows_compared

TEMPERATURE, STEP, NEAR = 2.0, 1e-6, 1e-6


@dataclass(frozen=True)
class Outputs:
    """A loss as far as constraints need one, for outputs ``(N,)`` or ``(N, C)``."""

    is_classification: bool

    def scores(self, z: Tensor, temperature: float = 1.0) -> Tensor:
        if not self.is_classification:
            return z
        return torch.sigmoid(temperature * z) if z.ndim == 1 else torch.softmax(temperature * z, -1)

    def predict(self, z: Tensor) -> Tensor:
        if not self.is_classification:
            return z
        return (z > 0).long() if z.ndim == 1 else z.argmax(-1)


@dataclass(frozen=True)
class Sample:
    """Outputs, labels and groups to try a constraint on."""

    constraint: Constraint
    loss: Outputs
    n_classes: int  # 0 in regression
    z: Tensor
    y: Tensor
    groups: Groups

    def smooth(self, z: Tensor | None = None) -> Tensor:
        """The surrogate at ``z``, by default at the sample's own outputs."""
        z = self.z if z is None else z
        seen = z if self.constraint.takes_outputs else self.loss.scores(z, TEMPERATURE)
        return self.constraint.surrogate(seen, self.y, torch.as_tensor(self.groups.codes))

    def hard(self) -> float:
        """The gap of hard predictions."""
        table = None
        if self.n_classes:
            table = confusion_counts(
                self.y.long().numpy(),
                self.loss.predict(self.z)[None].numpy(),
                self.groups.codes,
                n_groups=len(self.groups.names),
                n_classes=self.n_classes,
            )
        return float(self.constraint.gap(self.z[None], self.y, self.groups, table)[0])


def check_constraint(constraint: Any) -> None:
    """Raise an AssertionError that says which rule a constraint breaks.

    The rules: the gap is zero if all groups have equal rows. The gradient agrees with finite
    differences. Parts sum to the surrogate. The order of rows and the names of groups do not
    matter. For gaps of rates, the surrogate of hard predictions is the metric. For gaps of the
    table, the metric function with fairlearn's signature agrees, and there are words for the page.

    Parameters
    ----------
    constraint : str, Gap, Constraint or callable
        As in ``FairIJ(constraints=...)``.

    Examples
    --------
    >>> from fairij.fairness import check_constraint
    >>> check_constraint("equal_opportunity")
    """
    checked = get_constraint(constraint)
    _require(bool(checked.name), checked, "must have a name")
    for sample in _samples(checked):
        _check_equal_groups(sample)
        _check_gradient(sample)
        _check_order(sample)
        _check_forms(sample)
        _check_table(sample)


def _samples(constraint: Constraint) -> Iterator[Sample]:
    """Random rows with every label in each of three groups, of each kind of task that fits."""
    generator = torch.Generator().manual_seed(0)
    every = (2, 3) if constraint.is_classification and not constraint.takes_outputs else (2,)
    for n_classes in every if constraint.is_classification else (0,):
        rows = 18 * max(n_classes, 1) + 3  # groups of unequal sizes
        shape = (rows, 3) if n_classes == 3 else (rows,)
        z = torch.randn(shape, generator=generator, dtype=torch.float64)
        y = (torch.arange(rows) % n_classes).double() if n_classes else torch.randn_like(z)
        codes = np.arange(rows) // max(n_classes, 1) % 3
        groups = Groups(codes, ("a", "b", "c"))
        yield Sample(constraint, Outputs(n_classes > 0), n_classes, z, y, groups)


def _check_equal_groups(sample: Sample) -> None:
    groups = Groups(np.repeat(np.arange(3), len(sample.z)), sample.groups.names)
    z, y = torch.cat([sample.z] * 3), torch.cat([sample.y] * 3)
    equal = replace(sample, z=z, y=y, groups=groups)
    for form, value in (("surrogate", float(equal.smooth())), ("gap", equal.hard())):
        text = f"must have a {form} of 0 if all groups have equal rows, got {value:g}"
        _require(abs(value) < NEAR, sample.constraint, text)


def _check_gradient(sample: Sample) -> None:
    """Finite differences along random directions; parts and their gradients add up."""
    constraint, generator = sample.constraint, torch.Generator().manual_seed(1)
    data = (sample.z, sample.y, sample.groups, sample.loss, TEMPERATURE)
    values, gradients = zip(*constraint.part_gradients(*data), strict=True)
    gradient, whole = sum(gradients), float(sample.smooth())
    for _ in range(3):
        direction = torch.randn(sample.z.shape, generator=generator, dtype=torch.float64)
        ends = [float(sample.smooth(sample.z + step * direction)) for step in (STEP, -STEP)]
        rise, found = (ends[0] - ends[1]) / (2 * STEP), float((gradient * direction).sum())
        text = f"must have a gradient like its finite differences: {found:g}, not {rise:g}"
        _require(abs(rise - found) < 1e-4 * max(1, abs(rise)), constraint, text)
    text = f"must have parts that sum to its surrogate, {whole:g}; they sum to {sum(values):g}"
    _require(abs(sum(values) - whole) < NEAR, constraint, text)


def _check_order(sample: Sample) -> None:
    order = np.random.default_rng(0).permutation(len(sample.z))
    groups = Groups(np.array([2, 0, 1])[sample.groups.codes][order], sample.groups.names)
    moved = replace(sample, z=sample.z[order], y=sample.y[order], groups=groups)
    for before, after in ((sample.smooth(), moved.smooth()), (sample.hard(), moved.hard())):
        text = (
            "must not depend on the order of rows and the names of groups, but went from "
            f"{float(before):g} to {float(after):g}"
        )
        _require(abs(float(before) - float(after)) < NEAR, sample.constraint, text)


def _check_forms(sample: Sample) -> None:
    """The smooth form of hard predictions is the hard gap."""
    if not sample.constraint.rates:
        return
    data = (sample.z, sample.y, sample.groups, sample.loss, TEMPERATURE)
    whole = Constraint("whole", sample.constraint.surrogate, None)
    ((smooth, _),) = whole.part_gradients(*data, hard=True)
    text = f"must have a surrogate of hard predictions, {smooth:g}, like its gap {sample.hard():g}"
    _require(abs(smooth - sample.hard()) < NEAR, sample.constraint, text)


def _check_table(sample: Sample) -> None:
    """What follows from the line in the table of gaps: metric function, words, cells."""
    constraint, gap = sample.constraint, GAPS.get(sample.constraint.name)
    if gap is None or constraint.rates != gap.rates:
        return
    predicted = sample.loss.predict(sample.z)
    metric = METRICS[gap.metric_name](sample.y, predicted, sensitive_features=sample.groups)
    text = f"must have a gap like `{gap.metric_name}`, {metric:g}, got {sample.hard():g}"
    _require(abs(metric - sample.hard()) < NEAR, constraint, text)
    words = (gap.words, gap.compares, gap.formula)
    _require(all(words), constraint, f"must have words for people, got {words}")
    classes = np.arange(sample.n_classes)
    cells = rows_compared(constraint, sample.y.numpy(), classes, sample.groups)
    _require(min(cells.values()) > 0, constraint, f"must compare rows that exist, got {cells}")


def _require(kept: bool, constraint: Constraint, text: str) -> None:
    if not kept:
        raise AssertionError(f"The constraint {constraint.name!r} {text}.")
