"""Folders of peft: opened with the base model's folder, edited, saved and opened again."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from fairij.errors import InvalidInputError
from fairij.models import adapt
from fairij.storage.model_files import Opening, load_model

pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
sys.path.insert(0, str(Path(__file__).parents[1] / "language"))
from tiny import bert, classifier, tokenizer  # noqa: E402

FRAME = pd.DataFrame({"text": ["w5 w6 w7", "w8", "w9 w10 w11 w12"]})
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def lora(model: Any, **options: Any) -> Any:
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"], **options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        found = peft.get_peft_model(model, config)
        for name, parameter in found.named_parameters():
            if "lora_B" in name or "classifier" in name:
                torch.nn.init.normal_(parameter)
    return found.eval()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    classifier(num_labels=2).save_pretrained(folder / "base")
    tokenizer().save_pretrained(folder / "base")
    lora(classifier(num_labels=2)).save_pretrained(folder / "adapter")
    return folder


@pytest.fixture
def folders(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "both"))


def logits(model: Any, rows: Any) -> torch.Tensor:
    with torch.no_grad():
        return torch.as_tensor(model(**rows).logits)


def test_an_adapter_is_opened_edited_and_opened_again(folders: Path, tmp_path: Path) -> None:
    opening = Opening(base_model=folders / "base")
    file = load_model(folders / "adapter", opening)
    rows = file.prepare(FRAME)
    assert file.takes_text
    assert file.labels == {"LABEL_0": 0, "LABEL_1": 1}
    expected = logits(lora(classifier(num_labels=2)), rows)
    assert torch.allclose(logits(file.model, rows), expected, atol=1e-6)
    editable = adapt(file.model)
    assert any("lora_A" in name for name in editable.parameter_names)
    assert not any("embeddings" in name for name in editable.parameter_names)
    edited = editable.edited(editable.theta + 0.1)
    file.save(edited, tmp_path / "out")
    again = load_model(tmp_path / "out", opening)
    assert torch.allclose(logits(again.model, rows), logits(edited, rows), atol=1e-6)
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_the_adapter_brings_the_head_along(folders: Path) -> None:
    """The base is a plain encoder, and there are three labels."""
    shutil.rmtree(folders / "base")
    bert().save_pretrained(folders / "base")
    tokenizer().save_pretrained(folders / "adapter")
    three = lora(classifier(num_labels=3))
    three.save_pretrained(folders / "adapter")
    file = load_model(folders / "adapter", Opening(base_model=folders / "base"))
    assert logits(file.model, file.prepare(FRAME)).shape == (3, 3)


def changed(folders: Path, **entries: Any) -> None:
    path = folders / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"task_type": "CAUSAL_LM"}, "task_type 'SEQ_CLS'"),
        ({"auto_mapping": {"parent_library": "evil"}}, "no such code is run"),
        ({"r": 3}, "cannot be read as a folder of peft"),
        ({"target_modules": ["key"]}, "must hold the parameters of its adapter"),
        ({"target_modules": ["query", "key"]}, "must hold the parameters of its adapter"),
        ({"peft_type": "NO_SUCH"}, "cannot be read as a folder of peft"),
    ],
)
def test_other_folders_are_refused(folders: Path, entries: dict[str, Any], message: str) -> None:
    changed(folders, **entries)
    with pytest.raises(InvalidInputError, match=message):
        load_model(folders / "adapter", Opening(base_model=folders / "base"))


def test_what_is_missing_is_named(folders: Path) -> None:
    with pytest.raises(InvalidInputError, match="--base-model"):
        load_model(folders / "adapter")
    (folders / "adapter" / "adapter_model.safetensors").unlink()
    with pytest.raises(InvalidInputError, match=r"must hold adapter_model.safetensors"):
        load_model(folders / "adapter", Opening(base_model=folders / "base"))
