"""Rates that do not exist, because a group lacks the rows that they are taken over, in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from fairij.fairness.groups import Groups
from fairij.fairness.rates import AUDITED_RATES, GAPS, Array, Rate

MOST_TOLD = 8  # sentences, or cells in one
SMALL_CELL = 30  # rows


def undefined_rates(
    rows: Array,  # (G, C, C): how many rows there are
    table: Array,  # (G, C, C): their weights
    groups: Sequence[str],
    classes: Sequence[Any],
) -> tuple[str, ...]:
    """A sentence for each group and label without rows, and one for the gaps that need them."""
    found: dict[tuple[int, tuple[int, ...]], list[str]] = {}
    lacking: set[Rate] = set()
    for rate in AUDITED_RATES:
        undefined = np.isnan(rate.of_groups(table, strict=True))  # (G, K)
        for code, column in np.argwhere(undefined).tolist():
            labels = rate.labels(len(classes))
            cell = (code, labels[min(column, len(labels) - 1)])
            found.setdefault(cell, []).append(rate.words)
            lacking.add(rate)
    if not found:
        return ()
    told = [
        _cell(rows[code], groups[code], labels, classes, sorted(set(rates)))
        for (code, labels), rates in found.items()
    ]
    more = len(told) - MOST_TOLD
    gaps = [gap for gap in GAPS.values() if not lacking.isdisjoint(gap.rates)]
    names = dict.fromkeys(gap.words for gap in gaps if gap.audited)
    return (
        *told[:MOST_TOLD],
        *([f"{more} more groups lack rows like these."] if more > 0 else []),
        *([f"So these have no value: {', '.join(names)}."] if names else []),
    )


def _cell(
    rows: Array, group: str, labels: tuple[int, ...], classes: Sequence[Any], rates: list[str]
) -> str:
    """``rows`` are the counts of one group, ``(C, C)``."""
    own = int(rows.sum(-1)[list(labels)].sum())
    of_label = (
        ""
        if len(labels) == len(classes)
        else " with label " + " or ".join(str(classes[label]) for label in labels)
    )
    which = (
        f"{group!r} has no rows{of_label} (of {int(rows.sum())})"
        if own == 0
        else f"all {own} rows of {group!r}{of_label} have the weight 0"
    )
    return f"Not defined: {' and '.join(rates)} of {group!r}, because {which}."


def small_cells(
    rows: Array,  # (G, C, C)
    groups: Sequence[str],
    classes: Sequence[Any],
) -> tuple[str, ...]:
    """A sentence that names the groups, and labels in groups, with rows but fewer than 30."""
    found = []
    for name, table in zip(groups, rows, strict=True):
        if 0 < table.sum() < SMALL_CELL:
            found.append(f"{table.sum():.0f} of {name!r}")
            continue
        found += [
            f"{n:.0f} of {name!r} with label {classes[label]}"
            for label, n in enumerate(table.sum(-1))
            if 0 < n < SMALL_CELL
        ]
    return _few(found)


WITHOUT, AS_CHANCES = "rows have no group", "Groups are known as chances only"


def without_group(groups: Groups) -> tuple[str, ...]:
    """A sentence on rows without a group, and one on groups that are chances."""
    told = []
    if groups.missing:
        told.append(
            f"{groups.missing:,} of {len(groups):,} {WITHOUT}. They count for the "
            "accuracy and take no part in rates of groups and gaps. If groups are missing more "
            "often for some people than for others, these figures are biased."
        )
    if groups.chances is not None:
        told.append(
            f"{AS_CHANCES}. Gaps that are measured by such proxies are biased "
            "(Chen et al. 2019, Kallus et al. 2022), and intervals do not show it."
        )
    return tuple(told)


def unmet_groups(rows: str, measured: Mapping[str, int], validation: Collection[str]) -> list[str]:
    """Sentences on groups that only these rows have, or only the validation rows."""
    told, new = [], {name: n for name, n in measured.items() if n and name not in validation}
    if new:
        listed = _some([f"{name!r} ({n:,})" for name, n in new.items()])
        told.append(
            f"Groups that no validation row has: {listed} of the {rows}. The edit was made and "
            "chosen without them, so nothing kept their rates near those of the others."
        )
    if absent := [repr(name) for name in validation if not measured.get(name)]:
        told.append(
            f"Groups that none of the {rows} has, but validation rows have: {_some(absent)}. The "
            "gaps here say nothing of them."
        )
    return told


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_TOLD
    return ", ".join(names[:MOST_TOLD]) + (f" and {more:,} more" if more > 0 else "")


def small_groups(sizes: Sequence[int], groups: Sequence[str]) -> tuple[str, ...]:
    """The same where there are no labels."""
    of_size = zip(sizes, groups, strict=True)
    return _few([f"{n} of {name!r}" for n, name in of_size if 0 < n < SMALL_CELL])


def _few(cells: Sequence[str]) -> tuple[str, ...]:
    if not cells:
        return ()
    more = len(cells) - MOST_TOLD
    listed = ", ".join(cells[:MOST_TOLD]) + (f" and {more} more like these" if more > 0 else "")
    return (
        f"Few rows: {listed}. Rates over fewer than {SMALL_CELL} rows, and gaps that need them, "
        "are very uncertain: look at their intervals.",
    )
