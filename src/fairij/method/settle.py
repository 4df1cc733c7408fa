"""Settle on one search where several forms may suit, before any edit is made for good."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from fairij.method.engine import Engine
from fairij.method.group_model import NoChancesError
from fairij.method.preparation import Prepared, Settings
from fairij.method.run import Progress, silent, timed
from fairij.method.search.base import Forms
from fairij.method.search.reduced import is_linear
from fairij.method.selection import measures_of
from fairij.method.types import folds
from fairij.models.base import KEPT, Editable

PARTS = 2  # of the validation rows, for the comparison


def settled(
    editable: Editable,
    prepared: Prepared,
    settings: Settings,
    progress: Progress,
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
    if len(forms.searches) == 1:
        return replace(settings, search=forms.searches[0]), forms.why
    with timed(seconds, "forms"):
        tables, refused = _tables(forms, editable, prepared, settings, progress)
    if len(tables) < 2:  # the last one can always be run
        taken = next(iter(tables), len(forms.searches) - 1)
        why = f"This is {forms.names[taken]}. {refused}"
    else:
        taken, why = better(forms, tables, settings)
    return replace(settings, search=forms.searches[taken]), why


def _tables(
    forms: Forms, editable: Editable, prepared: Prepared, settings: Settings, progress: Progress
) -> tuple[dict[int, pd.DataFrame], str]:
    """The cross-fitted candidates of each form that can be run, and why another cannot."""
    found, refused, last = dict[int, pd.DataFrame](), "", len(forms.searches) - 1
    apart, loss = replace(settings, validation_use="cross_fit"), prepared.labels.loss
    pairs = folds(prepared.validation, apart, loss, len(prepared.labels.classes), PARTS)
    for place, search in enumerate(forms.searches):
        if place == last and not found:
            break  # nothing to compare it with
        progress("forms", place, last + 1)
        engine = Engine(editable, prepared, replace(apart, search=search.quicker), silent)
        try:
            found[place] = engine.tried(pairs)[-1]
        except NoChancesError as error:
            refused = str(error)
    progress("forms", last + 1, last + 1)
    return found, refused


def better(forms: Forms, tables: dict[int, pd.DataFrame], settings: Settings) -> tuple[int, str]:
    """The form whose own choice the rule takes before those of the others."""
    rule, places = settings.selection, list(tables)
    choices = [table.iloc[[rule.choose(measures_of(table))]] for table in tables.values()]
    unedited = next(iter(tables.values())).iloc[[0]]
    best = rule.choose(measures_of(pd.concat([unedited, *choices], ignore_index=True)))
    taken = places[max(best - 1, 0)]
    usual = "accuracy" if "accuracy" in unedited else "r2"
    level = rule.performance or usual
    told = [
        f"{forms.names[place]}: gap {float(row['gap'].iloc[0]):.4f}, "
        f"{level.replace('_', ' ')} {float(row[level].iloc[0]):.4f}"
        for place, row in zip(places, choices, strict=True)
    ]
    return taken, (
        f"This is {forms.names[taken]}. It was taken by its choice on validation rows that its "
        f"edits had not seen ({'; '.join(told)})."
    )
