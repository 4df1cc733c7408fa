"""Reading a result: which comments pushed the gap up, which words they share, who is treated how.

Texts may be hateful: nothing here prints, and texts come back only where they are asked for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fairij.data.checks import whole_number
from fairij.errors import InvalidInputError
from fairij.fairness import arrays, counts
from fairij.language.checks import one_column, row_numbers, texts_of, zeros_and_ones

WORD = re.compile(r"[^\W\d_]{2,}")


def most_harmful(
    scores: Any, texts: Any = None, *, labels: Any = None, top: int = 20, show_text: bool = False
) -> pd.DataFrame:
    """The rows of highest influence with their scores; texts only with ``show_text=True``.

    Parameters
    ----------
    scores : ``influence_`` of a fitted FairIJ; rows without a score (NaN) are passed over
    texts, labels : of the training rows
    top : how many rows at most
    """
    whole_number("top", top, 1)
    scores = np.asarray(arrays.unwrapped(scores), dtype=np.float64)
    if scores.ndim != 1:
        raise InvalidInputError(f"`scores` must be a vector, got shape {scores.shape}.")
    given = {"texts": texts, "labels": labels}
    columns = {
        name: one_column(name, arrays.unwrapped(column))
        for name, column in given.items()
        if column is not None
    }
    for name, column in columns.items():
        arrays.check_rows(name, column, len(scores))
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
    """Words that ``rows`` have more often than all texts do.

    ``lift`` is the share of the rows with the word over the share of all texts with it; ``z``
    measures it in deviations of a draw of as many rows at random, by which the table is sorted.

    Parameters
    ----------
    texts : a list or column of texts, or a table with one such column
    rows : numbers of the texts to look at, as ``dropped_`` of a fitted FairIJ, or True and False
        for every text
    at_least : among the rows, how many must have the word
    """
    whole_number("top", top, 1)
    whole_number("at_least", at_least, 1)
    texts = texts_of("texts", texts)
    rows = row_numbers("rows", rows, len(texts))
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


def identity_rates(
    y: Any, before: Any, after: Any, identities: Mapping[str, Any] | pd.DataFrame
) -> pd.DataFrame:
    """Rates of each identity and of the comments without it, before and after an edit.

    Parameters
    ----------
    y : true labels, 0 or 1
    before, after : predicted labels, 0 or 1
    identities : by name, whether each row mentions it; a share of those who think so must be
        cut first, as in ``shares >= 0.5``
    """
    if not isinstance(identities, (Mapping, pd.DataFrame)) or len(list(identities)) == 0:
        raise InvalidInputError(
            "`identities` must be columns by name, at least one, as in {'muslim': mentions}; got "
            f"{type(identities).__name__} of length {len(identities)}."
        )
    truth = zeros_and_ones("y", y)
    said = {
        when: zeros_and_ones(when, predicted, len(truth))
        for when, predicted in (("before", before), ("after", after))
    }
    lines = []
    for name, column in identities.items():
        mentioned = zeros_and_ones(f"identities[{name!r}]", column, len(truth))
        for when, predicted in said.items():
            table = counts.confusion_counts(truth, predicted, mentioned, n_groups=2, n_classes=2)
            for code, group in ((1, "mentioned"), (0, "others")):
                lines.append(
                    {
                        "identity": name,
                        "group": group,
                        "when": when,
                        "rows": int(table[code].sum()),
                        "selection_rate": counts.selection_rates(table)[code, 1],
                        "true_positive_rate": counts.true_positive_rates(table)[code, 1],
                        "false_positive_rate": counts.false_positive_rates(table)[code, 1],
                    }
                )
    return pd.DataFrame(lines)
