"""Activation checkpointing and a frozen part in bfloat16: the same products, with less memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from text_cases import FILTERS, random
from tiny import token_rows

from fairij import FairIJ, Grid
from fairij.models import adapt
from fairij.models.text.library import load_transformers
from fairij.models.torch.autograd import saved_bytes
from fairij.models.torch.checkpointing import repeated_layers

peft = pytest.importorskip("peft")
pytestmark = FILTERS
X = token_rows()


def decoder(dtype: torch.dtype = torch.float32, *, recomputed: bool = False) -> Any:
    """A small Llama with LoRA, whose edited parameters are in float32."""
    library = load_transformers()
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 40}
    config = library.LlamaConfig(vocab_size=60, pad_token_id=0, **sizes, **heads)
    lora = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["q_proj", "v_proj"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = peft.get_peft_model(library.LlamaForSequenceClassification(config).to(dtype), lora)
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
    if recomputed:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.eval()


def products(model: Any) -> list[torch.Tensor]:
    """Outputs and both products, at the fitted parameters and elsewhere."""
    editable = adapt(model, memory_limit=0)
    r = random(len(editable.theta), seed=1).float()
    found = []
    for at in (first := editable.linearize(X, keep=False), first.moved(0.1 * r)):
        u = random(*at.outputs.shape, seed=2).float()
        found += [at.outputs, at.jvp(r), at.vjp(u)]
    return found


def memory(model: Any) -> int:
    """Bytes that the graph of all rows holds besides the parameters."""
    editable: Any = adapt(model, memory_limit=0)
    leaves = [part.requires_grad_() for part in editable.split(editable.theta)]
    shared = [*leaves, *model.parameters()]
    return saved_bytes(lambda: editable.call(leaves, editable.prepare(X)), shared)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-6), (torch.bfloat16, 0.03)])
def test_layers_that_run_again_give_the_same_products(dtype: torch.dtype, near: float) -> None:
    plain, again = (products(decoder(dtype, recomputed=way)) for way in (False, True))
    for a, b in zip(plain, again, strict=True):
        assert float((a - b).abs().max()) <= near * float(a.abs().max())
    assert memory(decoder(dtype, recomputed=True)) < 0.3 * memory(decoder(dtype))


def test_a_frozen_part_in_half_precision_is_near_the_whole() -> None:
    whole, half = products(decoder()), products(decoder(torch.bfloat16))
    for a, b in zip(whole, half, strict=True):
        assert float((a - b).norm()) <= 0.05 * float(a.norm())


def test_such_a_model_is_edited_and_left_alone() -> None:
    model = decoder(torch.bfloat16, recomputed=True)
    before = {name: part.clone() for name, part in model.state_dict().items()}
    y, s = torch.arange(40) % 2, torch.arange(40) // 2 % 2
    fair = FairIJ(model, search=Grid(points=2), selection="lowest_gap", verbose=False)
    fair.fit(X, y, X_val=X, y_val=y, sensitive_features_val=s)
    gaps = fair.candidates_["gap"]
    assert gaps.iloc[fair.chosen_] <= gaps.iloc[0]
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())
    edited = dict(fair.estimator_.named_parameters())
    assert {p.dtype for p in edited.values() if p.requires_grad} == {torch.float32}
    assert model.config.use_cache


def test_the_longest_list_of_equal_layers_is_found() -> None:
    linear, pair = torch.nn.Linear(2, 2), torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.Tanh()])
    three = torch.nn.ModuleList([linear, torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    module = torch.nn.ModuleDict({"mixed": pair, "three": three})
    assert repeated_layers(module) == list(three)
    assert repeated_layers(torch.nn.Sequential(linear)) == []
