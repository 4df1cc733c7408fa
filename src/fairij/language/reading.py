"""Choose and read a result: which comments raised the gap, their words, rates by identity.

Texts may be hateful: nothing is printed here, and texts are returned only on request.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.data.checks import whole_number, zeros_and_ones
from fairij.errors import InvalidInputError
from fairij.fairness.groups import check_rows, unwrapped
from fairij.fairness.rates import confusion_counts, rates_by_name
from fairij.language.texts import one_column, texts_of
from fairij.method.rules import AccuracyBudget

WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True)
class BalancedAccuracyBudget(AccuracyBudget):
    """Take the smallest gap among candidates that lose at most ``budget`` of balanced accuracy.

    It is for rare classes, where accuracy says little.

    Examples
    --------
    >>> from fairij.language import BalancedAccuracyBudget
    >>> BalancedAccuracyBudget(0.005)
    BalancedAccuracyBudget(budget=0.005)
    """

    performance = "balanced_accuracy"


def most_harmful(
    scores: Any, texts: Any = None, *, labels: Any = None, top: int = 20, show_text: bool = False
) -> pd.DataFrame:
    """The rows of highest influence with their scores.

    Parameters
    ----------
    scores : array-like of shape (N,)
        ``influence_`` of a fitted FairIJ. Rows without a score (NaN) are skipped.
    texts : list or column of str, optional
        Texts of the training rows.
    labels : array-like of shape (N,), optional
        Labels of the training rows.
    top : int, default=20
        The largest number of rows.
    show_text : bool, default=False
        Add the texts to the table.

    Examples
    --------
    >>> from fairij.language import most_harmful
    >>> most_harmful([0.1, 0.5, -0.2], top=2)["row"].tolist()
    [1, 0]
    """
    whole_number("top", top, 1)
    scores = np.asarray(unwrapped(scores), dtype=np.float64)
    if scores.ndim != 1:
        raise InvalidInputError(f"`scores` must be a vector, got shape {scores.shape}.")
    columns = {}
    for name, column in (("texts", texts), ("labels", labels)):
        if column is not None:
            columns[name] = one_column(name, unwrapped(column))
            check_rows(name, columns[name], len(scores))
    order = np.argsort(-np.where(np.isnan(scores), -np.inf, scores), kind="stable")
    rows = [int(row) for row in order[:top] if scores[row] > 0]
    table = pd.DataFrame({"row": rows, "influence": scores[rows]})
    if labels is not None:
        table["label"] = [columns["labels"][row] for row in rows]
    if show_text:
        if texts is None:
            raise InvalidInputError("`texts` must be given where `show_text` is True, got None.")
        table["text"] = [columns["texts"][row] for row in rows]
    return table


def over_represented(texts: Any, rows: Any, *, top: int = 30, at_least: int = 5) -> pd.DataFrame:
    """Words that are more frequent in ``rows`` than in all texts.

    ``lift`` is the share of rows with the word, divided by the share of all texts with it. ``z``
    is the excess in standard deviations of a random draw of as many rows. The table is sorted
    by ``z``.

    Parameters
    ----------
    texts : list or column of str, or a table with one such column
        All texts.
    rows : array-like of int or bool
        Row numbers to look at, such as ``dropped_`` of a fitted FairIJ, or a mask.
    top : int, default=30
        The largest number of words.
    at_least : int, default=5
        The number of rows that must have the word.

    Examples
    --------
    >>> from fairij.language import over_represented
    >>> texts = ["red apple", "red car", "blue car", "blue sky"] * 5
    >>> over_represented(texts, [0, 1, 4, 5, 8, 9], at_least=2).iloc[0].name is not None
    True
    """
    whole_number("top", top, 1)
    whole_number("at_least", at_least, 1)
    texts = texts_of("texts", texts)
    rows = _row_numbers(rows, len(texts))
    everywhere: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    chosen = set(rows.tolist())
    for place, text in enumerate(texts):
        words = set(WORD.findall(text.lower()))
        everywhere.update(words)
        if place in chosen:
            inside.update(words)
    n, k = len(texts), len(chosen)
    found = []
    for word, count in inside.items():
        if count < at_least:
            continue
        share = everywhere[word] / n
        deviation = np.sqrt(k * share * (1 - share) * max(n - k, 1) / max(n - 1, 1))
        z = (count - k * share) / deviation if deviation > 0 else 0.0
        found.append((word, count, count / k, share, count / k / share, z))
    table = pd.DataFrame(found, columns=["word", "rows", "share", "share_overall", "lift", "z"])
    return table.sort_values("z", ascending=False, kind="stable").head(top).reset_index(drop=True)


def _row_numbers(values: Any, rows: int) -> NDArray[np.int64]:
    """Row numbers, as given or from a mask of True and False."""
    array = np.asarray(unwrapped(values))
    if array.ndim == 1 and array.dtype.kind == "b":
        check_rows("rows", array, rows)
        array = np.flatnonzero(array)
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise InvalidInputError(
            "`rows` must be row numbers, or True or False for every row; got "
            f"{array.dtype} of shape {array.shape}."
        )
    if len(array) == 0:
        raise InvalidInputError("`rows` must name at least one text, got none.")
    if len(bad := array[(array < 0) | (array >= rows)]):
        raise InvalidInputError(
            f"`rows` must be from 0 to {rows - 1}, as there are {rows} texts; got {bad[0]}: give "
            "the texts that the row numbers belong to."
        )
    return array.astype(np.int64)


def identity_rates(
    y: Any, before: Any, after: Any, identities: Mapping[str, Any] | pd.DataFrame
) -> pd.DataFrame:
    """Rates of comments that mention an identity and of all others, before and after an edit.

    Parameters
    ----------
    y : array-like of shape (N,)
        True labels, 0 or 1.
    before, after : array-like of shape (N,)
        Predicted labels, 0 or 1.
    identities : mapping or DataFrame
        By name, whether each row mentions the identity, 0 or 1. Threshold shares first, as in
        ``shares >= 0.5``.

    Examples
    --------
    >>> from fairij.language import identity_rates
    >>> mentioned = {"muslim": np.array([True, True, False, False])}
    >>> identity_rates([0, 1, 0, 1], [1, 1, 0, 1], [0, 1, 0, 1], mentioned).shape[0] > 0
    True
    """
    if not isinstance(identities, (Mapping, pd.DataFrame)) or len(list(identities)) == 0:
        raise InvalidInputError(
            "`identities` must be columns by name, at least one, as in {'muslim': mentions}; got "
            f"{type(identities).__name__} of length {len(identities)}."
        )
    truth = zeros_and_ones("y", y)
    given = {"before": before, "after": after}
    said = {when: zeros_and_ones(when, labels, len(truth)) for when, labels in given.items()}
    lines = []
    for name, column in identities.items():
        mentioned = zeros_and_ones(f"identities[{name!r}]", column, len(truth))
        for when, predicted in said.items():
            table = confusion_counts(truth, predicted, mentioned, n_groups=2, n_classes=2)
            for code, group in ((1, "mentioned"), (0, "others")):
                facts = {"identity": name, "group": group, "when": when}
                rates = {rate: values[code] for rate, values in rates_by_name(table).items()}
                lines.append({**facts, "rows": int(table[code].sum()), **rates})
    return pd.DataFrame(lines)
