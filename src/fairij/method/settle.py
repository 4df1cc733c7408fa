"""Settle on one search where the one asked for depends on the model."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from fairij.method.encoding import NoChancesError
from fairij.method.engine import Engine
from fairij.method.group_model import check_chances
from fairij.method.preparation import Prepared, Settings
from fairij.method.run import silent, timed
from fairij.method.search.base import Search
from fairij.method.search.reduced import is_linear
from fairij.method.selection import measures_of
from fairij.method.types import folds
from fairij.models.base import KEPT, Editable

PARTS = 2  # of the validation rows, for a comparison
NAMES = (
    "the constrained search by chances of groups",
    "the constrained search with groups as observed",
)


def settled(
    editable: Editable,
    prepared: Prepared,
    settings: Settings,
    seconds: dict[str, float],
) -> tuple[Settings, str]:
    """The settings with one search, and a sentence that says why; empty if it was asked for.

    From here on, the constraint is one on the decisions of this model.
    """
    settings = settings.for_model(prepared)
    forms = settings.search.forms(
        trained_together=editable.trained_together,
        drop=settings.drop,
        runs_model=prepared.objective.model.mode not in KEPT,
        linear=is_linear(prepared.objective),
    )
    if forms is None:
        return settings, ""
    taken, why = forms.search, forms.why
    if forms.otherwise is not None:
        other, its_own = forms.otherwise
        try:
            check_chances(prepared.validation, settings.constraint, prepared.labels.loss)
        except NoChancesError as error:
            return replace(settings, search=other), f"{its_own} {error}"
        if forms.compared:
            with timed(seconds, "forms"):
                both = (forms.search, other)
                tables = [_tried(one, editable, prepared, settings) for one in both]
                place, why = better(tables, settings)
                taken = both[place]
    return replace(settings, search=taken), why


def _tried(
    search: Search, editable: Editable, prepared: Prepared, settings: Settings
) -> pd.DataFrame:
    """The candidates of a search, made on halves of the validation rows, judged on the others."""
    apart = replace(settings, validation_use="cross_fit", search=search.quicker)
    loss, classes = prepared.labels.loss, len(prepared.labels.classes)
    pairs = folds(prepared.validation, apart, loss, classes, PARTS)
    table: pd.DataFrame = Engine(editable, prepared, apart, silent).tried(pairs)[-1]
    return table


def better(tables: list[pd.DataFrame], settings: Settings) -> tuple[int, str]:
    """The search whose own choice the rule takes before that of the other, and why."""
    rule = settings.selection
    choices = [table.iloc[[rule.choose(measures_of(table))]] for table in tables]
    unedited = tables[0].iloc[[0]]
    best = rule.choose(measures_of(pd.concat([unedited, *choices], ignore_index=True)))
    taken = max(best - 1, 0)
    level = rule.performance or ("accuracy" if "accuracy" in unedited else "r2")
    told = [
        f"{name}: gap {float(row['gap'].iloc[0]):.4f}, "
        f"{level.replace('_', ' ')} {float(row[level].iloc[0]):.4f}"
        for name, row in zip(NAMES, choices, strict=True)
    ]
    return taken, (
        f"This is {NAMES[taken]}. It was taken by its choice on validation rows that its edits "
        f"had not seen ({'; '.join(told)})."
    )
