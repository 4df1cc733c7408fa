"""The constrained search on language models: all parameters, and trigger tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")

from text_cases import FILTERS, trained_classifier
from tiny import bert, biased_rows

from fairij import Constrained, FairIJ
from fairij.models.text.triggers import TriggerTokens

pytestmark = FILTERS
SEARCH = Constrained(steps=3, newton=1, products=5)


def fit(model: Any, search: Any = SEARCH, **settings: Any) -> FairIJ:
    X, y, _ = biased_rows(200, 0)
    X_val, y_val, s_val = biased_rows(150, 1)
    return FairIJ(model, search=search, verbose=False, **settings).fit(
        X, y, X_val=X_val, y_val=y_val, sensitive_features_val=s_val
    )


@pytest.mark.slow
def test_a_classifier_closes_its_gap() -> None:
    gaps = fit(trained_classifier(), selection="lowest_gap").candidates_["gap"]
    assert gaps.min() < 0.7 * gaps[0]


def test_trigger_tokens_take_all_steps() -> None:
    """They were never trained, so no gap is promised; the choice is never worse."""
    fair = fit(TriggerTokens(bert(), 3), selection="lowest_gap")
    gaps = fair.candidates_["gap"]
    assert len(gaps) == 5
    assert np.isfinite(gaps).all()
    assert fair.after_["demographic_parity_difference"] <= gaps[0]


def test_by_default_a_head_takes_all_steps_and_tokens_half_of_them() -> None:
    """The layers below a head run once; trigger tokens run the model in every product."""
    head = fit(trained_classifier(), FairIJ(None).search, parameters=["classifier.*"])
    assert head.search_ == Constrained()
    assert head.candidates_["gap"].min() < 0.1 < head.candidates_["gap"][0]
    assert head.after_["accuracy"] > 0.9  # but not by a model that says one label only
    tokens = fit(TriggerTokens(bert(), 3), FairIJ(None).search)
    assert tokens.search_ == Constrained().quicker
    assert "every product runs the whole model" in tokens.diagnostics_["search_reason"]
    assert np.isfinite(tokens.candidates_["gap"]).all()
