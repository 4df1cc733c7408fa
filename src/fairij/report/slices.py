"""Values that are more frequent among the harmful rows than among all rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import hypergeom

from fairij.report.training_table import TrainingTable
from fairij.report.wording import amount, shortened, value_text

SEED = 0
MOST_ROWS = 200_000  # of the harmful rows, and of the others; a random sample of more
MOST_COLUMNS = 100
MOST_VALUES = 30  # per column: the most frequent among the harmful rows
FEW_VALUES = 12  # a numeric column with at most this many values is taken as categories
BINS = 5
CODES = {"zip", "zipcode", "postcode", "postal", "plz", "code", "id", "fips", "nr"}  # in names
FEWEST = 5  # harmful rows in a slice
LEAST_SHARE = 0.02  # of the harmful rows
SIGNIFICANT = 0.01  # after Bonferroni's correction for all slices that were compared
LEAST_LIFT = 1.2
PARENTS = 12  # the strongest slices, which are combined into pairs
SAME = 0.9  # two slices that share this much of their rows count as one
PAIR_GAIN = 1.15  # the lift of a pair must be this many times that of both its parts


@dataclass(frozen=True)
class Slice:
    """Rows that share a value, or two, and their share of the harmful rows and of all rows."""

    columns: tuple[str, ...]
    text: str
    harmful: int
    share_harmful: float
    share_all: float
    p_value: float  # corrected

    @property
    def lift(self) -> float:
        return self.share_harmful / self.share_all

    @property
    def stands_out(self) -> bool:
        is_large = self.harmful >= FEWEST and self.share_harmful >= LEAST_SHARE
        return is_large and self.lift >= LEAST_LIFT and self.p_value < SIGNIFICANT


Found = tuple[Slice, NDArray[np.bool_]]  # a slice and its rows in the sample


@dataclass(frozen=True)
class Concentration:
    """The slices found, and how much was compared to find them."""

    slices: list[Slice]
    harmful: int
    rows: int
    tested: int


@dataclass(frozen=True)
class _Sample:
    """Harmful rows first, then others, which represent all rows that are not harmful."""

    frame: pd.DataFrame
    harmful: int  # how many of the frame's rows are harmful
    share: float  # of harmful rows among all rows

    def slice(
        self, columns: tuple[str, ...], text: str, member: NDArray[np.bool_], tested: int
    ) -> Slice:
        inside, size, total = int(member[: self.harmful].sum()), int(member.sum()), len(self.frame)
        p = float(hypergeom.sf(inside - 1, total, size, self.harmful))
        among, elsewhere = inside / self.harmful, (size - inside) / (total - self.harmful)
        overall = self.share * among + (1 - self.share) * elsewhere
        return Slice(columns, text, inside, among, overall, min(1.0, p * tested))


def concentration(
    table: TrainingTable, harmful: NDArray[np.int64], scored: NDArray[np.int64], most: int = 15
) -> Concentration:
    """The slices that are over-represented among the rows ``harmful`` of ``scored``."""
    sample = _sample(table, harmful, scored)
    if sample is None:
        return Concentration([], len(harmful), len(scored), 0)
    chosen, left_out = _columns(sample)
    values = [
        (column, text, member)
        for column in chosen
        for text, member in _values(sample.frame[column], sample.harmful)
    ]
    tested = max(1, len(values) + left_out * BINS)
    slices = [(sample.slice((c,), text, member, tested), member) for c, text, member in values]
    singles = _strongest_first([found for found in slices if found[0].stands_out])
    pairs, tested = _pairs(sample, singles[:PARENTS], tested)
    found = _different(singles, len(sample.frame)) + _different(pairs, sample.harmful)
    shown = [slice_ for slice_, _ in _strongest_first(found)[:most]]
    return Concentration(shown, len(harmful), len(scored), tested)


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
    """All columns; of a wide table those whose mean differs most among the harmful rows."""
    frame, names = sample.frame, list(sample.frame.columns)
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
    """Each value of a column, or each fifth of a numeric one, with the rows that have it."""
    name = str(column.name)
    is_numeric = pd.api.types.is_numeric_dtype(column) and not is_code(column)
    if is_numeric and column.nunique() > FEW_VALUES:
        yield from _bins(name, column)
        return
    if not all(map(pd.api.types.is_scalar, column.iloc[:FEWEST])):
        return  # lists and the like cannot be compared
    counted = column.iloc[:harmful].value_counts(dropna=False)
    for value in counted.index[counted >= FEWEST][:MOST_VALUES]:
        member = column.isna() if pd.isna(value) else column == value
        is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        shown = value_text(value) if is_number else shortened(value, 60)
        yield f"{name}: {'missing' if pd.isna(value) else shown}", member.to_numpy(bool)


def is_code(column: pd.Series) -> bool:
    """Whether whole numbers are names of something, such as zip codes: no order means anything."""
    words = set(re.split(r"[^a-z]+", str(column.name).lower()))
    if words.isdisjoint(CODES) or not pd.api.types.is_numeric_dtype(column):
        return False
    return bool((column.dropna() % 1 == 0).all())


def _bins(name: str, column: pd.Series) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    values = column.to_numpy(np.float64, na_value=np.nan)
    edges = np.unique(np.nanquantile(values, np.linspace(0, 1, BINS + 1)))
    for place, (low, high) in enumerate(pairwise(edges)):
        first, last = place == 0, place == len(edges) - 2
        member = (values >= low) & ((values <= high) if last else (values < high))
        # the lowest and the highest value are those of one person, so they are not said
        text = f"{amount(low)} to under {amount(high)}"
        if first != last:
            text = f"under {amount(high)}" if first else f"{amount(low)} or more"
        yield f"{name}: {'any number' if first and last else text}", member
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
        if pair.stands_out and pair.lift > PAIR_GAIN * max(first.lift, second.lift):
            found.append((pair, member))
    return found, tested


def _different(found: list[Found], rows: int) -> list[Found]:
    """Without slices that share nearly all of the first ``rows`` rows with a stronger one."""
    kept: list[Found] = []
    for candidate, member in _strongest_first(found):
        mine = member[:rows]
        if not any((mine & other).sum() > SAME * (mine | other).sum() for _, other in kept):
            kept.append((candidate, mine))
    return kept


def _strongest_first(found: list[Found]) -> list[Found]:
    """By the share of harmful rows beyond the expected share, which counts lift and size."""
    return sorted(found, key=lambda one: one[0].share_harmful - one[0].share_all, reverse=True)
