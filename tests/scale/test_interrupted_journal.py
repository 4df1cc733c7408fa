"""A run that is ended by a signal keeps all the passes that it made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from biased import fair, problem
from fairij.errors import CheckpointError
from fairij.scale import checkpoints
from fairij.scale.checkpoints import Journal


@pytest.mark.parametrize("made", [1, 4])
def test_a_fit_that_is_interrupted_within_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: int
) -> None:
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 1e9)  # nothing is written by time
    data, recalled, count = problem(), Journal.recalled, [0]

    def counted(
        self: Journal, name: str, given: Tensor | None, make: Callable[[], Tensor]
    ) -> Tensor:
        def work() -> Tensor:
            count[0] += 1
            if count[0] == made + 1:
                raise KeyboardInterrupt
            return make()

        return recalled(self, name, given, work)

    monkeypatch.setattr(Journal, "recalled", counted)
    with pytest.raises(KeyboardInterrupt):
        data.fit(fair(checkpoint=tmp_path))
    (record,) = tmp_path.glob("process-0/*.safetensors")
    assert record.name == f"00000000-{made - 1:08}.safetensors"
    count[0] = made + 1
    resumed = data.fit(fair(checkpoint=tmp_path))
    again = count[0] - made - 1
    count[0] = made + 1
    whole = data.fit(fair(checkpoint=tmp_path / "other"))
    assert count[0] - made - 1 == again + made  # the passes that were made are not made again
    np.testing.assert_array_equal(resumed.influence_, whole.influence_)


def test_a_full_disk_does_not_hide_the_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Journal) -> None:
        raise CheckpointError("the disk is full")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "write", full)
    monkeypatch.setattr(Journal, "recalled", interrupted)
    with pytest.raises(KeyboardInterrupt):
        problem().fit(fair(checkpoint=tmp_path))
