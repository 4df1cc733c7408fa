"""scikit-learn's own checks of an estimator, on `FairIJ` with a shim that supplies groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairij import FairIJ, Grid

WEIGHTS = (
    "Weights are those of the training loss. Repeating or removing rows also changes which rows "
    "are split off for validation, and their groups."
)
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": WEIGHTS,
    "check_sample_weight_equivalence_on_sparse_data": WEIGHTS,
    "check_fit2d_1feature": (
        "Of its ten rows one label is left for training once validation rows are split off; the "
        "error says that, not that there is one feature."
    ),
}


class WithGroups(FairIJ):
    """Fits its estimator first, and puts every other row into the other group."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FairIJ:  # type: ignore[override]
        given = self.get_params(deep=False)
        given["estimator"] = clone(self.estimator).fit(X, y, sample_weight)
        groups = np.arange(len(np.asarray(y))) % 2
        model = FairIJ(**given).fit(X, y, sensitive_features=groups, sample_weight=sample_weight)
        kept = {k: v for k, v in vars(model).items() if k.endswith("_") or k.startswith("_")}
        vars(self).update(kept)
        return self


@parametrize_with_checks(
    [
        WithGroups(
            LogisticRegression(),
            search=Grid(points=3, scales=(1.0,)),
            selection="lowest_gap",  # groups made at random leave nothing to edit by default
            verbose=False,
        )
    ],
    expected_failed_checks=lambda _: EXPECTED,
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)
