"""Odd texts and labels: what works, and what is refused in a clear sentence."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("transformers")

from tiny import classifier, gpt2_classifier, tokenizer

from fairij import FairIJ, Grid
from fairij.errors import InvalidInputError
from fairij.language import TextClassifier, identities_of, identity_probe, labelled, tokenise
from fairij.models import adapt
from fairij.models.text.library import load_transformers

pytestmark = [
    pytest.mark.filterwarnings("ignore::fairij.errors.FairIJWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
ODD = {
    "empty": "",
    "one token": "w5",
    "spaces": " \n\t ",
    "emoji": "🙂👩🏽‍🚀 w7 🏳️‍🌈",
    "right to left": "شكرا جزيلا \u202e w8 תודה",
    "null and marks": "\x00 w9 \ufeff\u200b",
    "long": "w9 " * 33_334,  # 100,002 characters
    "one long word": "x" * 100_000,
}


@cache
def rows() -> tuple[list[str], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    s, y = rng.integers(0, 2, 60), rng.integers(0, 2, 60)
    texts = [f"w{10 + 20 * a + b} w{rng.integers(4, 60)}" for a, b in zip(s, y, strict=True)]
    return texts, y, s


def fit(model: Any, texts: list[str], y: Any, s: Any, **settings: Any) -> FairIJ:
    made = {"search": Grid(points=2), "parameters": "model.classifier", "verbose": False}
    given = {"X_val": texts, "y_val": y, "sensitive_features_val": s}
    return FairIJ(model, **(made | settings)).fit(texts, y, **given)


def test_odd_texts_are_scored_edited_and_predicted() -> None:
    texts, y, s = rows()
    odd = [*ODD.values(), *texts]
    truth, groups = (np.concatenate([np.arange(len(ODD)) % 2, part]) for part in (y, s))
    fair = fit(TextClassifier(classifier(num_labels=2), tokenizer()), odd, truth, groups)
    assert np.isfinite(fair.influence_).all()
    assert set(fair.predict(list(ODD.values()))) <= {0, 1}
    cut = tokenise([ODD["long"]], tokenizer(), max_length=40)
    assert len(cut["input_ids"].iloc[0]) == 40


def test_a_text_without_tokens_is_refused_by_row() -> None:
    """The tokenizer adds no marks, as those of decoders."""
    bare = tokenizer()
    bare.backend_tokenizer.post_processor = None
    model = TextClassifier(gpt2_classifier(num_labels=2), bare)
    with pytest.raises(InvalidInputError, match="must have at least one token in every row, but"):
        adapt(model).outputs(["w4 w5", ""])
    assert adapt(model).outputs(["w4", ODD["emoji"]]).shape == (2, 2)


def test_tokens_beyond_the_models_positions_are_refused() -> None:
    ids = torch.ones(2, 50, dtype=torch.long)
    with pytest.raises(InvalidInputError, match="at most 40 tokens per row"):
        adapt(classifier(num_labels=2)).outputs({"input_ids": ids})


@pytest.mark.parametrize(
    ("y", "s", "message"),
    [
        (["calm", "nasty"] * 30, None, "nasty"),
        (["calm"] * 60, None, "must hold both classes"),
        ([0] * 60, None, "must hold both classes"),
        ([0, 1, 2] * 20, None, "three|2 "),
        (None, [0] * 60, "A gap needs at least two groups"),
    ],
)
def test_labels_and_identities_that_are_not_there(y: Any, s: Any, message: str) -> None:
    texts, truth, groups = rows()
    names = {"id2label": {0: "calm", 1: "rude"}, "label2id": {"calm": 0, "rude": 1}}
    model = TextClassifier(classifier(num_labels=2, **names), tokenizer())
    with pytest.raises(InvalidInputError, match=message):
        fit(model, texts, truth if y is None else y, groups if s is None else s)


def test_a_table_without_the_column() -> None:
    with pytest.raises(InvalidInputError, match="'toxic'"):
        labelled(pd.DataFrame({"text": ["a"], "label": [1]}), label="toxic")


def test_no_identity_of_the_probe_is_mentioned() -> None:
    from fairij.fairness.groups import encode_groups

    assert identities_of(["nothing", "here"], encode_groups([0, 1])) == ()
    probe = identity_probe(TextClassifier(classifier(num_labels=2), tokenizer()))
    assert np.isfinite(probe.scores.to_numpy()).all()


def test_one_label_of_several_is_edited_and_the_others_stay() -> None:
    texts, y, s = rows()
    names = {0: "insult", 1: "threat", 2: "spam"}
    model = classifier(num_labels=3, id2label=names, problem_type="multi_label_classification")
    with pytest.raises(InvalidInputError, match=r"label='insult'"):
        adapt(TextClassifier(model, tokenizer()))
    with pytest.raises(InvalidInputError, match="one of the model's labels, 'insult', 'threat'"):
        TextClassifier(model, tokenizer(), label="rude")
    one = TextClassifier(model, tokenizer(), label="threat")
    assert adapt(one).outputs(texts).shape == (60,)
    edited = fit(one, texts, y, s, selection="lowest_gap", damping=1e-3).estimator_
    tokens = one.tokenise(texts[:4])
    with torch.no_grad():
        given = {n: torch.tensor(part) for n, part in tokens.items()}
        before, after = (m.model(**given).logits for m in (one, edited))
    assert torch.equal(before[:, [0, 2]], after[:, [0, 2]])
    assert not torch.equal(before[:, 1], after[:, 1])
    assert edited.model.config.problem_type == "multi_label_classification"


@pytest.mark.parametrize("make", [classifier, gpt2_classifier])
def test_a_pipeline_of_the_saved_result_gives_the_same_labels(make: Any, tmp_path: Path) -> None:
    texts, y, s = rows()
    named = {"id2label": {0: "calm", 1: "rude"}, "label2id": {"calm": 0, "rude": 1}}
    part = "model.classifier" if make is classifier else "model.score"
    fair = fit(
        TextClassifier(make(num_labels=2, **named), tokenizer(pad_token=None)),
        texts,
        y,
        s,
        parameters=part,
        selection="lowest_gap",
    )
    fair.estimator_.save_pretrained(tmp_path)
    pipeline = load_transformers().pipeline("text-classification", model=str(tmp_path))
    for batch_size in (1, 16):
        said = [one["label"] for one in pipeline(texts, batch_size=batch_size)]
        assert said == [["calm", "rude"][label] for label in fair.predict(texts)]
    chances = pipeline(texts[:3], top_k=None)
    rude = [next(one["score"] for one in some if one["label"] == "rude") for some in chances]
    np.testing.assert_allclose(rude, fair.predict_proba(texts[:3])[:, 1], atol=1e-5)
