"""Tables and numbers in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def mean_and_deviation(values: pd.Series, digits: int = 4) -> str:
    """Return ``mean ± deviation`` over seeds, or the mean alone if there is one seed."""
    numbers = np.asarray(values, dtype=float)
    if len(numbers) < 2:
        return f"{numbers.mean():.{digits}f}"
    return f"{numbers.mean():.{digits}f} ± {numbers.std(ddof=1):.{digits}f}"


def yes(flag: bool) -> str:
    return "yes" if flag else "no"
