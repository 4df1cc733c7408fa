"""Classifiers on tokens: J r and J^T u against differences, order, batches, and what is saved."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1] / "language"))
pytest.importorskip("transformers")

from tiny import bert, biased_rows, classifier, gpt2, gpt2_classifier, t5, token_rows

from fairij.data.sources import LoaderSource
from fairij.errors import InvalidInputError
from fairij.language import TextClassifier
from fairij.method.search import Grid
from fairij.mitigator import FairIJ
from fairij.models import adapt
from fairij.models.text.library import load_transformers
from fairij.models.text.tokens import bucketed, lengths
from fairij.models.text.transformers import TransformersEditable
from fairij.models.text.screening import ScreeningEvaluator
from fairij.models.text.trigger_editable import TriggerEditable
from fairij.models.text.triggers import TriggerTokens

pytestmark = [
    pytest.mark.filterwarnings("ignore::fairij.errors.FairIJWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    "options", [{"memory_limit": 0}, {"memory_limit": 2**28}, {"batch_size": 7}]
)
def test_products_are_exact_and_in_the_given_order(options: dict[str, Any]) -> None:
    model, X = classifier().double(), token_rows()
    editable = adapt(model, parameters=["classifier", "*query*"], **options)
    assert isinstance(editable, TransformersEditable)
    linear = editable.linearize(X)
    r, u = random(len(editable.theta)), random(40, 2, seed=1)
    with torch.no_grad():
        expected = model(**X).logits
    assert torch.allclose(linear.outputs, expected, atol=1e-12)
    h = 1e-6
    ahead, behind = (editable.outputs(X, editable.theta + c * h * r) for c in (1, -1))
    assert torch.allclose(linear.jvp(r), (ahead - behind) / (2 * h), atol=1e-8)
    assert float((u * linear.jvp(r)).sum()) == pytest.approx(float(linear.vjp(u) @ r))
    weights = torch.rand(40, 1, dtype=torch.float64)
    both = linear.sandwich(r, lambda moved, rows: moved * weights[rows])
    assert torch.allclose(both, linear.vjp(linear.jvp(r) * weights), atol=1e-12)
    index = torch.tensor([31, 2, 17])
    assert torch.allclose(linear.restrict(index).outputs, expected[index], atol=1e-12)
    assert torch.allclose(linear.rows(index) @ r, linear.jvp(r)[index], atol=1e-10)
    scales = torch.tensor([0.5, 1.0])
    along = editable.evaluator(X).along(1e-3 * r, scales)
    assert torch.allclose(along[1], editable.outputs(X, editable.theta + 1e-3 * r), atol=1e-12)


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


def test_batches_hold_a_budget_of_tokens_and_no_needless_padding() -> None:
    X = token_rows(100)
    order = torch.argsort(lengths(X), descending=True)
    rows = {name: part[order] for name, part in X.items()}
    batches = list(bucketed(rows, 60))
    assert sum(len(batch["input_ids"]) for batch in batches) == 100
    assert all(batch["input_ids"].numel() <= 60 for batch in batches)
    assert all(bool(batch["attention_mask"][:, -1].any()) for batch in batches)


@pytest.mark.parametrize("multiple", [1, 8])
def test_tokens_that_the_model_adds_count_and_widths_are_rounded_with_them(multiple: int) -> None:
    X = token_rows(100)
    order = torch.argsort(lengths(X), descending=True)
    rows = {name: part[order] for name, part in X.items()}
    batches = list(bucketed(rows, 90, added=3, multiple=multiple))
    ids = torch.cat([torch.nn.functional.pad(b["input_ids"], (0, 12)) for b in batches[:1]])
    assert torch.equal(ids[:, :12], rows["input_ids"][: len(ids)])
    assert sum(len(batch["input_ids"]) for batch in batches) == 100
    shapes = [batch["input_ids"].shape for batch in batches]
    assert all(n * (width + 3) <= 90 for n, width in shapes)
    assert all((width + 3) % multiple == 0 or width == 12 for _, width in shapes)
    kept = [int(batch["attention_mask"].sum()) for batch in batches]
    assert sum(kept) == int(X["attention_mask"].sum())  # nothing was cut off


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
    first = evaluator.nearly(r, 2.0)[0]
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
    found = evaluator.nearly(far, 1.0)
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
    forward = TransformersEditable.forward

    def watched(self: Any, tokens: Any, theta: Any) -> Any:
        made.append(len(tokens["input_ids"]))
        return forward(self, tokens, theta)

    monkeypatch.setattr(TransformersEditable, "forward", watched)
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
    assert recorded == len(fair.candidates_) + len(judged)  # what was screened first is forgotten
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


def test_texts_are_tokenised_once_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = biased_rows(60, 0)
    texts = [" ".join(map(str, row)) for row in X["input_ids"].tolist()]
    s = (X["input_ids"] == 5).any(1).numpy()
    asked: list[int] = []
    given = Words.__call__

    def watched(self: Words, texts: list[str], truncation: bool, max_length: int) -> Any:
        asked.append(len(texts))
        return given(self, texts, truncation, max_length)

    monkeypatch.setattr(Words, "__call__", watched)
    wrapped = TextClassifier(trained(classifier(), X, y, steps=20), Words())
    fitted(wrapped, texts, y, list(texts), y, s, parameters="model.classifier")
    assert asked.count(60) == 2


def test_the_batch_is_halved_when_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    editable, X = TransformersEditable(classifier(), parameters="classifier"), token_rows()
    whole = TransformersEditable.call
    sizes = []

    def call(self: Any, parameters: Any, batch: Any) -> Any:
        sizes.append(len(batch["input_ids"]))
        if len(batch["input_ids"]) > 36:
            raise torch.OutOfMemoryError("too much")
        return whole(self, parameters, batch)

    monkeypatch.setattr(TransformersEditable, "call", call)
    assert len(editable.outputs(X)) == 40
    assert max(sizes) == 40  # it was tried


def test_products_go_on_in_smaller_batches_when_memory_runs_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X = token_rows()
    model = TransformersEditable(classifier(), parameters="classifier").linearize(X, keep=False)
    scarce = TransformersEditable(classifier(), parameters="classifier")
    later = scarce.linearize(X, keep=False)
    u = random(40, 2, seed=1).float()
    expected, whole = model.vjp(u), TransformersEditable.call

    def call(self: Any, parameters: Any, batch: Any) -> Any:
        if len(batch["input_ids"]) > 15:
            raise torch.OutOfMemoryError("too much")
        return whole(self, parameters, batch)

    monkeypatch.setattr(TransformersEditable, "call", call)
    torch.testing.assert_close(later.vjp(u), expected)
    scarce._budget = 1
    assert not scarce.halve_batches(scarce.prepare(X))


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
    fair = FairIJ(model, search="reweight", verbose=False).fit(
        X, y, X_val=X_val, y_val=y_val, sensitive_features_val=s_val
    )
    assert fair.candidates_["k"][fair.chosen_] > 0
    assert scales[:2] == [1, 40]  # the model as it is; all scales, screened
    assert set(scales[2:]) == {40, 1}  # each one run corrects the others
    assert 1 in scales[-2:]  # and the one taken was run on all rows
    predicted = fair.predict(X_val)
    gap = abs(predicted[s_val == 1].mean() - predicted[s_val == 0].mean())
    assert fair.candidates_["gap"][fair.chosen_] == pytest.approx(gap, abs=1e-9)


def test_a_frozen_part_in_bfloat16_is_run_so_and_edits_stay_in_float32() -> None:
    model, X = classifier(), token_rows()
    reference = adapt(copy.deepcopy(model), parameters="classifier").linearize(X)
    model.bert.to(torch.bfloat16)
    editable = adapt(model, parameters="classifier")
    linear = editable.linearize(X)
    assert editable.theta.dtype == linear.outputs.dtype == torch.float32
    assert torch.allclose(linear.outputs, reference.outputs, atol=0.02)
    r = random(len(editable.theta)).float()
    assert torch.allclose(linear.jvp(r), reference.jvp(r), atol=0.1)


def test_rows_in_every_form_give_the_same_outputs() -> None:
    model, X = classifier(), token_rows(6)
    editable = adapt(model, parameters="classifier")
    expected = editable.outputs(X)
    ragged = [row[: int(n)].tolist() for row, n in zip(X["input_ids"], lengths(X), strict=True)]
    frame = pd.DataFrame({"input_ids": ragged})
    datasets = pytest.importorskip("datasets")
    forms: list[Any] = [
        {name: part.numpy() for name, part in X.items()},
        frame,
        datasets.Dataset.from_dict({"input_ids": ragged}),
    ]
    for form in forms:
        assert torch.allclose(editable.outputs(form), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a text"], "must be tokenised"),
        ({"words": np.zeros((2, 3))}, "with `input_ids` among its columns"),
        ({"input_ids": torch.zeros(2, 3)}, "must be whole numbers"),
        (np.zeros((2, 3)), "must be texts, or tokenised rows"),
        (["a text", None], "row 1 holds None"),
        (
            {"input_ids": torch.ones(2, 3).long(), "position_ids": torch.ones(2, 3).long()},
            "got 'position_ids', which would be left out",
        ),
    ],
)
def test_other_rows_are_refused(rows: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        adapt(classifier(), parameters="classifier").outputs(rows)


def test_only_padding_is_masked_where_nothing_is_said_of_it() -> None:
    model = gpt2_classifier(num_labels=2)  # knows of no padding
    editable = adapt(model, parameters="score")
    assert editable.prepare({"input_ids": [[0, 5, 6], [5, 0]]})["attention_mask"].tolist() == [
        [1, 1, 1],
        [1, 1, 0],
    ]
    table = {"input_ids": torch.tensor([[0, 5, 6], [5, 0, 0]])}
    assert editable.prepare(table)["attention_mask"].all()
    padded = adapt(classifier(), parameters="classifier").prepare(table)
    assert padded["attention_mask"].tolist() == [[0, 1, 1], [1, 0, 0]]  # by the model's settings


def test_labels_may_be_the_models_own_words() -> None:
    names = {"id2label": {0: "toxic", 1: "fine"}, "label2id": {"toxic": 0, "fine": 1}}
    X, y, _ = biased_rows(200, 0)
    X_val, y_val, s_val = biased_rows(150, 1)
    model = trained(classifier(**names), X, y)
    words = np.array(["toxic", "fine"])
    asked = {"parameters": "classifier"}
    by_name = fitted(model, X, words[y], X_val, words[y_val], s_val, **asked)
    by_number = fitted(model, X, y, X_val, y_val, s_val, **asked)
    assert by_name.classes_.tolist() == ["toxic", "fine"]
    assert by_name.before_.metrics.equals(by_number.before_.metrics)
    assert np.array_equal(by_name.predict(X_val), words[by_number.predict(X_val)])


def test_what_the_model_was_trained_for_is_taken_into_account() -> None:
    X, y, s = biased_rows(60, 0)
    model = classifier(num_labels=1, problem_type="regression")
    with pytest.raises(InvalidInputError, match="must be defined for regression"):
        fitted(model, X, y, X, y, s, parameters="classifier")
    fair = fitted(model, X, y, X, y, s, parameters="classifier", constraints="mean_prediction")
    assert fair.loss_.name == "squared_error"
    body = bert()
    body.config.problem_type = "multi_label_classification"  # of a head that it no longer has
    assert adapt(TriggerTokens(body, 2)).loss_name is None
    several = classifier(num_labels=3, problem_type="multi_label_classification")
    with pytest.raises(InvalidInputError, match="several answers at once"):
        adapt(several)


def test_rows_of_unlike_lengths_are_mitigated() -> None:
    X, y, _ = biased_rows(200, 0)
    X_val, y_val, s_val = biased_rows(150, 1)
    model = trained(classifier(), X, y)

    def cut(X: Any) -> dict[str, Any]:
        return {"input_ids": [row[: 8 + i % 3].tolist() for i, row in enumerate(X["input_ids"])]}

    fair = fitted(model, cut(X), y, cut(X_val), y_val, s_val, parameters="classifier")
    gaps = fair.candidates_["gap"]
    assert gaps.iloc[fair.chosen_] < gaps.iloc[0]
    frame = fitted(
        model, pd.DataFrame(cut(X)), y, pd.DataFrame(cut(X_val)), y_val, s_val,
        parameters="classifier",
    )  # fmt: skip
    assert np.array_equal(frame.influence_, fair.influence_)


def fitted(
    model: Any, X: Any, y: Any, X_val: Any, y_val: Any, s_val: Any, **options: Any
) -> FairIJ:
    fair = FairIJ(model, search=Grid(points=4), verbose=False, **options)
    return fair.fit(X, y, X_val=X_val, y_val=y_val, sensitive_features_val=s_val)


def trained(model: Any, X: Any, y: Any, steps: int = 60, rate: float = 5e-3) -> Any:
    """A short training of what is trainable."""
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], rate)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(**X).logits, torch.as_tensor(y))
        loss.backward()
        optimiser.step()
    return model.eval()


def test_a_fine_tuned_classifier_is_mitigated_saved_and_loaded_again(tmp_path: Path) -> None:
    library = load_transformers()
    X, y, _ = biased_rows(300, 0)
    X_val, y_val, s_val = biased_rows(200, 1)
    model = trained(classifier(), X, y)
    fair = fitted(model, X, y, X_val, y_val, s_val, parameters="classifier")
    gaps = fair.candidates_["gap"]
    assert gaps.iloc[fair.chosen_] < 0.7 * gaps.iloc[0]
    fair.estimator_.save_pretrained(tmp_path)
    again = library.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        found = again(**X_val).logits.argmax(1).numpy()
        old = model(**X_val).logits.argmax(1).numpy()
    assert np.array_equal(found, fair.predict(X_val))
    assert not np.array_equal(found, old)


def peft_config(peft: Any, kind: str) -> Any:
    if kind == "lora":
        return peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "dense"])
    sizes = {"num_virtual_tokens": 3, "num_layers": 2, "token_dim": 16}
    return peft.PromptTuningConfig(task_type="SEQ_CLS", **sizes)


def with_peft(kind: str) -> Any:
    load_transformers()
    peft = pytest.importorskip("peft")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return peft.get_peft_model(classifier(), peft_config(peft, kind))


def test_an_adapter_that_was_loaded_frozen_is_told_of() -> None:
    model = with_peft("lora")
    for parameter in model.parameters():
        parameter.requires_grad = False
    with pytest.raises(InvalidInputError, match="is_trainable=True"):
        adapt(model)


@pytest.mark.parametrize("kind", ["lora", "prompt tuning"])
def test_what_peft_adds_is_edited_saved_and_loaded_again(kind: str, tmp_path: Path) -> None:
    X, model = token_rows(), with_peft(kind)
    editable = adapt(model)
    added = ("lora_", "prompt_encoder", "classifier")
    assert all(any(part in name for part in added) for name in editable.parameter_names)
    assert any(added[kind != "lora"] in name for name in editable.parameter_names)
    linear, u = editable.linearize(X), random(40, 2).float()
    r = random(len(editable.theta), seed=1).float()
    assert float((u * linear.jvp(r)).sum()) == pytest.approx(float(linear.vjp(u) @ r), rel=1e-3)
    edited = editable.edited(editable.theta + r)
    edited.save_pretrained(tmp_path)
    again = pytest.importorskip("peft").PeftModel.from_pretrained(classifier(), tmp_path).eval()
    with torch.no_grad():
        found = again(**X).logits
    assert torch.allclose(found, editable.outputs(X, editable.theta + r), atol=1e-5)
    assert not torch.allclose(found, editable.outputs(X), atol=1e-2)


def test_a_lora_model_is_mitigated() -> None:
    X, y, _ = biased_rows(300, 0)
    X_val, y_val, s_val = biased_rows(150, 1)
    model = trained(with_peft("lora"), X, y, steps=50, rate=2e-2)
    fair = fitted(model, X, y, X_val, y_val, s_val, damping=(1e-2, 1e-1))
    gaps = fair.candidates_["gap"]
    assert gaps.iloc[fair.chosen_] < 0.5 * gaps.iloc[0]


class Words:
    """A tokenizer of numbers written out: '1 22 5'."""

    def __call__(self, texts: list[str], truncation: bool, max_length: int) -> dict[str, Any]:
        return {"input_ids": [[int(w) for w in t.split()][:max_length] for t in texts]}


def test_texts_can_be_given_where_the_tokenizer_is_known() -> None:
    X, y, _ = biased_rows(120, 0)
    X_val, y_val, s_val = biased_rows(120, 1)
    texts, texts_val = (
        [" ".join(map(str, row)) for row in part["input_ids"].tolist()] for part in (X, X_val)
    )
    model = trained(classifier(), X, y, steps=40)
    by_tokens = fitted(model, X, y, X_val, y_val, s_val, parameters="classifier")
    wrapped = TextClassifier(model, Words())
    by_texts = fitted(wrapped, texts, y, texts_val, y_val, s_val, parameters="model.classifier")
    assert isinstance(by_texts.estimator_, TextClassifier)
    assert np.allclose(by_texts.influence_, by_tokens.influence_, atol=1e-7)
    assert np.array_equal(by_texts.predict(texts_val), by_tokens.predict(X_val))


class Comments(Dataset):
    def __init__(self, rows: dict[str, torch.Tensor]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows["input_ids"])

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        return {name: part[place] for name, part in self.rows.items()}


@pytest.mark.parametrize("curvature", ["ggn", "empirical_fisher"])
def test_rows_that_a_loader_gives_are_scored_as_those_in_memory(curvature: str) -> None:
    """Batches of like length stand in another order than the chunks that they are cut from."""
    X, rows = token_rows(90, seed=3), torch.arange(90)
    y, s = (rows % 2).numpy(), (rows % 3 == 0).numpy().astype(int)
    chunked = LoaderSource(DataLoader(Comments(X), batch_size=32))
    options = {"parameters": "classifier", "curvature": curvature, "search": Grid(points=3)}
    read, held = (
        FairIJ(classifier(), verbose=False, **options).fit(
            part, y, X_val=part, y_val=y, sensitive_features_val=s
        )
        for part in (chunked, X)
    )
    size = np.abs(held.influence_).max()
    np.testing.assert_allclose(read.influence_, held.influence_, atol=1e-3 * size)
