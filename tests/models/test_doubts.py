"""Models that are not what they seem, by their outputs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from biased import fair, fitted, problem
from fairij.errors import FairIJWarning, InvalidInputError
from fairij.fairness.decisions import Decision
from fairij.models.base import EditableDefaults
from fairij.models.doubts import check_are_logits, doubts, outputs_asked
from fairij.models.labels import Labels
from fairij.models.losses import BinaryCrossEntropy, get_loss

TRUTH = torch.tensor([0] * 40 + [1] * 80, dtype=torch.float64)
LABELS = Labels(get_loss("binary_cross_entropy"), np.array(["no", "yes"]), TRUTH, TRUTH)
THREE = torch.arange(300, dtype=torch.float64) % 3
CLASSES = Labels(get_loss("softmax_cross_entropy"), np.array(["a", "b", "c"]), THREE, THREE)


def one_hot(y: Tensor) -> Tensor:
    return nn.functional.one_hot(y.long(), 3).double()


def test_outputs_that_speak_for_the_other_label_are_an_error() -> None:
    z = torch.where(TRUTH == 1, 1.0, -1.0)
    assert doubts(LABELS, z, confirmed=False) == []
    with pytest.raises(InvalidInputError, match=r"ranks 'no' above 'yes' .*curve 0\.00") as found:
        doubts(LABELS, -z, confirmed=False)
    assert found.value.parameter == "classes"
    (notice,) = doubts(LABELS, -z, confirmed=True)
    assert "ranks 'no' above 'yes'" in notice.text


def test_what_may_be_chance_is_no_error() -> None:
    rng, often = np.random.default_rng(0), 0
    for _ in range(200):  # models that know nothing
        z = torch.from_numpy(rng.normal(size=120))
        often += doubts(LABELS, z, confirmed=False) != []
    assert often == 0
    few = Labels(LABELS.loss, LABELS.classes, TRUTH[[0, 1, 118, 119]], TRUTH[[0, 1, 118, 119]])
    doubts(few, torch.tensor([1.0, 1.0, -1.0, -1.0]), confirmed=False)


def test_labels_of_other_rows_are_called_out() -> None:
    """As of a table whose labels, or columns, were put in another order."""
    rng = np.random.default_rng(1)
    truth = torch.from_numpy(rng.integers(2, size=1000)).double()
    labels = Labels(LABELS.loss, LABELS.classes, truth, truth)
    z = torch.from_numpy(rng.normal(size=1000))
    (notice,) = doubts(labels, z, confirmed=False)
    assert "no more of the labels of the rows measured than chance: the area" in notice.text
    assert doubts(labels, z + 0.4 * truth, confirmed=False) == []  # weak, but not by chance
    three = torch.from_numpy(rng.integers(3, size=1000)).double()
    labels = Labels(CLASSES.loss, CLASSES.classes, three, three)
    (notice,) = doubts(labels, torch.from_numpy(rng.normal(size=(1000, 3))), confirmed=False)
    assert "of them, and 33% would be right by chance" in notice.text
    assert doubts(labels, one_hot(three), confirmed=False) == []


def test_several_labels_in_another_order_are_an_error() -> None:
    assert doubts(CLASSES, one_hot(THREE), confirmed=False) == []
    exchanged = one_hot(torch.tensor([0, 2, 1])[THREE.long()])
    with pytest.raises(InvalidInputError, match="'a', 'c', 'b' it would be in 100%"):
        doubts(CLASSES, exchanged, confirmed=False)
    assert len(doubts(CLASSES, exchanged, confirmed=True)) == 1
    weak = one_hot(THREE) + torch.randn(300, 3, generator=torch.Generator().manual_seed(0)).double()
    assert doubts(CLASSES, weak, confirmed=False) == []


def test_a_nearly_constant_model_is_called_out() -> None:
    z = torch.where(TRUTH == 1, 1.0, 0.5)
    (notice,) = doubts(LABELS, z, confirmed=False)
    assert "predicts 'yes' for 100.0% of the rows measured, while 33.3% have another" in notice.text
    rare = torch.zeros(1000, dtype=torch.float64)
    rare[:20] = 1  # as rare in truth as in the predictions
    labels = Labels(LABELS.loss, LABELS.classes, rare, rare)
    assert doubts(labels, rare - 0.5, confirmed=False) == []
    (notice,) = doubts(CLASSES, one_hot(THREE) * 0.1 + torch.tensor([9.0, 0, 0]), confirmed=False)
    assert "predicts 'a' for 100.0%" in notice.text


def test_scores_of_another_scale_are_called_out() -> None:
    """As of a regression on 0 and 1 where few labels are 1: nearly all outputs are above 0."""
    rng = np.random.default_rng(2)
    truth = torch.from_numpy(rng.random(2000) < 0.06).double()
    labels = Labels(LABELS.loss, LABELS.classes, truth, truth)
    z = 0.06 + 0.15 * truth + 0.08 * torch.from_numpy(rng.normal(size=2000))
    (notice,) = doubts(labels, z, confirmed=False)
    assert "right for 27% of the rows measured, although it ranks them well" in notice.text
    assert "says 'yes' for 79% of them, and 6% are" in notice.text
    assert doubts(labels, z, Decision(cut=0.05), confirmed=False) == []  # who sets it, means it
    assert doubts(labels, z - 0.1, confirmed=False) == []


class Unnamed(EditableDefaults):
    outputs_are = "unknown"


def test_one_output_between_0_and_1_has_to_be_named() -> None:
    p, loss = torch.linspace(0.01, 0.99, 50), get_loss("binary_cross_entropy")
    unknown: Any = Unnamed()
    with pytest.raises(InvalidInputError, match=r"between 0\.01 and 0\.99 in all rows.*=") as found:
        check_are_logits(unknown, loss, p, p)
    assert found.value.parameter == "outputs"
    check_are_logits(unknown, loss, p, p * 2)  # some row is above 1
    with pytest.raises(InvalidInputError, match="must return scores, but it returns labels"):
        check_are_logits(unknown, loss, (p > 0.5).double())
    check_are_logits(unknown, loss, p * 0)  # an untrained model
    check_are_logits(unknown, get_loss("squared_error"), p)
    stated: Any = EditableDefaults()
    check_are_logits(stated, loss, p)


def test_outputs_of_a_regression_are_taken_as_they_are() -> None:
    assert outputs_asked("auto", "squared_error") == "logits"
    assert outputs_asked("probabilities", BinaryCrossEntropy()) == "logits"
    assert outputs_asked("auto", "auto") == "auto"
    with pytest.raises(InvalidInputError, match="`outputs` must be one of"):
        outputs_asked("logit", "auto")


class Clipped(nn.Module):
    """Probabilities that nobody can tell from logits by the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.body = fitted()

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.body(x)).clamp(1e-6, 1 - 1e-6)


def test_a_fit_asks_for_what_it_cannot_tell() -> None:
    data = problem()
    with pytest.raises(InvalidInputError, match="`outputs` must be said"):
        data.fit(fair(Clipped()))
    found = data.fit(fair(Clipped(), outputs="probabilities"))
    plain = data.fit(fair())
    assert np.allclose(found.influence_, plain.influence_, rtol=1e-2, atol=1e-6)
    with pytest.warns(FairIJWarning, match="predicts 1 for 100.0%"):  # as it was told
        data.fit(fair(Clipped(), outputs="logits"))


def test_a_fit_on_exchanged_labels_stops_unless_it_is_confirmed() -> None:
    data = problem()
    exchanged = {"y": 1 - data.y, "y_val": 1 - data.y_val}
    with pytest.raises(InvalidInputError, match="ranks 0 above 1"):
        data.fit(fair(), **exchanged)
    # the order of the labels is the cure: the output speaks for what is now 0
    found, plain = data.fit(fair(classes=[1, 0]), **exchanged), data.fit(fair())
    assert np.array_equal(found.influence_, plain.influence_)
    assert np.array_equal(found.predict(data.X_val), 1 - plain.predict(data.X_val))
    assert found.before_.positive_label == 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data.fit(fair(classes=[0, 1]), **exchanged)
    assert any("ranks 0 above 1" in str(found.message) for found in caught)
