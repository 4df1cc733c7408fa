"""Scores take ``J r`` from the steps of the solve where it is known, and from a pass elsewhere."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fairij.method.curvature import CURVATURES, make_curvature
from fairij.method.influence import influence
from fairij.method.objective import Objective, normalised_weights
from fairij.models import TorchEditable
from fairij.models.losses import get_loss
from fairij.models.torch.linearization import TorchLinearization
from fairij.solvers import ConjugateGradient
from fairij.solvers.seen import PART, Seen

ROWS = 60


def drawn(*shape: int) -> Tensor:
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64
    )


def objective_of(outputs: int = 1) -> Objective:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs)).double()
    model = TorchEditable(module, batch_size=16, outputs="logits")
    y = torch.arange(ROWS) % max(outputs, 2)
    loss = get_loss("binary_cross_entropy" if outputs == 1 else "softmax_cross_entropy")
    return Objective(
        model.linearize(drawn(ROWS, 4)),
        y.double() if outputs == 1 else y,
        loss,
        normalised_weights(None, ROWS, model.theta),
        model.theta,
        torch.tensor(1e-3, dtype=torch.float64),
    )


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []
    own = TorchLinearization.jvp

    def counted(self: TorchLinearization, direction: Tensor) -> Tensor:
        made.append("jvp")
        return own(self, direction)

    monkeypatch.setattr(TorchLinearization, "jvp", counted)
    return made


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("kind", list(CURVATURES))
def test_scores_are_those_of_a_pass(kind: str, outputs: int, passes: list[str]) -> None:
    o = objective_of(outputs)
    damping = 1.0 if kind == "hessian" else 1e-2
    inverse = ConjugateGradient(tolerance=1e-3).prepare(make_curvature(kind, o), damping)
    for seed in (1, 2):  # the second starts from the directions of the first
        solution = inverse.solve(drawn(len(o.theta) + seed)[: len(o.theta)])
        seen = solution.moved(o.model)
        assert (seen is not None) == (kind != "empirical_fisher")
        if seen is not None:
            torch.testing.assert_close(seen, o.model.jvp(solution.x))
    passes.clear()
    found = influence(o, inverse, drawn(len(o.theta)))
    assert len(passes) == (kind == "empirical_fisher")
    expected = -(o.slope * o.model.jvp(found.direction)).reshape(ROWS, -1).sum(1)
    torch.testing.assert_close(found.scores, expected)


def test_other_rows_take_a_pass_of_their_own() -> None:
    o = objective_of()
    inverse = ConjugateGradient().prepare(make_curvature("ggn", o), 1e-2)
    solution = inverse.solve(drawn(len(o.theta)))
    assert solution.moved(o.model.restrict(torch.arange(ROWS))) is None


def test_dropped_directions_end_it(passes: list[str]) -> None:
    o = objective_of()
    few = ConjugateGradient(tolerance=1e-6, memory_limit=6 * 8 * len(o.theta))
    inverse = few.prepare(make_curvature("ggn", o), 1e-3)
    found = influence(o, inverse, drawn(len(o.theta)))
    assert inverse.directions.count > inverse.directions.room
    assert passes == ["jvp"]
    expected = -o.slope * o.model.jvp(found.direction)
    torch.testing.assert_close(found.scores, expected)


def test_what_is_kept_has_a_limit_and_no_gaps() -> None:
    seen = Seen(PART * 2 * 8 * 10)
    seen.remember(torch.ones(10, dtype=torch.float64), 0)
    seen.remember(torch.ones(10, dtype=torch.float64), 1)
    found = seen.along(torch.tensor([2.0, 3.0]))
    assert found is not None
    assert torch.equal(found, torch.full((10,), 5.0, dtype=torch.float64))
    assert seen.along(torch.tensor([2.0])) is None  # of fewer directions than there are
    seen.remember(torch.ones(10, dtype=torch.float64), 2)  # no room
    assert seen.along(torch.ones(3)) is None
    seen.remember(torch.ones(10, dtype=torch.float64), 3)
    assert seen.along(torch.ones(1)) is None
