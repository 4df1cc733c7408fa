"""Settle on one search where several forms may suit, before any edit is made for good."""

from __future__ import annotations

from dataclasses import replace

from fairij.method.group_model import NoChancesError, check_chances
from fairij.method.preparation import Prepared, Settings
from fairij.method.search.reduced import is_linear
from fairij.models.base import KEPT, Editable


def settled(editable: Editable, prepared: Prepared, settings: Settings) -> tuple[Settings, str]:
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
    if forms.otherwise is not None:
        try:
            check_chances(prepared.validation, settings.constraint, prepared.labels.loss)
        except NoChancesError as error:
            other, why = forms.otherwise
            return replace(settings, search=other), f"{why} {error}"
    return replace(settings, search=forms.search), forms.why
