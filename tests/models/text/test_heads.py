"""A linear head alone is edited: the frozen part runs once, and never on all rows together."""

from __future__ import annotations

from functools import wraps
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers")

from text_cases import FILTERS, random
from tiny import biased_rows, classifier, gpt2_classifier, token_rows, tokenizer

from fairij import Constrained, FairIJ
from fairij.language import TextClassifier, features
from fairij.language.batches import run_all
from fairij.models import adapt, check_editable
from fairij.models.constant import ConstantLinearization
from fairij.models.text import tokens
from fairij.models.text.library import load_transformers
from fairij.models.torch.linearization import PROBE_ROWS, TorchLinearization

pytestmark = FILTERS
SEVERAL = {"num_labels": 3, "problem_type": "multi_label_classification"}


def one_label() -> Any:
    names = {0: "insult", 1: "threat", 2: "spam"}
    return TextClassifier(classifier(**SEVERAL, id2label=names).double(), tokenizer(), label="spam")


CASES = {
    "weight and bias": (lambda: classifier().double(), "classifier"),
    "one output": (lambda: classifier(num_labels=1).double(), "classifier"),
    "bias alone": (lambda: classifier().double(), "classifier.bias"),
    "read at one token, no bias": (lambda: gpt2_classifier(pad_token_id=0).double(), "score"),
    "one label of several": (one_label, "model.classifier"),
}


@pytest.mark.parametrize("case", CASES)
def test_edits_of_a_linear_head_follow_from_what_it_reads(case: str) -> None:
    make, parameters = CASES[case]
    editable, X = adapt(make(), parameters=parameters), token_rows(20)
    linear = editable.linearize(X)
    assert isinstance(linear, ConstantLinearization)
    by = random(len(editable.theta))
    there = editable.run(editable.ready(X), editable.theta + by)  # type: ignore[attr-defined]
    torch.testing.assert_close(linear.moved(by).outputs, there)
    check_editable(editable, X)


SIZES = {"vocab_size": 64, "num_labels": 2, "pad_token_id": 0}


def roberta() -> Any:
    """A head of two layers in one module, on the first token."""
    library = load_transformers()
    wide = {"hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 64}
    config = library.RobertaConfig(
        num_hidden_layers=1, num_attention_heads=2, **SIZES, **wide, attn_implementation="eager"
    )
    return library.RobertaForSequenceClassification(config).double()


def distilbert() -> Any:
    """A head of two layers side by side in the model."""
    library = load_transformers()
    wide = {"dim": 16, "hidden_dim": 32, "max_position_embeddings": 64}
    config = library.DistilBertConfig(n_layers=1, n_heads=2, **SIZES, **wide)
    return library.DistilBertForSequenceClassification(config).double()


SEVERAL_LAYERS: dict[str, tuple[Any, Any]] = {
    "one layer, not linear": (lambda: classifier().double(), "bert.pooler"),
    "BERT": (lambda: classifier().double(), ["classifier", "bert.pooler"]),
    "one output": (lambda: classifier(num_labels=1).double(), ["classifier", "bert.pooler"]),
    "RoBERTa": (roberta, "classifier"),
    "DistilBERT": (distilbert, ["pre_classifier", "classifier"]),
}


@pytest.mark.parametrize("case", SEVERAL_LAYERS)
def test_edits_of_a_head_of_several_layers_follow_from_what_it_reads(case: str) -> None:
    torch.manual_seed(0)
    make, parameters = SEVERAL_LAYERS[case]
    editable, X = adapt(make(), parameters=parameters), token_rows(20)
    linear = editable.linearize(X)
    assert isinstance(linear, TorchLinearization)  # of vectors: rows of tokens come in an order
    by = random(len(editable.theta))
    there = editable.run(editable.ready(X), editable.theta + by)  # type: ignore[attr-defined]
    torch.testing.assert_close(linear.moved(by).outputs, there)
    torch.testing.assert_close(editable.outputs(X, editable.theta + by), there)
    check_editable(editable, X)


def with_forward(forward: Any) -> Any:
    """A BERT classifier whose outputs are computed in another way."""
    kind = load_transformers().BertForSequenceClassification
    model = classifier().double()
    model.__class__ = type("Own", (kind,), {"forward": forward})
    return model


def used_before(self: Any, **tokens: Any) -> Tensor:
    """The edited layer also takes part in the vector that it reads."""
    vectors = self.bert(**tokens).pooler_output
    return self.classifier(vectors * self.classifier.weight.sum(0))


def with_another_vector(self: Any, **tokens: Any) -> Tensor:
    """The outputs also need what the edited layers do not read."""
    found = self.bert(**tokens)
    return self.classifier(torch.tanh(found.pooler_output)) * found.last_hidden_state[:, 0, :2]


@pytest.mark.parametrize(
    ("make", "parameters"),
    [
        (lambda: classifier().double(), ["classifier", "*query*"]),
        (lambda: with_forward(used_before), "classifier"),
        (lambda: with_forward(with_another_vector), ["classifier", "bert.pooler"]),
    ],
)
def test_a_model_that_needs_more_than_its_head_reads_is_run(make: Any, parameters: Any) -> None:
    torch.manual_seed(0)
    editable, X = adapt(make(), parameters=parameters), token_rows(20)
    assert not isinstance(editable.linearize(X), (ConstantLinearization, TorchLinearization))
    by = 0.1 * random(len(editable.theta))
    there = editable.run(editable.ready(X), editable.theta + by)  # type: ignore[attr-defined]
    torch.testing.assert_close(editable.linearize(X).moved(by).outputs, there)


def test_what_the_head_reads_is_kept_only_within_the_memory_limit() -> None:
    X = token_rows(40)
    size = 40 * 16 * 8
    for limit, kept in ((size, True), (size - 1, False)):
        editable = adapt(classifier().double(), parameters="classifier", memory_limit=limit)
        assert isinstance(editable.linearize(X), ConstantLinearization) is kept
        editable = adapt(classifier().double(), parameters="*pooler*", memory_limit=limit)
        assert isinstance(editable.linearize(X), TorchLinearization) is kept


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The tokens of all batches that a BERT encoder takes."""
    taken: list[Tensor] = []
    kind = load_transformers().BertModel
    forward = kind.forward

    @wraps(forward)
    def noted(self: Any, *args: Any, **given: Any) -> Any:
        taken.append(args[0] if args else given["input_ids"])
        return forward(self, *args, **given)

    monkeypatch.setattr(kind, "forward", noted)
    return taken


@pytest.mark.parametrize("parameters", ["classifier", ["classifier", "bert.pooler"]])
def test_a_search_of_many_steps_runs_the_frozen_part_a_few_times(
    seen: list[Tensor], parameters: Any
) -> None:
    X, y, _ = biased_rows(200, 0)
    X_val, y_val, s_val = biased_rows(160, 1)
    fair = FairIJ(classifier(), parameters=parameters, search=Constrained(), verbose=False)
    fair.fit(X, y, X_val=X_val, y_val=y_val, sensitive_features_val=s_val)
    assert len(fair.candidates_) > 20
    assert sum(map(len, seen)) < 6 * 360


def test_no_batch_of_a_frozen_part_has_more_tokens_than_fit(
    seen: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tokens.AT_ONCE, "cpu", 120)
    model, X = classifier(), token_rows(400)
    for parameters in ("classifier", "bert.pooler"):
        adapt(model, parameters=parameters).outputs(X)
    features(X, model.bert)
    run_all(model, X)
    larger = [part for part in seen if part.numel() > 120]
    assert len(seen) > 100
    assert all(len(part) <= PROBE_ROWS for part in larger)  # rows by which batches are judged
    assert len(larger) <= 6
