"""Where the harmful rows concentrate: values that occur among them more often than elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import hypergeom

from fairij.report.training_table import TrainingTable
from fairij.report.wording import number, shortened

SEED = 0
MOST_ROWS = 200_000  # of the others, and of the harmful ones; beyond that a random part
MOST_COLUMNS = 100
MOST_VALUES = 30  # of a column, the most frequent among the harmful rows
FEW_VALUES = 12  # numbers of so few values are taken as categories
BINS = 5
FEWEST = 5  # harmful rows in a slice
SIGNIFICANT = 0.01  # after Bonferroni's correction for all slices looked at
LEAST_LIFT = 1.2
PARENTS = 12
SAME = 0.9  # of the rows of two slices shared: they are one
PAIR_GAIN = 1.15  # a pair must be this much more concentrated than both of its halves


@dataclass(frozen=True)
class Slice:
    """Rows that share a value (or two), and how much more often they occur among the harmful."""

    columns: tuple[str, ...]
    text: str
    harmful: int
    share_harmful: float
    share_all: float
    p_value: float  # corrected

    @property
    def lift(self) -> float:
        return self.share_harmful / self.share_all


Found = tuple[Slice, NDArray[np.bool_]]  # with its rows in the sample


@dataclass(frozen=True)
class Concentration:
    """The slices found, and what was looked at to find them."""

    slices: list[Slice]
    harmful: int
    rows: int
    tested: int
    columns_left_out: int


@dataclass(frozen=True)
class _Sample:
    """Harmful rows first, then others; the others stand for all rows that are not harmful."""

    frame: pd.DataFrame
    harmful: int  # how many of the frame's rows
    share: float  # of harmful rows among all rows

    def counts(self, member: NDArray[np.bool_]) -> tuple[int, int]:
        inside = int(member[: self.harmful].sum())
        return inside, int(member.sum()) - inside

    def slice(
        self, columns: tuple[str, ...], text: str, member: NDArray[np.bool_], tested: int
    ) -> Slice:
        inside, outside = self.counts(member)
        total, others = len(self.frame), len(self.frame) - self.harmful
        p = float(hypergeom.sf(inside - 1, total, inside + outside, self.harmful))
        among = inside / self.harmful
        overall = self.share * among + (1 - self.share) * (outside / others if others else 0.0)
        return Slice(columns, text, inside, among, overall, min(1.0, p * tested))


def concentration(
    table: TrainingTable, harmful: NDArray[np.int64], scored: NDArray[np.int64], most: int = 15
) -> Concentration:
    """The slices over-represented among ``harmful``, rows out of ``scored``; strongest first."""
    sample = _sample(table, harmful, scored)
    if sample is None:
        return Concentration([], len(harmful), len(scored), 0, 0)
    chosen, left_out = _columns(sample)
    candidates = [
        (column, text, member)
        for column in chosen
        for text, member in _values(sample.frame[column], sample.harmful)
    ]
    tested = max(1, len(candidates) + left_out * BINS)
    singles = [
        (sample.slice((column,), text, member, tested), member)
        for column, text, member in candidates
    ]
    singles = [(found, member) for found, member in singles if _stands_out(found)]
    singles.sort(key=lambda pair: _strength(pair[0]), reverse=True)
    pairs, tested = _pairs(sample, singles[:PARENTS], tested)
    found = _different(singles, len(sample.frame)) + _different(pairs, sample.harmful)
    found = sorted(found, key=_strength, reverse=True)[:most]
    return Concentration(found, len(harmful), len(scored), tested, left_out)


def _sample(
    table: TrainingTable, harmful: NDArray[np.int64], scored: NDArray[np.int64]
) -> _Sample | None:
    others = np.setdiff1d(scored, harmful, assume_unique=True)
    if len(harmful) < FEWEST or len(others) < FEWEST:
        return None
    rng = np.random.default_rng(SEED)
    parts = [
        rows if len(rows) <= MOST_ROWS else np.sort(rng.choice(rows, MOST_ROWS, replace=False))
        for rows in (harmful, others)
    ]
    frame = table.take(np.concatenate(parts))
    return _Sample(frame, len(parts[0]), len(harmful) / len(scored)) if frame.shape[1] else None


def _columns(sample: _Sample) -> tuple[list[str], int]:
    """All columns; of a very wide table those whose mean is most different among the harmful."""
    frame = sample.frame
    names = list(frame.columns)
    if len(names) <= MOST_COLUMNS:
        return names, 0
    numeric = frame.select_dtypes("number")
    spread = numeric.std().replace(0, np.nan)
    shift = ((numeric.iloc[: sample.harmful].mean() - numeric.mean()) / spread).abs()
    widest = set(shift.fillna(0).nlargest(MOST_COLUMNS).index)
    kept = [name for name in names if name in widest or name not in numeric.columns]
    kept = kept[: MOST_COLUMNS + 10]
    return kept, len(names) - len(kept)


def _values(column: pd.Series, harmful: int) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Each value of a column (or each fifth of its range) with the rows that have it."""
    name = str(column.name)
    if pd.api.types.is_numeric_dtype(column) and column.nunique() > FEW_VALUES:
        yield from _bins(name, column)
        return
    if not all(map(pd.api.types.is_scalar, column.iloc[:FEWEST])):
        return  # lists and the like are no values to compare
    counted = column.iloc[:harmful].value_counts(dropna=False)
    for value in counted.index[counted >= FEWEST][:MOST_VALUES]:
        member = column.isna() if pd.isna(value) else column == value
        shown = "missing" if pd.isna(value) else _shown(value)
        yield f"{name}: {shown}", member.to_numpy(bool)


def _bins(name: str, column: pd.Series) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    values = column.to_numpy(np.float64, na_value=np.nan)
    edges = np.unique(np.nanquantile(values, np.linspace(0, 1, BINS + 1)))
    for place, (low, high) in enumerate(pairwise(edges)):
        last = place == len(edges) - 2
        member = (values >= low) & ((values <= high) if last else (values < high))
        end = "to" if last else "to under"
        yield f"{name}: {number(low)} {end} {number(high)}", member
    if np.isnan(values).any():
        yield f"{name}: missing", np.isnan(values)


def _pairs(sample: _Sample, parents: list[Found], tested: int) -> tuple[list[Found], int]:
    both = [
        (first[0], second[0], first[1] & second[1])
        for first, second in combinations(parents, 2)
        if first[0].columns != second[0].columns
    ]
    tested += len(both)
    found = []
    for first, second, member in both:
        pair = sample.slice(
            first.columns + second.columns, f"{first.text} and {second.text}", member, tested
        )
        if _stands_out(pair) and pair.lift > PAIR_GAIN * max(first.lift, second.lift):
            found.append((pair, member))
    return found, tested


def _different(found: list[Found], rows: int) -> list[Slice]:
    """The strongest first, without those that pick nearly the same of the first ``rows`` rows.

    Two columns may be a code and its name; two pairs may pick the same harmful rows.
    """
    kept: list[Found] = []
    for candidate, member in sorted(found, key=lambda pair: _strength(pair[0]), reverse=True):
        mine = member[:rows]
        if not any((mine & other).sum() > SAME * (mine | other).sum() for _, other in kept):
            kept.append((candidate, mine))
    return [candidate for candidate, _ in kept]


def _stands_out(found: Slice) -> bool:
    return (
        found.harmful >= FEWEST
        and found.share_harmful >= 0.02
        and found.lift >= LEAST_LIFT
        and found.p_value < SIGNIFICANT
    )


def _strength(found: Slice) -> float:
    """How many harmful rows are there beyond the expected, as a share: lift and size together."""
    return found.share_harmful - found.share_all


def _shown(value: object) -> str:
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    return number(value) if is_number else shortened(value, 60)
