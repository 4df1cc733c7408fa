"""Reading a result: scores without texts, words by lift, rates by identity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from fairij.errors import InvalidInputError
from fairij.language.reading import identity_rates, most_harmful, over_represented

TEXTS = ["bad words here", "plain words", "bad again", "more plain words", "words", "nothing"]


def test_texts_come_only_when_asked_for() -> None:
    scores = [0.2, np.nan, 0.5, -1.0, 0.0, 0.1]
    table = most_harmful(scores, TEXTS, labels=[1, 0, 1, 0, 0, 0])
    assert table["row"].tolist() == [2, 0, 5]
    assert table["label"].tolist() == [1, 1, 0]
    assert "text" not in table
    assert most_harmful(scores, TEXTS, top=1, show_text=True)["text"].tolist() == ["bad again"]
    with pytest.raises(InvalidInputError, match="`texts` must be given"):
        most_harmful(scores, show_text=True)


def test_lift_is_the_share_among_rows_over_the_share_overall() -> None:
    table = over_represented(TEXTS, [0, 2], at_least=1).set_index("word")
    assert table.loc["bad", "lift"] == pytest.approx(1.0 / (2 / 6))
    assert table.loc["words", "lift"] == pytest.approx(0.5 / (4 / 6))
    assert table.index[0] == "bad"
    # by hypergeometric: k p = 2/3, variance k p (1-p) (n-k)/(n-1)
    expected = (2 - 2 / 3) / np.sqrt(2 * (1 / 3) * (2 / 3) * 4 / 5)
    assert table.loc["bad", "z"] == pytest.approx(expected)
    assert over_represented(TEXTS, [0, 2], at_least=2)["word"].tolist() == ["bad"]
    with pytest.raises(InvalidInputError, match="at least one text"):
        over_represented(TEXTS, [])


def test_rates_by_identity_before_and_after() -> None:
    y = [1, 0, 1, 0, 1, 0]
    before, after = [1, 1, 0, 0, 1, 0], [1, 0, 1, 0, 1, 0]
    table = identity_rates(y, before, after, {"m": [True, True, True, False, False, False]})
    rates = table.set_index(["group", "when"])
    assert rates.loc[("mentioned", "before"), "true_positive_rate"] == 0.5
    assert rates.loc[("mentioned", "before"), "false_positive_rate"] == 1.0
    assert rates.loc[("mentioned", "after"), "false_positive_rate"] == 0.0
    assert rates.loc[("others", "after"), "selection_rate"] == pytest.approx(1 / 3)
    assert table["rows"].tolist() == [3, 3, 3, 3]


def test_texts_and_labels_must_be_those_of_the_scores() -> None:
    scores = np.arange(6.0)
    for given, complaint in [
        ({"texts": TEXTS[:5]}, "`texts` must have one row per data point: expected 6, got 5"),
        ({"texts": ["more", *TEXTS]}, "`texts` must have .* expected 6, got 7"),
        ({"labels": [0, 1]}, "`labels` must have .* expected 6, got 2"),
        ({"top": -1}, "`top` must be a whole number of at least 1; got -1"),
        ({"scores": [[0.1]]}, "`scores` must be a vector"),
    ]:
        with pytest.raises(InvalidInputError, match=complaint):
            most_harmful(**{"scores": scores, **given})
    texts = pd.Series(TEXTS, index=range(50, 56))
    assert most_harmful(scores, texts, top=1, show_text=True)["text"].tolist() == ["nothing"]


def test_rows_are_numbers_or_a_mask() -> None:
    by_numbers = over_represented(TEXTS, [0, 2], at_least=1)
    mask = np.array([True, False, True, False, False, False])
    pd.testing.assert_frame_equal(over_represented(TEXTS, mask, at_least=1), by_numbers)
    frame = pd.DataFrame({"comment": TEXTS, "n": range(6)})
    pd.testing.assert_frame_equal(over_represented(frame, [0, 2], at_least=1), by_numbers)
    for rows, complaint in [
        (mask[:5], "expected 6, got 5"),
        (np.zeros(6, dtype=bool), "at least one text"),
        ([0, 99999], "from 0 to 5, as there are 6 texts; got 99999"),
        ([-1, -2], "from 0 to 5, .* got -1"),
        ([0.7], "must be row numbers, or True or False"),
    ]:
        with pytest.raises(InvalidInputError, match=complaint):
            over_represented(TEXTS, rows, at_least=1)
    for texts, complaint in [
        ([None, *TEXTS], "`texts` must be texts, but row 0 holds None"),
        ("bad words", "must be a list or column of texts, got a single text"),
    ]:
        with pytest.raises(InvalidInputError, match=complaint):
            over_represented(texts, [0])


GIVEN: dict[str, Any] = {
    "y": [1, 0, 1, 0],
    "before": [1, 1, 0, 0],
    "after": [1, 0, 1, 0],
    "identities": {"m": [1, 1, 0, 0]},
}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"identities": {"m": [0.8, 0.0, 1.0, 0.0]}}, r"\['m'\]` must be 0 or 1 .* >= 0.5`"),
        ({"identities": {"m": [np.nan, 0.0, 1.0, 0.0]}}, r"\['m'\]` must not hold missing"),
        (
            {"identities": {"m": [2, 0, 0, 1]}},
            r"row 0 holds 2; say which values are 1, as in .* == 2`",
        ),
        (
            {"identities": {"m": ["a", "b", "a", "b"]}},
            r"row 0 holds 'a'; say which values .* == 'a'`",
        ),
        ({"identities": {"m": [1, 0, 1]}}, r"\['m'\]` must have .* expected 4, got 3"),
        ({"identities": {}}, "must be columns by name, at least one"),
        ({"identities": [1, 0, 1, 0]}, "must be columns by name, .* got list of length 4"),
        ({"before": [0.9, 0.2, 0.1, 0.6]}, "`before` must be 0 or 1 .* as in `before >= 0.5`"),
        ({"after": [2.5, -0.2, 0.1, 0.6]}, "`after` must be 0 or 1 .* as in `after >= 0`"),
        ({"before": [1]}, "`before` must have one row per data point: expected 4, got 1"),
        ({"y": ["fine", "toxic", "fine", "fine"]}, "`y` must be 0 or 1 .* row 0 holds 'fine'"),
        ({"y": [2, 1, 1, 2]}, "`y` must be 0 or 1 in every row: row 0 holds 2"),
    ],
)
def test_rates_are_of_labels_and_mentions_of_0_and_1(given: Any, complaint: str) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        identity_rates(**{**GIVEN, **given})


def test_booleans_and_whole_floats_are_zeros_and_ones() -> None:
    expected = identity_rates(**GIVEN)
    for kind in (bool, float):
        given = {name: np.array(GIVEN[name], dtype=kind) for name in ("y", "before", "after")}
        frame = pd.DataFrame(GIVEN["identities"]).astype(kind)
        pd.testing.assert_frame_equal(identity_rates(**given, identities=frame), expected)
