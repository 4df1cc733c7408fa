"""Reading a result: scores without texts, words by lift, rates by identity."""

from __future__ import annotations

import numpy as np
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
