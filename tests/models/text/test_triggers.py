"""Trigger tokens: every row's Jacobian, screening of many edits, and what is kept."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from text_cases import FILTERS, fitted, random
from tiny import bert, biased_rows, classifier, gpt2, t5, token_rows

from fairij.errors import InvalidInputError
from fairij.mitigator import FairIJ
from fairij.models import adapt
from fairij.models.text.transformers import TransformersEditable
from fairij.models.text.trigger_editable import ScreeningEvaluator, TriggerEditable
from fairij.models.text.triggers import TriggerTokens

pytestmark = FILTERS


@pytest.mark.parametrize("encoder", [bert, t5])
def test_one_prompt_copy_a_row_gives_every_rows_jacobian(encoder: Any) -> None:
    model, X = TriggerTokens(encoder().double(), 3), token_rows()
    model.double()
    editable = adapt(model)
    assert isinstance(editable, TriggerEditable)
    assert editable.parameter_names == ["triggers", "head.weight", "head.bias"]
    kept, graphs = editable.linearize(X), editable.by_graphs(editable.prepare(X))
    assert (kept.mode, graphs.mode) == ("per_row", "double_backward")
    r, u = random(len(editable.theta)), random(40, seed=1)
    scale = float(graphs.jvp(r).abs().max())
    assert torch.allclose(kept.outputs, graphs.outputs, atol=1e-6)
    assert torch.allclose(kept.jvp(r), graphs.jvp(r), atol=1e-6 * scale)
    assert torch.allclose(kept.vjp(u), graphs.vjp(u), rtol=1e-5, atol=1e-6 * scale)
    assert torch.allclose(
        kept.second_order(u, r), graphs.second_order(u, r), rtol=1e-5, atol=1e-5 * scale
    )
    index = torch.tensor([9, 0])
    assert torch.allclose(kept.restrict(index).jvp(r), kept.jvp(r)[index])
    by = 0.1 * random(len(editable.theta), seed=2)
    there, moved = kept.moved(by), graphs.moved(by)
    assert torch.allclose(there.outputs, editable.outputs(X, editable.theta + by), atol=1e-6)
    assert torch.allclose(there.jvp(r), moved.jvp(r), atol=1e-5 * scale)
    assert not torch.allclose(there.jvp(r), kept.jvp(r), atol=1e-3 * scale)


def test_triggers_want_an_encoder_and_single_texts() -> None:
    for given, message in (
        ((classifier(), 3), "without a head, as .* got BertForSequenceClassification"),
        ((bert(), 0), "whole number of at least 1; got 0"),
        ((bert(), 2.5), "whole number of at least 1; got 2.5"),
        ((bert(), 3, None, "cls"), r"one of \['mean', 'pooler'\], got 'cls'"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            TriggerTokens(*given[:3], **({"pooling": given[3]} if len(given) > 3 else {}))
    ids = torch.tensor([[5, 6, 7]])
    model = TriggerTokens(bert(), 3)
    assert torch.equal(model(ids, token_type_ids=ids * 0), model(ids))
    with pytest.raises(InvalidInputError, match="must be 0 throughout"):
        model(ids, token_type_ids=ids)
    unpadded = TriggerTokens(gpt2(), 3)  # no token is padding
    zero = torch.tensor([[5, 0, 0]])
    assert torch.equal(unpadded(zero), unpadded(zero, torch.ones_like(zero)))


def test_a_jacobian_that_does_not_fit_is_not_kept() -> None:
    model, X = TriggerTokens(bert(), 3), token_rows()
    size = 40 * len(adapt(model).theta) * 4
    assert TriggerEditable(model, memory_limit=size).linearize(X).mode == "per_row"
    assert TriggerEditable(model, memory_limit=size - 1).linearize(X).mode == "double_backward"


def test_many_scales_are_screened_linearly_and_one_is_run() -> None:
    model, X = TriggerTokens(bert(), 3), token_rows()
    editable = TriggerEditable(model)
    r = random(len(editable.theta)).float()
    linear = editable.linearize(X)
    evaluator = editable.evaluator(X)
    several = evaluator.along(r, torch.tensor([1.0, 2.0]))
    assert torch.allclose(several[1], linear.outputs + 2 * linear.jvp(r), atol=1e-5)
    one = evaluator.along(r, torch.tensor([2.0]))
    assert torch.allclose(one[0], editable.outputs(X, editable.theta + 2 * r), atol=1e-5)
    assert not torch.allclose(one[0], several[1], atol=1e-3)  # z is not linear in the triggers
    exact = TriggerEditable(model, screening="exact").evaluator(X).along(r, torch.tensor([1.0, 2]))
    assert torch.allclose(exact[1], one[0], atol=1e-5)


def test_screening_is_bent_as_the_edit_was_that_was_run() -> None:
    editable, X = TriggerEditable(TriggerTokens(bert(), 3)), token_rows()
    r = random(len(editable.theta)).float()
    evaluator, scales = editable.evaluator(X), torch.tensor([1.0, 1.6, 2.0])
    before = evaluator.along(r, scales)
    run = evaluator.along(r, torch.tensor([2.0]))[0]
    after = evaluator.along(r, scales)
    torch.testing.assert_close(after[2], run)
    near = editable.outputs(X, editable.theta + 1.6 * r)
    assert (after[1] - near).abs().max() < 0.3 * (before[1] - near).abs().max()
    other = random(len(r), seed=1).float()
    linear = editable.linearize(X)
    along_r, along_other = linear.jvp(r), linear.jvp(other)
    other -= (along_other @ along_r) / (along_r @ along_r) * r  # nothing was seen of where it leads
    expected = linear.along(other, scales)
    torch.testing.assert_close(evaluator.along(other, scales), expected, rtol=1e-3, atol=1e-4)
    evaluator.along(torch.zeros_like(r), torch.ones(1))  # nor of anything by standing still
    torch.testing.assert_close(evaluator.along(r, scales), after)


def test_screening_is_bent_as_the_nearest_edit_that_was_run() -> None:
    editable, X = TriggerEditable(TriggerTokens(bert(), 3)), token_rows()
    r, other = (random(len(editable.theta), seed=seed).float() for seed in (0, 1))
    evaluator, scales = editable.evaluator(X), torch.tensor([1.0, 2.0])
    runs = [evaluator.along(d, torch.tensor([2.0]))[0] for d in (r, other, 0.01 * r)]
    torch.testing.assert_close(evaluator.along(r, scales)[1], runs[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(evaluator.along(other, scales)[1], runs[1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(evaluator.along(0.01 * r, scales)[1], runs[2], rtol=1e-4, atol=1e-5)


def test_triggers_leave_the_encoder_alone_and_shared() -> None:
    encoder = bert()
    before = copy.deepcopy(encoder.state_dict())
    model = TriggerTokens(encoder, 3)
    editable = adapt(model)
    edited = editable.edited(editable.theta + 1)
    assert edited.encoder is encoder
    assert torch.allclose(edited.triggers, model.triggers + 1)
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    assert not model.train().encoder.training  # no dropout in a frozen encoder


def test_the_first_token_of_a_bert_stays_the_first() -> None:
    """The pooler reads the first place, which must be [CLS] and not a trigger."""
    encoder, X = bert(), token_rows(2)
    seen: list[torch.Tensor] = []
    encoder.embeddings.register_forward_hook(
        lambda module, args, kwargs, out: seen.append(kwargs["inputs_embeds"]), with_kwargs=True
    )
    model = TriggerTokens(encoder, 3)
    model(**X)
    words = encoder.get_input_embeddings()(X["input_ids"])
    assert torch.equal(seen[0][:, 0], words[:, 0])
    assert torch.equal(seen[0][:, 1:4], model.triggers.expand(2, -1, -1))


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_single_edit_is_run_where_its_label_is_in_doubt(
    outputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        head = torch.nn.Linear(16, outputs)
    model, X = TriggerTokens(bert(), 3, head), token_rows()
    editable = TriggerEditable(model)
    r = (0.05 if outputs == 1 else 0.01) * random(len(editable.theta), seed=1).float()
    evaluator, linear = editable.evaluator(X), editable.linearize(X)
    assert isinstance(evaluator, ScreeningEvaluator)
    whole = editable.outputs(X, editable.theta + 2 * r)
    made = passes(monkeypatch)
    first = evaluator.confirm(r, 2.0, everywhere=False)[0]
    step = 2 * linear.jvp(r)
    screened = linear.outputs + step
    doubtful = []
    for z, by in zip(screened, step, strict=True):
        if outputs == 1:
            doubtful.append(float(z + by) * float(z - by) <= 0)
        else:  # the second might overtake the first
            order = z.argsort(descending=True)
            doubtful.append(float(z[order[0]] - z[order[1]] - 2 * by.abs().max()) <= 0)
    index = torch.tensor(doubtful)
    assert 0 < int(index.sum()) < 40
    assert made == [int(index.sum())]
    torch.testing.assert_close(first[index], whole[index], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(first[~index], screened[~index], rtol=1e-4, atol=1e-5)
    # what was learnt there bends the others, and what is learnt later comes first
    bent = evaluator.along(r, torch.tensor([2.0, 9.0]))[0]
    torch.testing.assert_close(bent, first, rtol=1e-4, atol=1e-5)
    evaluator.along(r, torch.tensor([2.0]))
    bent = evaluator.along(r, torch.tensor([2.0, 9.0]))[0]
    torch.testing.assert_close(bent, whole, rtol=1e-4, atol=1e-5)


def test_an_edit_that_leaves_all_labels_in_doubt_is_run_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, X = TriggerTokens(bert(), 3), token_rows()
    editable = TriggerEditable(model)
    evaluator = editable.evaluator(X)
    assert isinstance(evaluator, ScreeningEvaluator)
    far = 1e3 * torch.eye(len(editable.theta))[-1]  # the head's bias
    made = passes(monkeypatch)
    evaluator.linear.outputs.zero_()
    found = evaluator.confirm(far, 1.0, everywhere=False)
    assert torch.equal(evaluator.along(far, torch.tensor([1.0])), found)
    assert made == [40]


@pytest.mark.parametrize("constraint", ["demographic_parity", "own"])
def test_the_edit_taken_is_run_on_all_rows_and_others_where_labels_are_in_doubt(
    constraint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function of the outputs themselves is never known from labels."""
    X, y, _ = biased_rows(200, 0)
    X_val, y_val, s_val = biased_rows(150, 1)

    def own(outputs: torch.Tensor, y: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        return (outputs[groups == 1].mean() - outputs[groups == 0].mean()).abs()

    made = passes(monkeypatch)
    given = own if constraint == "own" else constraint
    fair = fitted(TriggerTokens(bert(), 3), X, y, X_val, y_val, s_val, constraints=given)
    assert fair.chosen_ > 0
    judged = [rows for rows in made if 8 < rows <= 150]
    assert 150 in judged
    if constraint == "own":
        assert set(judged) == {150}
        return
    assert min(judged) < 150
    predicted = fair.predict(X_val)
    gap = abs(predicted[s_val == 1].mean() - predicted[s_val == 0].mean())
    assert fair.candidates_["gap"][fair.chosen_] == pytest.approx(gap, abs=1e-9)


def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of every forward pass over a table from now on."""
    made: list[int] = []
    run = TransformersEditable.run

    def watched(self: Any, tokens: Any, theta: Any) -> Any:
        made.append(len(tokens["input_ids"]))
        return run(self, tokens, theta)

    monkeypatch.setattr(TransformersEditable, "run", watched)
    return made


def test_a_fit_runs_over_the_validation_rows_once_an_edit_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The model as it is comes with its Jacobian; diagnostics and audit ask for what is known."""
    X, y, _ = biased_rows(200, 0)
    X_val, y_val, s_val = biased_rows(150, 1)
    judged: list[bytes] = []
    along = ScreeningEvaluator.along

    def watched(self: ScreeningEvaluator, direction: Any, by: torch.Tensor) -> torch.Tensor:
        if len(by) == 1 and bool(direction.any()):
            judged.append((by * direction).numpy().tobytes())
        return along(self, direction, by)

    monkeypatch.setattr(ScreeningEvaluator, "along", watched)
    made = passes(monkeypatch)
    fair = fitted(TriggerTokens(bert(), 3), X, y, X_val, y_val, s_val)
    assert fair.chosen_ > 0
    assert made.count(150) == len(set(judged)) <= 4  # as many as are remembered
    assert made.count(200) == 0
    recorded = fair._choice.patterns.predictions.shape[1]
    assert recorded == len(fair.candidates_)  # what was screened first is forgotten
    assert fair.after_["accuracy"] == pytest.approx((fair.predict(X_val) == y_val).mean())


def test_what_is_remembered_is_of_these_very_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X = TriggerTokens(bert(), 3), token_rows()
    editable, made = TriggerEditable(model), passes(monkeypatch)
    before = editable.outputs(X)
    assert editable.outputs(X) is before
    assert made == [40]
    linear = editable.linearize(X)
    torch.testing.assert_close(linear.outputs, before, rtol=0, atol=1e-6)
    assert editable.outputs(X) is linear.outputs
    with torch.no_grad():
        model.head.bias += 1.0  # trained on, say
    assert not torch.allclose(editable.outputs(X), before, atol=1e-3)
    assert editable.linearize(X) is not linear
    assert editable.outputs(token_rows()).shape == before.shape  # another table
    assert made == [40, 40, 40]


def test_the_jacobian_is_made_in_smaller_batches_when_memory_runs_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, X = TriggerTokens(bert(), 3), token_rows()
    expected = TriggerEditable(model).linearize(X)
    whole, sizes = TriggerEditable._batch_jacobian, []

    def scarce(self: Any, batch: Any) -> Any:
        sizes.append(len(batch["input_ids"]))
        if sizes[-1] > 15:
            raise torch.OutOfMemoryError("too much")
        return whole(self, batch)

    monkeypatch.setattr(TriggerEditable, "_batch_jacobian", scarce)
    found = TriggerEditable(model).linearize(X)
    assert sizes[0] == 40
    torch.testing.assert_close(found.outputs, expected.outputs)
    torch.testing.assert_close(found.jacobian.array, expected.jacobian.array)


def test_the_edit_taken_by_reweighting_was_run_and_not_only_screened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y, _ = biased_rows(200, 0)
    X_val, y_val, s_val = biased_rows(150, 1)
    model = TriggerTokens(bert(), 3)
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 2e-2)
    for _ in range(40):
        optimiser.zero_grad()
        z = model(**X)[:, 0]
        torch.nn.functional.binary_cross_entropy_with_logits(
            z, torch.as_tensor(y).float()
        ).backward()
        optimiser.step()
    scales: list[int] = []
    along = ScreeningEvaluator.along

    def watched(self: ScreeningEvaluator, direction: Any, by: torch.Tensor) -> torch.Tensor:
        scales.append(len(by))
        return along(self, direction, by)

    monkeypatch.setattr(ScreeningEvaluator, "along", watched)
    fair = FairIJ(model, search="reweight", selection="lowest_gap", verbose=False).fit(
        X, y, X_val=X_val, y_val=y_val, sensitive_features_val=s_val
    )
    assert fair.candidates_["k"][fair.chosen_] > 0
    assert scales[:2] == [1, 40]  # the model as it is; all scales, screened
    assert set(scales[2:]) == {39, 1}  # each one run corrects the others
    assert 1 in scales[-2:]  # and the one taken was run on all rows
    predicted = fair.predict(X_val)
    gap = abs(predicted[s_val == 1].mean() - predicted[s_val == 0].mean())
    assert fair.candidates_["gap"][fair.chosen_] == pytest.approx(gap, abs=1e-9)
