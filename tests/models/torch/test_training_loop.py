"""The one training loop."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairij.models.torch.training import TrainingState, train_epochs


@dataclass
class Scripted:
    """An objective with given measures. It keeps the state of the module after every epoch."""

    module: nn.Module
    measures: list[float]
    states: list[dict[str, Tensor]] = field(default_factory=list)

    def batches(self) -> Iterable[Tensor]:
        return torch.arange(12.0).view(3, 4, 1)

    def loss(self, batch: Tensor) -> Tensor:
        loss: Tensor = self.module(batch).pow(2).mean()
        return loss

    def held_out(self) -> float:
        assert not self.module.training
        self.states.append(copy.deepcopy(self.module.state_dict()))
        return self.measures[len(self.states) - 1]


def trained(measures: list[float], **options: Any) -> tuple[Scripted, TrainingState]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.BatchNorm1d(1), nn.Dropout(0.5), nn.Linear(1, 1))
    objective = Scripted(module, measures)
    optimiser = torch.optim.SGD(module.parameters(), 0.1)
    seeds = {"seeds": lambda epoch: epoch}
    state = train_epochs(module, objective, optimiser, epochs=len(measures), **(seeds | options))
    assert not module.training
    return objective, state


@pytest.mark.parametrize(
    ("measures", "options", "epochs", "best"),
    [
        ([3.0, 1.0, 2.0, 1.0], {}, 4, 2),  # the first of equal epochs
        ([3.0, 1.0, 2.0, 2.0, 0.0], {"patience": 2}, 4, 2),
        ([math.nan, 2.0, math.nan], {}, 3, 2),
    ],
)
def test_the_epoch_with_the_lowest_measure_is_kept_with_its_buffers(
    measures: list[float], options: Any, epochs: int, best: int
) -> None:
    seen: list[int] = []
    objective, state = trained(measures, after_epoch=lambda s: seen.append(s.epoch), **options)
    assert (state.epoch, state.best_epoch) == (epochs, best)
    assert seen == list(range(1, epochs + 1))
    for name, value in objective.module.state_dict().items():
        assert torch.equal(value, objective.states[best - 1][name])


def test_without_a_finite_measure_the_last_state_is_kept() -> None:
    objective, state = trained([math.nan, math.nan])
    assert not state.best_state
    last, _ = trained([math.nan, math.nan], keep_last=True)
    assert not last.states  # nothing is measured
    for name, value in objective.module.state_dict().items():
        assert torch.equal(value, objective.states[-1][name])
        assert torch.equal(value, last.module.state_dict()[name])


def test_dropout_is_seeded_by_the_epoch_and_the_random_state_restored() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, _ = trained([2.0, 1.0])
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    second, _ = trained([2.0, 1.0])
    other, _ = trained([2.0, 1.0], seeds=lambda epoch: epoch + 7)
    weight = [o.module.state_dict()["2.weight"] for o in (first, second, other)]
    assert torch.equal(weight[0], weight[1])
    assert not torch.equal(weight[0], weight[2])
