"""`check_constraint`: whether a constraint keeps the rules that the engine relies on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairij.fairness.constraints import Constraint, get_constraint, rows_compared
from fairij.fairness.groups import Groups
from fairij.fairness.labelled import label
from fairij.fairness.metrics import METRICS
from fairij.fairness.rates import GAPS

TEMPERATURE, STEP, NEAR = 2.0, 1e-6, 1e-6


@dataclass(frozen=True)
class Outputs:
    """A loss as far as constraints need one, for outputs ``(N,)`` or ``(N, C)``."""

    is_classification: bool

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        if not self.is_classification:
            return (z - y) ** 2
        if z.ndim == 1:
            return torch.nn.functional.binary_cross_entropy_with_logits(z, y, reduction="none")
        return torch.nn.functional.cross_entropy(z, y.long(), reduction="none")

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
    n_classes: int  # 0 in regression
    z: Tensor
    y: Tensor
    groups: Groups

    @property
    def loss(self) -> Outputs:
        return Outputs(self.n_classes > 0)

    def smooth(self, z: Tensor) -> float:
        """The surrogate at other outputs than the sample's own."""
        seen = self.constraint.seen(z, self.y, self.loss, TEMPERATURE)
        return float(self.constraint.surrogate(seen, self.y, torch.as_tensor(self.groups.codes)))

    def forms(self) -> dict[str, float]:
        """The surrogate, and the gap of hard predictions."""
        table = None
        if self.n_classes:
            predicted = self.loss.predict(self.z)
            table = label(self.y, predicted, sensitive_features=self.groups).table[None]
        gap = self.constraint.gap(self.z[None], self.y, self.groups, table, self.loss)[0]
        return {"surrogate": self.smooth(self.z), "gap": float(gap)}


def check_constraint(constraint: Any) -> None:
    """Raise an AssertionError that says which rule a constraint breaks.

    The rules: the gap is zero if all groups have equal rows (of a worst group's loss or error: the
    same with one group). The gradient agrees with finite
    differences. Parts sum to the surrogate. The order of rows and the names of groups do not
    matter. For gaps of rates, the surrogate of hard predictions is the metric. For gaps of the
    table, the metric function with fairlearn's signature agrees.

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
    assert checked.name, f"A constraint must have a name, got {checked.name!r}."
    for sample in _samples(checked):
        for check in (_equal_groups, _gradients, _order, _hard_form, _table):
            for broken in check(sample):
                raise AssertionError(f"The constraint {checked.name!r} must {broken}.")


def _samples(constraint: Constraint) -> Iterator[Sample]:
    """Random rows with every label in each of three groups, of each kind of task that fits."""
    generator = torch.Generator().manual_seed(0)
    every = (2,) if constraint.takes_outputs else (2, 3)
    if not constraint.is_classification:
        every = (0,) if constraint.is_classification is False else (0, *every)
    for n_classes in every:
        rows = 18 * max(n_classes, 1) + 3  # groups of unequal sizes
        shape = (rows, 3) if n_classes == 3 else (rows,)
        z = torch.randn(shape, generator=generator, dtype=torch.float64)
        y = (torch.arange(rows) % n_classes).double() if n_classes else torch.randn_like(z)
        codes = np.arange(rows) // max(n_classes, 1) % 3
        yield Sample(constraint, n_classes, z, y, Groups(codes, ("a", "b", "c")))


def _equal_groups(sample: Sample) -> Iterator[str]:
    groups = Groups(np.repeat(np.arange(3), len(sample.z)), sample.groups.names)
    equal = replace(sample, z=torch.cat([sample.z] * 3), y=torch.cat([sample.y] * 3), groups=groups)
    expected = dict.fromkeys(equal.forms(), 0.0)
    if not sample.constraint.is_zero_if_equal:
        one = Groups(np.zeros(len(sample.z), dtype=np.int64), sample.groups.names[:1])
        expected = replace(sample, groups=one).forms()
    for form, value in equal.forms().items():
        if not abs(value - expected[form]) < NEAR:
            wanted = f"a {form} of {expected[form]:g}"
            yield f"have {wanted} if all groups have equal rows, got {value:g}"


def _gradients(sample: Sample) -> Iterator[str]:
    """Finite differences along random directions; parts and their gradients add up."""
    data = (sample.z, sample.y, sample.groups, sample.loss, TEMPERATURE)
    values, gradients = zip(*sample.constraint.part_gradients(*data), strict=True)
    gradient, whole = sum(gradients), sample.smooth(sample.z)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        direction = torch.randn(sample.z.shape, generator=generator, dtype=torch.float64)
        up, down = (sample.smooth(sample.z + step * direction) for step in (STEP, -STEP))
        rise, found = (up - down) / (2 * STEP), float((gradient * direction).sum())
        if not abs(rise - found) < 1e-4 * max(1, abs(rise)):
            yield f"have a gradient like its finite differences: {found:g}, not {rise:g}"
    if not abs(sum(values) - whole) < NEAR:
        yield f"have parts that sum to its surrogate, {whole:g}; they sum to {sum(values):g}"


def _order(sample: Sample) -> Iterator[str]:
    order = np.random.default_rng(0).permutation(len(sample.z))
    groups = Groups(np.array([2, 0, 1])[sample.groups.codes][order], sample.groups.names)
    moved = replace(sample, z=sample.z[order], y=sample.y[order], groups=groups)
    for before, after in zip(sample.forms().values(), moved.forms().values(), strict=True):
        if not abs(before - after) < NEAR:
            yield f"not depend on the order of rows and names of groups: {before:g}, then {after:g}"


def _hard_form(sample: Sample) -> Iterator[str]:
    """The smooth form of hard predictions is the hard gap."""
    if not sample.constraint.rates:
        return
    data = (sample.z, sample.y, sample.groups, sample.loss, TEMPERATURE)
    whole = Constraint("whole", sample.constraint.surrogate, None)
    ((smooth, _),) = whole.part_gradients(*data, hard=True)
    gap = sample.forms()["gap"]
    if not abs(smooth - gap) < NEAR:
        yield f"have a surrogate of hard predictions, {smooth:g}, like its gap {gap:g}"


def _table(sample: Sample) -> Iterator[str]:
    """For a line of the table: its metric function agrees, and the compared rows exist."""
    constraint, gap = sample.constraint, GAPS.get(sample.constraint.name)
    if gap is None or constraint.rates != gap.rates:
        return
    y, groups, found = sample.y.numpy(), sample.groups, sample.forms()["gap"]
    metric = METRICS[gap.metric_name](y, sample.loss.predict(sample.z), sensitive_features=groups)
    if not abs(metric - found) < NEAR:
        yield f"have a gap like `{gap.metric_name}`, {metric:g}, got {found:g}"
    cells = rows_compared(constraint, y, np.arange(sample.n_classes), groups)
    if not min(cells.values()) > 0:
        yield f"compare rows that exist, got {cells}"
