"""Whether every group has enough rows for the rates that a constraint compares."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fairij.errors import InvalidInputError, Notice, SmallGroupWarning
from fairij.fairness.constraints import Constraint
from fairij.fairness.gaps import GAPS
from fairij.fairness.groups import Groups
from fairij.fairness.optimism import half_width, rows_needed

SMALL_CELL = 30  # rows


class Target(Protocol):
    """A rule that chooses an edit, and may ask for a gap of a certain size."""

    @property
    def target(self) -> float | None: ...


def check_sizes(
    constraint: Constraint, y: NDArray[Any], classes: NDArray[Any], groups: Groups
) -> list[Notice]:
    """Raise if a group has too few rows to be compared, note if it has few.

    Parameters
    ----------
    constraint : Constraint
        What is compared.
    y : array of shape (N,)
        Labels as positions in ``classes``, or numbers in regression.
    classes : array of shape (C,)
        The class labels; empty in regression.
    groups : Groups
        The group of each row.

    Returns
    -------
    list of Notice
        What the user should be warned of.
    """
    if constraint.takes_outputs:
        return []  # a user's own function decides for itself
    _check_task(constraint, is_classification=len(classes) > 0)
    if groups.absent:
        raise InvalidInputError(
            f"Every group must have validation rows, but {', '.join(map(repr, groups.absent))} "
            "has none, so its gap is unknown: add rows of it, or remove the unused category."
        )
    if len(groups.names) < 2:
        raise InvalidInputError(
            "A gap needs at least two groups on the validation rows, found only "
            f"{groups.names[0]!r}; add rows of another group."
        )
    cells = rows_compared(constraint, y, classes, groups)
    few = {name: n for name, n in cells.items() if n < 2}
    if few:
        given_label = any(rate.given != "any label" for rate in constraint.rates)
        raise InvalidInputError(
            "Every group needs at least two validation rows"
            + (" of each label that the constraint looks at" if given_label else "")
            + f"; found {_listed(few)}. Add validation rows, merge groups (cut a continuous "
            "attribute into ranges), or choose another constraint."
        )
    small = {name: n for name, n in cells.items() if n < SMALL_CELL}
    if not small:
        return []
    text = (
        f"Few validation rows: {_listed(small)}. Rates over fewer than {SMALL_CELL} rows are very "
        "uncertain; see the intervals in `before_` and `after_`."
    )
    return [Notice(text, SmallGroupWarning)]


def check_precision(
    constraint: Constraint,
    y: NDArray[Any],
    classes: NDArray[Any],
    groups: Groups,
    selection: Target,
) -> list[Notice]:
    """Note if a gap is asked for that is smaller than some group's rows can show.

    Parameters are those of `check_sizes`, and the rule that chooses the edit.
    """
    target = selection.target
    if not target or constraint.takes_outputs or len(classes) == 0:
        return []
    cells = rows_compared(constraint, y, classes, groups)
    rate = _likely_rate(constraint, y)
    enough = rows_needed(rate, target)
    name, n = min(cells.items(), key=lambda item: item[1])
    if n >= enough:
        return []
    text = (
        f"A gap of {target:g} is asked for, but {n} rows of {name!r} show its rate to within "
        f"{half_width(rate, n):.2g} only: about {enough:,} validation rows of each group would do."
    )
    return [Notice(text, SmallGroupWarning)]


def rows_compared(
    constraint: Constraint, y: NDArray[Any], classes: NDArray[Any], groups: Groups
) -> dict[str, int]:
    """How many rows each rate of each group is taken over, by a name that people can read."""
    whole = tuple(range(len(classes)))
    asked = {labels for rate in constraint.rates for labels in rate.labels(len(classes))}
    found = {}
    for code, group in enumerate(groups.names):
        mine = groups.codes == code
        for labels in sorted(asked or {whole}, key=lambda labels: (len(labels), labels)):
            if labels == whole:
                found[group] = int(mine.sum())
                continue
            names = " or ".join(str(classes[label]) for label in labels)
            found[f"{group} with label {names}"] = int((mine & np.isin(y, labels)).sum())
    return found


def _check_task(constraint: Constraint, *, is_classification: bool) -> None:
    if constraint.is_classification == is_classification:
        return
    kind = "classification" if is_classification else "regression"
    fitting = [name for name, gap in GAPS.items() if gap.is_classification == is_classification]
    raise InvalidInputError(
        f"`constraints` must be defined for {kind}: one of {sorted(fitting)}, got "
        f"{constraint.name!r}."
    )


def _likely_rate(constraint: Constraint, y: NDArray[Any]) -> float:
    """The share of positives if shares of predictions are compared, else the widest case."""
    if all(rate.name == "selection_rate" for rate in constraint.rates):
        return min(max(float(np.mean(y == 1)), 0.05), 0.95)
    return 0.5


def _listed(cells: dict[str, int], most: int = 6) -> str:
    some = [f"{n} of {name!r}" for name, n in list(cells.items())[:most]]
    more = len(cells) - len(some)
    return ", ".join(some) + (f" and {more} more like these" if more else "")
