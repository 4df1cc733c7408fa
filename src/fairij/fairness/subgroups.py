"""A search for groups, also where attributes meet, that a model treats unlike all other rows.

Every value of every attribute is looked at, and then every pair and every three of them. The rate
of a value is compared with that of all other rows. The rate of a combination is compared with the
rest of each of its parts: that of older women with that of other women, and with that of other
older people. The largest of these p-values counts, so a combination is found only if it differs
from all of its parts.

Who looks at thousands of groups finds differences by chance. So p-values are corrected for all
comparisons made (Holm 1979): the chance of a single false finding among them stays below one less
the confidence, however the comparisons hang together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import hypergeom

from fairij.errors import InvalidInputError
from fairij.fairness.groups import as_frame
from fairij.fairness.labelled import Labelled
from fairij.fairness.quantiles import normal_above
from fairij.fairness.rates import (
    FALSE_POSITIVE_RATE,
    SELECTION_RATE,
    TRUE_POSITIVE_RATE,
    Array,
    Rate,
    confusion_counts,
    ratio_of,
)

SEARCHED = (SELECTION_RATE, TRUE_POSITIVE_RATE, FALSE_POSITIVE_RATE)
DEEPEST = 3  # attributes that meet
MOST_ATTRIBUTES = 12
MOST_VALUES = 30  # of an attribute; rarer ones are not looked at
FEW_VALUES = 12  # numbers with more values are cut into fifths
FIFTHS = 5
NOTHING = 0.2  # a p-value above this is not computed exactly
FEWEST = 30  # rows that a rate is taken over
COLUMNS = ["group", "attributes", "rate", "value", "others", "difference", "rows", "p"]


@dataclass(frozen=True)
class Subgroups:
    """Groups whose rates surely differ from those of all other rows, largest difference first.

    A combination is listed only if its rate is above, or below, the rest of each of its parts.
    """

    found: pd.DataFrame  # columns: COLUMNS; p is corrected
    groups: int  # that were looked at
    compared: int  # rates of groups
    attributes: tuple[str, ...]
    confidence: float
    remarks: tuple[str, ...] = ()  # what was not looked at


@dataclass(frozen=True)
class _Attribute:
    name: str
    codes: NDArray[np.int64]  # (N,); the last code is "not looked at"
    names: tuple[str, ...]  # of the values


Part = tuple[tuple[str, str], ...]  # (attribute, value) of each attribute that meets
Tables = dict[Part, tuple[Array, Array]]  # counts (C, C) and the same of squared weights


def find_subgroups(data: Labelled, attributes: Any, confidence: float) -> Subgroups:
    """Search all groups that the columns of a table make, alone and where up to three meet."""
    try:
        frame = as_frame(attributes, expected_rows=len(data.y_true), missing="ignore")
    except InvalidInputError as error:
        said = str(error).replace("`sensitive_features`", "`attributes`")
        raise InvalidInputError(said) from None
    if frame.shape[1] > MOST_ATTRIBUTES:
        raise InvalidInputError(
            f"`attributes` must have at most {MOST_ATTRIBUTES} columns, got {frame.shape[1]}: "
            "choose those that matter."
        )
    known = [_attribute(str(name), column) for name, column in frame.items()]
    everyone, every_square = _tables(data, np.zeros(len(data.y_true), dtype=np.int64), 1)
    tables: Tables = {(): (everyone[0], every_square[0])}
    for depth in range(1, min(DEEPEST, len(known)) + 1):
        for meeting in combinations(known, depth):
            tables |= _meet(data, meeting)
    table = pd.DataFrame(_compared(data, tables), columns=["part", *COLUMNS[2:]])
    table["p"] = holm(table["p"].to_numpy(np.float64))
    return Subgroups(
        _listed(table, confidence),
        table["part"].nunique(),
        len(table),
        tuple(attribute.name for attribute in known),
        confidence,
        tuple(_remarks(frame, known)),
    )


def holm(p: Array) -> Array:
    """P-values corrected for their number: the k-th smallest of m times ``m - k + 1``."""
    order = np.argsort(p, kind="stable")
    times = np.arange(len(p), 0, -1)
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * times), 1)
    return corrected


def _attribute(name: str, column: pd.Series[Any]) -> _Attribute:
    """The values of a column as codes; numbers of many values are cut into fifths."""
    is_number = pd.api.types.is_numeric_dtype(column) and column.dtype != bool
    if is_number and column.nunique() > FEW_VALUES:
        return _fifths(name, column)
    text = column.map(str).where(column.notna())
    codes, values = pd.factorize(text)
    frequent = pd.Series(codes[codes >= 0]).value_counts().index[:MOST_VALUES].to_numpy()
    place = np.full(len(values) + 1, len(frequent), dtype=np.int64)  # also of code -1
    place[frequent] = np.arange(len(frequent))
    return _Attribute(name, place[codes], tuple(str(values[code]) for code in frequent))


def _fifths(name: str, column: pd.Series[Any]) -> _Attribute:
    numbers = column.to_numpy(np.float64, na_value=np.nan)
    edges = np.unique(np.nanquantile(numbers, np.linspace(0, 1, FIFTHS + 1)))
    inner = edges[1:-1]
    codes = np.searchsorted(inner, numbers, side="right")
    codes[np.isnan(numbers)] = len(inner) + 1
    ends = [f"{edge:,g}" for edge in inner]
    middle = [f"{low} to under {high}" for low, high in pairwise(ends)]
    values = [f"under {ends[0]}", *middle, f"{ends[-1]} or more"] if ends else ["any number"]
    return _Attribute(name, codes.astype(np.int64), tuple(values))


def _meet(data: Labelled, meeting: tuple[_Attribute, ...]) -> Tables:
    """The counts of every group where these attributes meet."""
    codes = np.zeros(len(data.y_true), dtype=np.int64)
    for attribute in meeting:
        codes = codes * (len(attribute.names) + 1) + attribute.codes
    shape = tuple(len(attribute.names) + 1 for attribute in meeting)
    seen, own = np.unique(codes, return_inverse=True)
    counts, squares = _tables(data, own, len(seen))
    found = {}
    for code, place in enumerate(np.stack(np.unravel_index(seen, shape), -1).tolist()):
        at = list(zip(meeting, place, strict=True))
        if all(value < len(attribute.names) for attribute, value in at):  # else not looked at
            part = tuple((attribute.name, attribute.names[value]) for attribute, value in at)
            found[part] = counts[code], squares[code]
    return found


def _compared(data: Labelled, tables: Tables) -> list[tuple[Any, ...]]:
    """Every rate of every group, with that of all other rows and its p-value."""
    parts = [part for part in tables if part]
    if not parts:
        return []
    counts, squares = _stacked(tables, parts)
    everyone, every_square = tables[()]
    lines = []
    for rate in SEARCHED:
        own = _rates(rate, counts, squares)
        others, _ = _rates(rate, everyone - counts, every_square - squares)
        p, enough = _unlike_all_parts(rate, own, parts, tables)
        names = list(rate.by_class(others, data.classes))
        for at, column in np.argwhere(enough).tolist():
            cell = (at, column)
            value, other, size = (float(v[cell]) for v in (own[0], others, own[1]))
            lines.append((parts[at], names[column], value, other, value - other, size, p[cell]))
    return lines


def _unlike_all_parts(
    rate: Rate, own: tuple[Array, Array], parts: list[Part], tables: Tables
) -> tuple[Array, NDArray[np.bool_]]:
    """The largest p-value of each rate next to the rest of each part, and if all have the rows.

    It is 1 unless the rate is above the rest of every part, or below all of them.
    """
    depth = np.array([len(part) for part in parts])[:, None]
    p, side, enough = np.zeros(own[0].shape), np.zeros(own[0].shape), own[1] >= FEWEST
    counts, squares = _stacked(tables, parts)
    for step in range(depth.max()):  # leave out one attribute after the other
        wholes = [part[:step] + part[step + 1 :] for part in parts]  # itself, if it has fewer
        whole, whole_squares = _stacked(tables, wholes)
        rest = _rates(rate, whole - counts, whole_squares - squares)
        has = step < depth
        enough &= (rest[1] >= FEWEST) | ~has
        p = np.where(has, np.maximum(p, _p_values(*own, *rest)), p)
        side += np.where(has, np.sign(np.nan_to_num(own[0] - rest[0])), 0)
    return np.where(np.abs(side) == depth, p, 1.0), enough


def _stacked(tables: Tables, parts: list[Part]) -> tuple[Array, Array]:
    """Counts and squares of these groups, ``(G, C, C)`` each."""
    found = [tables[part] for part in parts]
    return np.stack([counts for counts, _ in found]), np.stack([squares for _, squares in found])


def _tables(data: Labelled, codes: NDArray[np.int64], n: int) -> tuple[Array, Array]:
    """Counts by group, true and predicted class, and the same of squared weights."""
    weight = data.sample_weight

    def table(own: Array | None) -> Array:
        return confusion_counts(
            data.y_true,
            data.y_pred,
            codes,
            n_groups=n,
            n_classes=len(data.classes),
            sample_weight=own,
        )

    counts = table(weight)
    return counts, counts if weight is None else table(weight**2)


def _rates(rate: Rate, counts: Array, squares: Array) -> tuple[Array, Array]:
    """The rate of each group, and the rows of equal weight that it is worth, ``(G, K)`` each."""
    values, rows = rate.of_groups(counts, strict=True), rate.rows(counts)
    worth = ratio_of(rows**2, rate.rows(squares), empty=0)
    return values, np.broadcast_to(worth, values.shape)


def _p_values(values: Array, size: Array, others: Array, other_size: Array) -> Array:
    """Fisher's exact test, two-sided: twice the smaller tail.

    It takes a moment, so differences that are nothing by a normal approximation keep that p-value.
    """
    rows = np.stack(np.broadcast_arrays(values, size, others, other_size)).round(12)
    rows = np.nan_to_num(rows.reshape(4, -1))
    hits, n, rest, m = np.stack([rows[0] * rows[1], rows[1], rows[2] * rows[3], rows[3]]).round()
    shared = ratio_of(hits + rest, n + m, empty=0)
    spread = np.sqrt(
        shared
        * (1 - shared)
        * (ratio_of(np.ones_like(n), n, empty=0) + ratio_of(np.ones_like(m), m, empty=0))
    )
    p = 2 * normal_above(ratio_of(np.abs(rows[0] - rows[2]), spread, empty=0))
    near = (p < NOTHING) & (np.minimum(n, m) >= FEWEST)
    hits, n, rest, m = (part[near].astype(np.int64) for part in (hits, n, rest, m))
    above = hypergeom.sf(hits - 1, n + m, hits + rest, n)
    below = hypergeom.cdf(hits, n + m, hits + rest, n)
    p[near] = np.minimum(2 * np.minimum(above, below), 1)
    return p.reshape(values.shape)


def _listed(table: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """The clear differences, the largest first."""
    lines, seen = [], set()
    for part, *line, p in table[table["p"] < 1 - confidence].itertuples(index=False):
        names = tuple(attribute for attribute, _ in part)
        rate, value, others = line[:3]
        seen.add((names, rate, value, others))
        if (names, rate, others, value) not in seen:  # of two values, one says it all
            text = ", ".join(f"{attribute}: {v}" for attribute, v in part)
            lines.append((text, names, *line, p))
    found = pd.DataFrame(lines, columns=COLUMNS)
    return found.sort_values("difference", key=np.abs, ascending=False, ignore_index=True)


def _remarks(frame: pd.DataFrame, known: list[_Attribute]) -> Iterator[str]:
    for name, attribute in zip(frame.columns, known, strict=True):
        outside = int((attribute.codes == len(attribute.names)).sum())
        if outside:
            yield (
                f"{outside:,} rows have no value of {name}, or one that is not among its "
                f"{len(attribute.names)} most frequent."
            )
