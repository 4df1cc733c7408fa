"""Sentences with an identity swapped, as a constraint: the edit does not fear the word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from comments import made_up_comments
from fairij import FairIJ
from fairij.errors import InvalidInputError
from fairij.language import identity_constraint, identity_probe, swappable

EVEN = {"neutral": ["{Many} came to the town.", "This is {one}."], "kind": ["I like {many}."]}


@pytest.mark.filterwarnings("ignore::fairij.errors.SeenRowsWarning")  # they are short
def test_an_edit_closes_the_gap_and_harmless_sentences_stay_harmless() -> None:
    texts, y, s = made_up_comments()
    model = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts[:1500], y[:1500])
    given = {"X_val": texts[1500:], "y_val": y[1500:], "sensitive_features_val": s[1500:]}

    def edited(*more: Any) -> FairIJ:
        both = ["demographic_parity", *more]
        fair = FairIJ(model, constraints=both, search="constrained", selection="lowest_gap")
        return fair.fit(texts[:1500], y[:1500], **given)

    fair = edited(identity_constraint("muslim"))

    def apart(one: Any) -> float:
        """How much higher sentences about Muslims are scored than others."""
        scores = identity_probe(one, templates=EVEN).scores.mean(axis=1)
        return float(scores["muslim"] - scores.drop("muslim").mean())

    assert apart(edited()) > max(0.05, apart(model))
    assert abs(apart(fair)) < 0.03
    gaps = fair.candidates_.iloc[[0, fair.chosen_]]
    assert gaps["gap[identity]"].iloc[1] < 0.02
    assert gaps["gap[groups]"].iloc[1] < gaps["gap[groups]"].iloc[0]


def test_texts_that_name_an_identity_become_templates() -> None:
    texts = ["My neighbour is a Hindu.", "nothing here", "Women and men", "{many} too"]
    assert swappable(texts) == ["My neighbour is {one}.", "{Many} and men", "{many} too"]
    rows = identity_constraint("woman", templates=swappable(texts), identities=["woman", "man"])
    assert list(rows.X)[:2] == ["My neighbour is a woman.", "My neighbour is a man."]
    assert np.unique(rows.pairs).tolist() == ["neutral 0", "neutral 1", "neutral 2"]


def test_bad_input() -> None:
    with pytest.raises(InvalidInputError, match="none of the 2 texts does"):
        swappable(["no one", ""])
    with pytest.raises(InvalidInputError, match="`texts` must be texts, but row 1"):
        swappable(["Muslims", None])
    with pytest.raises(InvalidInputError, match="some of the values"):
        identity_constraint("martian").sides  # noqa: B018 - it is computed when it is asked for
