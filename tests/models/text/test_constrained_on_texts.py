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


def fit(model: Any, **settings: Any) -> FairIJ:
    X, y, _ = biased_rows(200, 0)
    X_val, y_val, s_val = biased_rows(150, 1)
    return FairIJ(model, search=SEARCH, verbose=False, **settings).fit(
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
