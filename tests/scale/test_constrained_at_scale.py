"""The constrained search on streamed rows and with a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biased import fair, problem
from fairij import Constrained, FairIJ
from fairij.data.sources import ArraySource
from fairij.errors import CheckpointError
from fairij.models.torch.linearization import TorchLinearization
from fairij.scale import streaming

DATA = problem()
SEARCH = Constrained(steps=3)


def fit(**changes: Any) -> FairIJ:
    settings = {"checkpoint": changes.pop("checkpoint", None)}
    return DATA.fit(fair(search=SEARCH, **settings), **{"sensitive_features": DATA.sex} | changes)


def test_streamed_rows_give_the_path_of_rows_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "CHUNK_ROWS", 61)
    inside, streamed = fit(), fit(X=ArraySource(DATA.X), X_val=ArraySource(DATA.X_val))
    assert inside.edit_.delta.norm() > 0
    assert streamed.chosen_ == inside.chosen_
    np.testing.assert_allclose(streamed.moves_, inside.moves_, rtol=5e-3, atol=2e-4)


def test_a_path_goes_on_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, own, left = fit(), TorchLinearization.sandwich, 40

    def interrupted(self: Any, *given: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return own(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(TorchLinearization, "sandwich", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit(checkpoint=tmp_path)
    made = 0

    def counted(self: Any, *given: Any) -> Any:
        nonlocal made
        made += 1
        return own(self, *given)

    monkeypatch.setattr(TorchLinearization, "sandwich", counted)
    again = fit(checkpoint=tmp_path)
    np.testing.assert_array_equal(again.moves_, whole.moves_)
    first = made
    fit(checkpoint=tmp_path)
    assert made == first > 0  # all of it was recorded


def test_a_checkpoint_knows_the_groups_of_training_rows(tmp_path: Path) -> None:
    fit(checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match="training groups"):
        fit(checkpoint=tmp_path, sensitive_features=DATA.sex[::-1])
