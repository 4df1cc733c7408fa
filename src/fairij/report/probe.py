"""The identity probe of a classifier of texts, for the page: a check, a sentence and a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fairij.errors import InvalidInputError
from fairij.fairness.groups import encode_groups
from fairij.language.probe_sentences import HARMLESS, KINDS
from fairij.language.probes import ProbeChange, identities_of, identity_probe, scored
from fairij.language.texts import one_column
from fairij.mitigator import FairIJ
from fairij.report.verdicts import Check
from fairij.report.wording import MINUS, is_edited, listed

LOOKED_AT = 20  # rows, to see whether they are texts
QUESTION = "Does the model fear a word?"


def are_texts(X: Any) -> bool:
    """Whether rows are texts: a list or column of them, or a table with one such column."""
    if isinstance(X, pd.DataFrame) and X.shape[1] == 1:
        X = X.iloc[:, 0]
    if not isinstance(X, (list, pd.Series, np.ndarray)) or np.ndim(X[:1]) != 1 or len(X) == 0:
        return False
    return all(isinstance(text, str) for text in list(X[:LOOKED_AT]))


def probed(
    fitted: FairIJ,
    tables: Sequence[tuple[Any, Any]],  # (rows, their groups or None)
    templates: Mapping[str, Sequence[str]] | None = None,
    prepare: Callable[[list[str]], Any] | None = None,  # texts -> rows as the model takes them
) -> ProbeChange | None:
    """The probe before and after, if some of the tables are texts and there are two classes.

    None also for a model that takes no texts, if nothing can make its rows of them.
    """
    texts = [(X, groups) for X, groups in tables if X is not None and are_texts(X)]
    if not texts or not fitted.loss_.is_classification or len(fitted.classes_) > 2:
        return None
    models = (fitted.estimator, fitted.estimator_)
    if prepare is None and not _takes_texts(fitted.estimator):
        return None
    before, after = (identity_probe(_asked(m, prepare), templates=templates) for m in models)
    with_groups = ((X, groups) for X, groups in texts if groups is not None)
    X, groups = next(with_groups, (None, None))
    meant = () if X is None else identities_of(one_column("X", X), encode_groups(groups))
    return after.since(before, protected=meant or None)


def _takes_texts(model: Any) -> bool:
    try:
        scored(model, ["One text."])
    except InvalidInputError:
        return False
    return True


def _asked(model: Any, prepare: Callable[[list[str]], Any] | None) -> Any:
    return model if prepare is None else lambda texts: scored(model, prepare(texts))


def probe_check(fitted: FairIJ, change: ProbeChange) -> Check:
    """The verdict of the probe as one of the page's checks."""
    found = Check(QUESTION, change.verdict, change.sentence, change.sentence)
    if change.verdict != "red" or not is_edited(fitted):
        return found
    text = (
        f"{change.sentence} The edit closes the gap by calling harmless mentions positive. Do not "
        "use it to decide about what people write. Demographic parity is the wrong question where "
        "groups are insulted more or less often than others: predictive equality asks that "
        "harmless texts are called positive equally often. Sentences can take part in the edit "
        "(--identity, or `fairij.language.identity_constraint` in Python): their scores must then "
        "be those of other identities, so name some that the model does not fear."
    )
    return Check(QUESTION, "red", text, change.sentence)


def probe_summary(change: ProbeChange) -> dict[str, Any]:
    """The probe as it is kept with the other figures of a run."""
    return {
        "verdict": change.verdict,
        "sentence": change.sentence,
        "protected": list(change.protected),
        "rates": change.table.to_dict(orient="records"),
    }


def probe_section(change: ProbeChange) -> dict[str, Any]:
    """What the template shows: a paragraph, and one line per identity."""
    names = list(change.before.rates.index)
    whole = len(names) == len(change.protected)
    about = "any identity" if whole else listed([repr(name) for name in change.protected])
    kinds = [kind for kind in KINDS if kind in change.before.rates.columns]
    rows = [
        {
            "identity": name,
            "protected": name in change.protected and not whole,
            "cells": [
                (f"{change.before.rates[kind][name]:.0%}", f"{change.after.rates[kind][name]:.0%}")
                for kind in kinds
            ],
        }
        for name in sorted(names, key=lambda name: name not in change.protected)
    ]
    flips = [
        (
            kind,
            f"{change.before.flips[kind]:.0%}",
            f"{change.after.flips[kind]:.0%}",
            f"{change.moved[kind]:+.3f}".replace("-", MINUS),
        )
        for kind in kinds
    ]
    text = (
        f"The model was tried on {len(change.before.sentences):,} sentences. They are the same for "
        f"every identity but for its name. No sentence that is {' or '.join(HARMLESS)} should be "
        f"called positive, whatever identity it names. The edit was meant for {about}."
    )
    return {
        "text": text,
        "kinds": kinds,
        "rows": rows,
        "flips": flips,
        "verdict": change.verdict,
        "sentence": change.sentence,
    }
