"""Hugging Face folders: what is missing, left over, of another shape or outside is refused."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from fairij.errors import InvalidInputError
from fairij.language import load_encoder
from fairij.storage.model_files import huggingface_checks, load_model

pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).parents[1] / "language"))
from tiny import bert, classifier, tokenizer

Change = Callable[[Path], object]
BODY = "bert.encoder.layer.0.attention.self.query.weight"
EVIL = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\nclass Evil: pass\n"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    classifier(num_labels=2).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


def weights(change: Callable[[dict[str, Any]], object]) -> Change:
    def work(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return work


def table(name: str = "config.json", **entries: Any) -> Change:
    def work(folder: Path) -> None:
        content = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
        (folder / name).write_text(json.dumps(content | entries))

    return work


def put(name: str, content: str) -> Change:
    return lambda folder: (folder / name).write_text(content)


def pipe(name: str) -> Change:
    def work(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return work


def outside(folder: Path) -> None:
    names = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder.parent / "other.safetensors")
    places = dict.fromkeys(names, "../other.safetensors")
    put("model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": places}))(folder)


REFUSED: dict[str, tuple[Change, str]] = {
    "no head": (
        weights(lambda w: w.pop("classifier.weight")),
        "'classifier.weight' is missing",
    ),
    "a part of the body": (weights(lambda w: w.pop(BODY)), f"but '{BODY}' is missing, and would"),
    "no weights": (weights(lambda w: w.clear()), "and 38 more are missing"),
    "more layers": (table(num_hidden_layers=4), "and 29 more are missing"),
    "fewer layers": (table(num_hidden_layers=1), "and 13 more are not of it: config.json"),
    "left over": (weights(lambda w: w.update(evil=torch.ones(3))), "but 'evil' is not of it"),
    "another shape": (
        weights(lambda w: w.update({"classifier.bias": torch.ones(3)})),
        "'classifier.bias' is (3,) in the file and (2,) by the settings",
    ),
    "many layers": (table(num_hidden_layers=10**6), "describes 1000000 layers, but the folder's"),
    "a huge model": (table(vocab_size=10**12), "describes a model of 16000000005458 parameters"),
    "a negative size": (table(hidden_size=-1), "cannot be read as a Hugging Face folder: Trying"),
    "words for numbers": (
        table(id2label={"0": "a", "1": "b"}, label2id={"a": "x"}),
        "cannot be read as a Hugging Face folder",
    ),
    "an adapter": (
        table("adapter_config.json", peft_type="LORA", base_model_name_or_path="/elsewhere"),
        "holds an adapter (adapter_config.json), which changes a model that lies elsewhere: give",
    ),
    "weights outside": (
        outside,
        "name files in the folder itself, got '../other.safetensors'",
    ),
    "code from the hub": (
        table(_attn_implementation="evil/kernel"),
        "names code outside the folder (_attn_implementation: 'evil/kernel'), and no such code",
    ),
    "a list of settings": (put("config.json", "[]"), "must hold a table of settings"),
    "deep settings": (put("config.json", "[" * 10**5), "cannot be read as a Hugging Face folder"),
    "half a tokenizer": (put("tokenizer.json", "{"), "cannot be read as a Hugging Face folder"),
    "a pipe": (pipe("generation_config.json"), "must be a plain file"),
    "weights from a pipe": (pipe("model.safetensors"), "must be a plain file"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_folders_that_are_refused(folder: Path, case: str, capfd: pytest.CaptureFixture) -> None:
    change, said = REFUSED[case]
    change(folder)
    with pytest.raises(InvalidInputError) as caught:
        load_model(folder)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not "".join(capfd.readouterr())  # the library's own reports show names from the file


def test_a_whole_folder(folder: Path) -> None:
    assert load_model(folder).kind == "Hugging Face folder"


@pytest.mark.parametrize("model_type", ["bert", "evil"])
def test_code_in_a_folder_is_never_run(folder: Path, model_type: str) -> None:
    (folder / "evil.py").write_text(EVIL)
    names = ("AutoConfig", "AutoModelForSequenceClassification")
    table(model_type=model_type, auto_map=dict.fromkeys(names, "evil.Evil"))(folder)
    auto_map = {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}
    table("tokenizer_config.json", auto_map=auto_map, tokenizer_class="Evil")(folder)
    if model_type == "bert":  # a kind that the library knows: its own class is taken
        assert type(load_model(folder).model).__module__.startswith("transformers.")
    else:
        with pytest.raises(InvalidInputError, match="contains custom code"):
            load_model(folder)
    assert not list(folder.rglob("ran"))


def test_large_tables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_checks, "LARGEST_TOKENIZER", 10)
    with pytest.raises(InvalidInputError, match=r"tokenizer.json must have at most 0 MB, got 0.0"):
        load_model(folder)


def test_a_tokenizer_with_more_words_than_the_model(folder: Path) -> None:
    import pandas as pd

    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"]["more"] = 60
    (folder / "tokenizer.json").write_text(json.dumps(content))
    file = load_model(folder)
    assert len(file.prepare(pd.DataFrame({"text": ["w4 w5"]}))["input_ids"]) == 1
    with pytest.raises(InvalidInputError, match="gives token 60, and the model knows 60: save"):
        file.prepare(pd.DataFrame({"text": ["w4 more"]}))


@pytest.mark.parametrize(
    ("cell", "message"),
    [(None, r"row 1 is empty \(such rows: 1\)"), (5, "row 1 holds '5'"), ([1, 2], "row 1 holds")],
)
def test_rows_without_a_text(folder: Path, cell: object, message: str) -> None:
    import pandas as pd

    table = pd.DataFrame({"note": pd.Series(["w4 w5", cell, ""], dtype=object)})
    with pytest.raises(InvalidInputError, match=message):
        load_model(folder).prepare(table)


# --- encoders ---------------------------------------------------------------------------------


def test_the_encoder_of_a_classifier(folder: Path) -> None:
    found, whole = load_encoder(folder), classifier(num_labels=2).bert.state_dict()
    assert all(torch.equal(value, whole[name]) for name, value in found.state_dict().items())


@pytest.mark.parametrize("name", [BODY, "bert.embeddings.LayerNorm.bias"])
def test_an_encoder_without_some_of_its_weights(folder: Path, name: str) -> None:
    weights(lambda w: w.pop(name))(folder)
    with pytest.raises(InvalidInputError, match=r"is missing, and would be random"):
        load_encoder(folder)


def test_an_encoder_of_another_shape(folder: Path) -> None:
    weights(lambda w: w.update({"bert.embeddings.LayerNorm.bias": torch.ones(3)}))(folder)
    with pytest.raises(InvalidInputError, match=r"LayerNorm.bias' is \(3,\) in the file and \(16"):
        load_encoder(folder)


def test_an_encoder_without_its_pooler(tmp_path: Path) -> None:
    """Encoders that were trained on missing words have none: they have no pooler, not a random."""
    from fairij.language import features

    model = bert()
    model.pooler = None
    model.save_pretrained(tmp_path)
    encoder = load_encoder(tmp_path)
    assert encoder.pooler is None
    rows = {"input_ids": torch.tensor([[4, 5]]), "attention_mask": torch.ones(1, 2).long()}
    assert features(rows, encoder).shape == (1, 16)
    with pytest.raises(InvalidInputError, match="This encoder has no pooler: use pooling='mean'"):
        features(rows, encoder, pooling="pooler")


def test_an_encoder_that_brings_its_own_code(folder: Path) -> None:
    (folder / "evil.py").write_text(EVIL)
    table(model_type="evil", auto_map={"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"})(folder)
    with pytest.raises(InvalidInputError, match="cannot be read as a Hugging Face encoder"):
        load_encoder(folder)
    assert not list(folder.rglob("ran"))


def test_an_encoder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read as a Hugging Face encoder"):
        load_encoder(tmp_path / "nothing")
