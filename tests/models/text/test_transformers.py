"""Classifiers on tokens: order, batches, forms of rows, and what is saved."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

pytest.importorskip("transformers")

from text_cases import FILTERS, fitted, random, trained_classifier
from tiny import bert, biased_rows, classifier, gpt2_classifier, token_rows

from fairij.data.sources import LoaderSource
from fairij.errors import InvalidInputError
from fairij.language import TextClassifier
from fairij.method.search import Grid
from fairij.mitigator import FairIJ
from fairij.models import adapt
from fairij.models.text.library import load_transformers
from fairij.models.text.tokens import bucketed, lengths
from fairij.models.text.transformers import TransformersEditable, graph_room
from fairij.models.text.triggers import TriggerTokens

pytestmark = FILTERS


@pytest.mark.parametrize("options", [{"memory_limit": 0}, {"batch_size": 7}])
def test_outputs_are_the_models_own_in_the_given_order(options: dict[str, Any]) -> None:
    model, X = classifier().double(), token_rows()
    editable = adapt(model, parameters=["classifier", "*query*"], **options)
    assert isinstance(editable, TransformersEditable)
    linear, index = editable.linearize(X), torch.tensor([31, 2, 17])
    with torch.no_grad():
        expected = model(**X).logits
    assert torch.allclose(linear.outputs, expected, atol=1e-12)
    assert torch.allclose(linear.restrict(index).outputs, expected[index], atol=1e-12)


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
    wrapped = TextClassifier(trained_classifier(), Words())
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


def test_a_pattern_that_matches_nothing_is_answered_by_an_outline_of_the_names() -> None:
    with pytest.raises(InvalidInputError, match=r"there are: .*bert\.encoder\.\*") as found:
        adapt(classifier(), parameters="head*").outputs(token_rows())
    assert "classifier.weight" in str(found.value)
    assert "layer" not in str(found.value)


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


def test_a_head_that_returns_probabilities_is_read_as_logits() -> None:
    X, _, _ = biased_rows(60, 0)
    plain = copy.deepcopy(trained_classifier())
    ending = copy.deepcopy(plain)
    ending.classifier = torch.nn.Sequential(ending.classifier, torch.nn.Softmax(dim=-1))
    given, expected = adapt(ending, parameters="classifier"), adapt(plain, parameters="classifier")
    assert torch.equal(given.outputs(X), expected.outputs(X))
    assert given.outputs_are == "probabilities"
    r = torch.randn(len(given.theta), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(given.linearize(X).jvp(r), expected.linearize(X).jvp(r), atol=1e-5)


def test_labels_may_be_the_models_own_words() -> None:
    names = {"id2label": {0: "toxic", 1: "fine"}, "label2id": {"toxic": 0, "fine": 1}}
    X, y, _ = biased_rows(200, 0)
    X_val, y_val, s_val = biased_rows(150, 1)
    model = copy.deepcopy(trained_classifier())
    model.config.id2label, model.config.label2id = names["id2label"], names["label2id"]
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
    with pytest.raises(InvalidInputError, match="which predicts several"):
        adapt(several)


def test_rows_of_unlike_lengths_are_mitigated() -> None:
    X, y, _ = biased_rows(200, 0)
    X_val, y_val, s_val = biased_rows(150, 1)
    model = trained_classifier()

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


def test_a_fine_tuned_classifier_is_mitigated_saved_and_loaded_again(tmp_path: Path) -> None:
    library = load_transformers()
    X, y, _ = biased_rows(200, 0)
    X_val, y_val, s_val = biased_rows(150, 1)
    model = trained_classifier()
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
    model = trained_classifier()
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
        FairIJ(
            classifier(), verbose=False, **({"search": "grid", "selection": "lowest_gap"} | options)
        ).fit(part, y, X_val=part, y_val=y, sensitive_features_val=s)
        for part in (chunked, X)
    )
    size = np.abs(held.influence_).max()
    np.testing.assert_allclose(read.influence_, held.influence_, atol=1e-3 * size)


@pytest.mark.parametrize(("free", "room"), [(16, 3.2), (139, 8)])
def test_a_graph_takes_a_share_of_what_is_free_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, free: float, room: float
) -> None:
    """Of a small card, or one that other processes fill, a batch must not take all."""
    known = {"memory_reserved": 3 * 2**30, "memory_allocated": 2 * 2**30}
    for name, size in known.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, size=size: size)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: ((free - 1) * 2**30, 2**37))
    assert graph_room(torch.device("cuda")) == int(room * 2**30)
    assert graph_room(torch.device("cpu")) == 2**28
