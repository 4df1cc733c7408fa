"""Trigger tokens in a folder: read back for the same encoder, and for no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

from text_cases import FILTERS
from tiny import bert, t5, token_rows

from fairij.errors import InvalidInputError
from fairij.models import adapt
from fairij.models.text.triggers import TriggerTokens

pytestmark = FILTERS


def outputs(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return torch.as_tensor(model.eval()(**token_rows()))


def deep() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 3))


@pytest.mark.parametrize("make", [bert, t5])
def test_an_edited_model_is_read_back(make: Any, tmp_path: Path) -> None:
    editable = adapt(TriggerTokens(make(), 3, seed=4))
    edited = editable.edited(editable.theta + 0.3)
    edited.save_pretrained(tmp_path)
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".json", ".safetensors"]
    again = TriggerTokens.from_pretrained(tmp_path, make())
    assert torch.equal(outputs(again), outputs(edited))


def test_other_heads_and_precisions(tmp_path: Path) -> None:
    model = TriggerTokens(bert().to(torch.bfloat16), 2, deep(), pooling="pooler")
    model.save_pretrained(tmp_path)
    with pytest.raises(InvalidInputError, match="no linear layer but a Sequential"):
        TriggerTokens.from_pretrained(tmp_path, bert())
    again = TriggerTokens.from_pretrained(tmp_path, bert().to(torch.bfloat16), deep())
    assert torch.equal(outputs(again), outputs(model))
    wide = TriggerTokens.from_pretrained(tmp_path, bert(), deep())  # the same, in float32
    assert torch.allclose(outputs(wide), outputs(model), atol=0.05)
    for head in (nn.Linear(16, 3), nn.Sequential(nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 3))):
        with pytest.raises(InvalidInputError, match="`head` must have the form"):
            TriggerTokens.from_pretrained(tmp_path, bert(), head)


def test_another_encoder_is_refused(tmp_path: Path) -> None:
    TriggerTokens(bert(), 2).save_pretrained(tmp_path)
    other = bert()
    with torch.no_grad():
        next(other.parameters()).add_(1e-3)
    with pytest.raises(InvalidInputError, match="load the one that the triggers were trained for"):
        TriggerTokens.from_pretrained(tmp_path, other)
    with pytest.raises(InvalidInputError, match=r"load it with dtype=torch.float32"):
        TriggerTokens.from_pretrained(tmp_path, bert().to(torch.bfloat16))


@pytest.mark.parametrize(
    "entries", [{"format": "other/1"}, {"n_tokens": "2"}, {"encoder_dtype": "nn"}, {"head": [1]}]
)
def test_damaged_folders_are_refused(entries: dict[str, Any], tmp_path: Path) -> None:
    TriggerTokens(bert(), 2).save_pretrained(tmp_path)
    path = tmp_path / "trigger_tokens.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))
    with pytest.raises(InvalidInputError, match="must hold trigger tokens"):
        TriggerTokens.from_pretrained(tmp_path, bert())
    path.unlink()
    with pytest.raises(InvalidInputError, match="must hold trigger tokens"):
        TriggerTokens.from_pretrained(tmp_path, bert())
