"""Which search is taken for trees whose rows are streamed, or with a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMClassifier

from biased import problem
from fairij import Constrained, FairIJ
from fairij.data.sources import ArraySource
from fairij.errors import InvalidInputError

DATA = problem()
pytestmark = pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
STREAMED = {"X": ArraySource(DATA.X), "X_val": ArraySource(DATA.X_val)}


def fit(search: Any = "auto", checkpoint: Path | None = None, **given: Any) -> FairIJ:
    model = LGBMClassifier(n_estimators=8, num_leaves=5, verbose=-1, n_jobs=1).fit(DATA.X, DATA.y)
    rule = {"selection": "lowest_gap", "checkpoint": checkpoint}
    return DATA.fit(FairIJ(model, search=search, **rule), **given)


def test_streamed_rows_take_the_plain_form_and_say_why() -> None:
    found = fit(**STREAMED)
    assert found.search_ == Constrained()
    assert "streamed or shared by several" in found.diagnostics_["search_reason"]


def test_chances_are_refused_where_rows_are_streamed() -> None:
    with pytest.raises(InvalidInputError, match="rows in the memory of one process") as met:
        fit(Constrained(chances=True), **STREAMED)
    assert met.value.parameter == "search"


def test_the_loss_of_streamed_validation_rows() -> None:
    search = Constrained(steps=3, loss_on="validation")
    np.testing.assert_allclose(fit(search, **STREAMED).moves_, fit(search).moves_, atol=1e-5)


def test_with_a_checkpoint_the_same_form_is_taken(tmp_path: Path) -> None:
    plain = fit()
    for _ in range(2):  # the second one continues the first
        kept = fit(checkpoint=tmp_path)
        assert kept.search_ == plain.search_
        np.testing.assert_array_equal(kept.moves_, plain.moves_)
