"""What peft adds to a model is edited, saved and loaded again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from text_cases import FILTERS, fitted, random, trained
from tiny import biased_rows, classifier, token_rows

from fairij.errors import InvalidInputError
from fairij.models import adapt
from fairij.models.text.library import load_transformers

pytestmark = FILTERS


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
    X, y, _ = biased_rows(200, 0)
    X_val, y_val, s_val = biased_rows(150, 1)
    model = trained(with_peft("lora"), X, y, steps=50, rate=2e-2)
    fair = fitted(model, X, y, X_val, y_val, s_val, damping=(1e-2, 1e-1))
    gaps = fair.candidates_["gap"]
    assert gaps.iloc[fair.chosen_] < 0.5 * gaps.iloc[0]
