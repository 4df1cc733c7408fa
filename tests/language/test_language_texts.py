"""Texts: read as they stand, tokenised as far as a model goes, and classified."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("transformers")

from tiny import bert, classifier, gpt2_classifier, roberta, t5, token_rows, tokenizer

from fairij.errors import InvalidInputError
from fairij.language import (
    TextClassifier,
    TriggerTokens,
    labelled,
    load_tokenizer,
    longest_text,
    tokenise,
)
from fairij.models import adapt
from fairij.models.text.library import load_transformers

FRAME = pd.DataFrame({"text": ["a b", "c"], "label": [0, 1], "other": [1, 2]})


def test_tables_of_every_kind_are_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    for name in ("t.csv", "t.CSV", "t.csv.gz"):
        FRAME.to_csv(tmp_path / name, index=False)
    FRAME.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    for name in ("t.jsonl", "t.jsonl.gz"):
        FRAME.to_json(tmp_path / name, lines=True, orient="records")
    FRAME.to_json(tmp_path / "t.json", orient="records")
    FRAME.to_parquet(tmp_path / "t.parquet")
    whole = datasets.Dataset.from_pandas(FRAME)
    sources: list[Any] = [FRAME, FRAME.to_dict("list"), whole, whole.with_format("torch")]
    sources += sorted(tmp_path.iterdir())
    nested = [{**record, "marks": [1, 2]} for record in FRAME.to_dict("records")]
    (tmp_path / "nested.json").write_text(json.dumps(nested))  # columns that are not read
    sources.append(tmp_path / "nested.json")
    assert len(sources) == 13
    for source in sources:
        texts, labels = labelled(source)
        assert texts == ["a b", "c"]
        assert labels.tolist() == [0, 1]


def test_texts_are_read_as_they_stand(tmp_path: Path) -> None:
    texts = ["NA", "null", "", "007", "2020-01-01", "1e3", "true", 'a "b", c']
    frame = pd.DataFrame({"date": texts, "label": range(8)})
    for name in ("t.csv", "t.tsv"):
        frame.to_csv(tmp_path / name, index=False, sep="\t" if name == "t.tsv" else ",")
    records = frame.to_dict("records")
    (tmp_path / "t.json").write_text(json.dumps(records))
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    for file in tmp_path.iterdir():
        found, labels = labelled(file, text="date")
        assert found == texts
        assert labels.tolist() == list(range(8))


def test_tables_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    (tmp_path / "broken.parquet").write_text("no table")
    splits = datasets.DatasetDict({"train": datasets.Dataset.from_pandas(FRAME)})
    for source, complaint in [
        ("t.xml", "must end in one of"),
        (tmp_path / "none.csv", "No table at .*none.csv; check the path"),
        (tmp_path / "broken.parquet", "broken.parquet cannot be read as parquet: "),
        (splits, r"the splits \['train'\]: choose one, as in `dataset\['train'\]`"),
        (
            FRAME.rename(columns={"label": "toxic"}),
            r"`source` must have the column\(s\) 'label'.*; it has: text, toxic, other",
        ),
        (FRAME.assign(text=["a", None]), r"source\['text'\]` must be texts, but row 1 holds"),
        (FRAME.assign(text=[7, 8]), r"source\['text'\]` must be texts, but row 0 holds 7"),
        (None, "must be a file, frame, dataset or mapping, got NoneType"),
    ]:
        with pytest.raises(InvalidInputError, match=complaint):
            labelled(source)


class Letters:
    """A tokenizer that gives nothing but numbers."""

    def __call__(self, texts: list[str], **_: Any) -> dict[str, list[list[int]]]:
        return {"input_ids": [[ord(letter) for letter in text] for text in texts]}


def test_tokenising_takes_a_column_or_a_table_with_one() -> None:
    datasets = pytest.importorskip("datasets")
    texts = ["ab", "c"]
    for source in (
        texts,
        pd.Series(texts),
        np.array(texts),
        pd.DataFrame({"text": texts, "title": texts}),
        pd.DataFrame({"comment": texts, "label": [0, 1]}),
        datasets.Dataset.from_dict({"text": texts}),
        datasets.Dataset.from_dict({"comment": texts, "label": [0, 1]}),
    ):
        found = tokenise(source, Letters())
        assert found["input_ids"].tolist() == [[97, 98], [99]]
        assert found["attention_mask"].tolist() == [[1, 1], [1]]


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        ("sky rain", "must be a list or column of texts, got a single text"),
        (None, "must be a list or column of texts, got NoneType"),
        ([], "must hold at least one text"),
        (["sky", None], "must be texts, but row 1 holds None"),
        ([("sky", "rain")], "must be texts, but row 0 holds tuple"),
        (pd.DataFrame({"a": ["b"], "c": ["d"]}), r"one column with text, .* found \['a', 'c'\]"),
        (pd.DataFrame({"a": [1.0]}), r"one column with text, .* found \[\] among"),
    ],
)
def test_what_is_not_texts_is_refused(texts: Any, complaint: str) -> None:
    with pytest.raises(InvalidInputError, match=f"`texts` .*{complaint}"):
        tokenise(texts, Letters())


def test_texts_are_cut_where_the_model_or_its_tokenizer_ends() -> None:
    free, short = tokenizer(), tokenizer(model_max_length=30)
    assert longest_text(bert(), free) == 40
    assert longest_text(bert(), short) == 30
    assert longest_text(roberta(), free) == 38  # behind its padding, which is 1
    assert longest_text(gpt2_classifier(), free) == 40
    assert longest_text(t5(), free) == 512
    assert longest_text(t5(), short) == 30
    assert longest_text(TriggerTokens(bert(), 3), free) == 37
    long = " ".join(["w5"] * 600)
    assert len(TextClassifier(classifier(), free).tokenise([long])["input_ids"][0]) == 40
    assert [len(row) for row in tokenise([long], free)["input_ids"]] == [512]
    assert [len(row) for row in tokenise([long], short)["input_ids"]] == [30]
    assert TextClassifier(classifier(), free, max_length=8).max_length == 8


def test_a_prompt_of_peft_takes_places_of_a_text() -> None:
    peft = pytest.importorskip("peft")
    config = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=8)
    assert longest_text(peft.get_peft_model(classifier(), config), tokenizer()) == 32


def test_the_longest_text_runs() -> None:
    for model in (bert(), roberta(), gpt2_classifier()):
        most = longest_text(model, tokenizer())
        with torch.no_grad():
            model(input_ids=torch.full((1, most), 7))
            with pytest.raises((IndexError, RuntimeError)):
                model(input_ids=torch.full((1, most + 1), 7))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"tokenizer": None}, r"must be the model's tokenizer, got None: load it"),
        ({"max_length": 41}, "must be at most 40, the number of the model's positions; got 41"),
        ({"max_length": 0}, "must be a whole number of at least 1"),
    ],
)
def test_a_classifier_without_tokenizer_or_with_too_long_texts_is_refused(
    given: Any, complaint: str
) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        TextClassifier(**{"model": classifier(), "tokenizer": tokenizer(), **given})


@pytest.mark.parametrize("pad", [None, "[PAD]"])
def test_a_model_that_knows_no_padding_is_told(pad: Any, tmp_path: Path) -> None:
    library, model, words = load_transformers(), gpt2_classifier(), tokenizer(pad_token=pad)
    wrapped = TextClassifier(model, words)
    texts = ["w5 unknown w7", "w8", "w9 w10 w11 w12"]
    found = adapt(wrapped, parameters="model.score").outputs(texts)
    with torch.no_grad():
        alone = [model(**words(text, return_tensors="pt")).logits[0] for text in texts]
    if pad is None:  # the end of a text pads, so the last token is the one before
        ids = [words(text)["input_ids"][:-1] for text in texts]
        with torch.no_grad():
            alone = [model(input_ids=torch.tensor([row])).logits[0] for row in ids]
    torch.testing.assert_close(found, torch.stack(alone))
    assert model.config.pad_token_id is None
    assert words.pad_token == pad
    assert wrapped.model.score.weight is model.score.weight
    wrapped.save_pretrained(tmp_path)
    again = library.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    tokens = library.AutoTokenizer.from_pretrained(tmp_path)(
        texts, padding=True, return_tensors="pt", return_token_type_ids=False
    )
    with torch.no_grad():
        torch.testing.assert_close(again(**tokens).logits, found)


def test_a_model_that_cannot_be_told_is_refused() -> None:
    words = tokenizer(pad_token=None, eos_token=None)
    with pytest.raises(InvalidInputError, match=r"`tokenizer.pad_token = ...; model.config.pad_"):
        TextClassifier(gpt2_classifier(), words)
    TextClassifier(classifier(), words)  # it has one


def test_an_adapter_on_a_model_without_padding_is_told_as_well() -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(
        task_type="SEQ_CLS", r=2, target_modules=["c_attn"], fan_in_fan_out=True
    )
    base = gpt2_classifier()
    wrapped = TextClassifier(peft.get_peft_model(base, config).eval(), tokenizer(pad_token=None))
    assert adapt(wrapped).outputs(["w5 w6", "w7"]).shape == (2, 2)
    assert base.config.pad_token_id is None


def test_token_types_are_left_out_where_the_model_has_none() -> None:
    library = load_transformers()
    words = tokenizer(model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    config = library.DistilBertConfig(
        vocab_size=60, dim=16, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=40
    )
    for model, known in (
        (classifier(), True),
        (library.DistilBertForSequenceClassification(config).eval(), False),
    ):
        found = TextClassifier(model, words).tokenise(["w5"])
        assert ("token_type_ids" in found) == known
    assert list(tokenise(["w5"], words)) == ["input_ids", "attention_mask"]


def test_triggers_are_saved_with_their_tokenizer_and_without_the_encoder(tmp_path: Path) -> None:
    model = TriggerTokens(bert(), 2)
    TextClassifier(model, tokenizer()).save_pretrained(tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
    assert load_tokenizer(tmp_path)("w5")["input_ids"] == [2, 5, 3]
    other, rows = TriggerTokens.from_pretrained(tmp_path, bert()), token_rows(5)
    assert torch.equal(other(**rows), model(**rows))
    with pytest.raises(InvalidInputError, match=r"got Linear: save `model.state_dict\(\)`"):
        TextClassifier(torch.nn.Linear(2, 2), tokenizer(), max_length=9).save_pretrained(tmp_path)
