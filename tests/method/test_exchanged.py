"""Exchanged training and validation rows are noticed, by the loss or by its gradient."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from fairij import FairIJ, Grid

RNG = np.random.default_rng(3)
X = RNG.normal(size=(900, 5))
GROUP = RNG.integers(0, 2, 900)
Y = (X[:, 0] + 0.5 * GROUP + RNG.normal(size=900) > 0.3).astype(int)
SEEN, NEW = np.arange(600), np.arange(600, 900)
MODELS = {
    "gradient": LogisticRegression(C=0.5, tol=1e-8, max_iter=1000),
    "loss": HistGradientBoostingClassifier(max_iter=60, early_stopping=False, random_state=0),
}


def said(model: Any, train: Any, validation: Any) -> list[str]:
    mitigator = FairIJ(model, search=Grid(k=(1,), scales=(1.0,)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mitigator.fit(
            X[train],
            Y[train],
            X_val=X[validation],
            y_val=Y[validation],
            sensitive_features_val=GROUP[validation],
        )
    texts = [str(one.message) for one in caught]
    return [text for text in texts if "as if the two had been exchanged" in text]


@pytest.mark.parametrize("trace", MODELS)
def test_exchanged_rows_are_noticed_and_others_are_not(trace: str) -> None:
    model = MODELS[trace].fit(X[SEEN], Y[SEEN])
    assert said(model, SEEN, NEW) == []
    (text,) = said(model, NEW, SEEN)
    assert f"the {trace} of its loss is" in text or f"its {trace} is" in text
