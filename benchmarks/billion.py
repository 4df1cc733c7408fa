"""A decoder of a billion parameters with LoRA: influence and edit of 20,000 texts on one GPU.

`python -m benchmarks.billion` on a machine with CUDA; writes `benchmarks/results/billion.json`, or
the file named by `--out`. The architecture is that of Llama 3.2 1B; its weights and texts are
random, so the record says what it costs and nothing else. `--size small` runs anywhere.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairij import FairIJ, Grid, Woodbury
from fairij.models.text.library import load_transformers

SIZES = {
    "billion": {
        "vocab_size": 128_256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "small": {
        "vocab_size": 1000,
        "hidden_size": 64,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
}
CHECKED = 1024  # rows on which the error of the solver is measured
TOKENS, GROUP, TOXIC = 64, 5, range(10, 20)  # of a text; the word of a group, and rude words


def decoder(size: str, device: str) -> Any:
    """Return the classifier: frozen part in bfloat16, LoRA and head in float32."""
    import peft

    library = load_transformers()
    config = library.LlamaConfig(
        **SIZES[size], max_position_embeddings=2048, pad_token_id=0, num_labels=2
    )
    torch.manual_seed(0)
    with torch.device(device):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            model = library.LlamaForSequenceClassification(config)
        finally:
            torch.set_default_dtype(before)
    lora = peft.LoraConfig(task_type="SEQ_CLS", r=8, target_modules=["q_proj", "v_proj"])
    model = peft.get_peft_model(model, lora)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.to(device)


def texts(rows: int, seed: int, words: int, device: str) -> tuple[Any, Any, Any]:
    """Return tokens, labels and groups: the group's word is labelled more often."""
    rng = np.random.default_rng(seed)
    s = rng.random(rows) < 0.3
    y = rng.random(rows) < np.where(s, 0.5, 0.25)
    ids = rng.integers(20, words, (rows, TOKENS))
    ids[y, 3] = rng.choice(TOXIC, int(y.sum()))
    ids[s, 6] = GROUP
    tokens = torch.from_numpy(ids).to(device)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, y.astype(int), s


def epoch(model: Any, X: Any, y: Any, batch: int) -> float:
    """Train for one epoch, and return the seconds."""
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
    truth = torch.as_tensor(y, device=X["input_ids"].device)
    model.train()
    start = now()
    for first in range(0, len(y), batch):
        some = slice(first, first + batch)
        with torch.autocast(truth.device.type, torch.bfloat16):
            z = model(**{name: part[some] for name, part in X.items()}).logits
        loss = torch.nn.functional.cross_entropy(z.float(), truth[some])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    seconds = now() - start
    model.eval()
    return seconds


def now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def forward_seconds(model: Any, X: Any, batch: int) -> float:
    start, device = now(), X["input_ids"].device.type
    with torch.no_grad(), torch.autocast(device, torch.bfloat16):
        for first in range(0, len(X["input_ids"]), batch):
            model(**{name: part[first : first + batch] for name, part in X.items()})
    return now() - start


def measure(size: str, rows: int, validation: int, jacobians: int, out: Path) -> dict[str, Any]:
    """Train for an epoch, then score all texts and edit; seconds, texts a second, peak memory.

    What is known before the edit is written first, so that a run that is stopped tells it.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    start = now()
    model, words = decoder(size, device), SIZES[size]["vocab_size"]
    X, y, _ = texts(rows, 0, words, device)
    X_val, y_val, s_val = texts(validation, 1, words, device)
    making = now() - start
    some = {name: part[:1024] for name, part in X.items()}
    forward_seconds(model, some, 128)  # kernels are chosen in a first pass
    forward = forward_seconds(model, some, 128)
    training = epoch(model, X, y, 64)
    found = {
        "size": size,
        "weights": "random",
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "torch": torch.__version__,
        "parameters": sum(p.numel() for p in model.parameters()),
        "rows": rows,
        "validation_rows": validation,
        "tokens": TOKENS,
        "rows_of_the_curvature": jacobians,
        "rows_that_check_the_solver": min(CHECKED, rows),
        "seconds_to_make": making,
        "forward_texts_a_second": len(some["input_ids"]) / forward,
        "epoch_seconds": training,
        "epoch_peak_bytes": peak(),
    }
    write(found, out)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    start = now()
    fair = FairIJ(
        model,
        solver=Woodbury(rows=jacobians, checked_rows=CHECKED),
        search=Grid(points=4, scales=(1.0, 5.0), max_k=1000),
        selection="lowest_gap",
        memory_limit=2**32 if device == "cuda" else 2**26,
        verbose=False,
    ).fit(X, y, X_val=X_val, y_val=y_val, sensitive_features_val=s_val)
    seconds = now() - start
    phases = fair.diagnostics_["seconds"]
    gaps = fair.candidates_["gap"]
    found |= {
        "edited": int(fair.diagnostics_["n_parameters"]),
        "jvp_mode": fair.diagnostics_["jvp_mode"],
        "fit_seconds": seconds,
        "fit_in_epochs": seconds / training,
        "fit_texts_a_second": rows / seconds,
        "phases": {name: round(spent, 3) for name, spent in phases.items()},
        "fit_peak_bytes": peak(),
        "gap_before": float(gaps.iloc[0]),
        "gap_after": float(gaps.iloc[fair.chosen_]),
    }
    write(found, out)
    return found


def write(record: dict[str, Any], out: Path) -> None:
    out.write_text(json.dumps(record, indent=2) + "\n")


def peak() -> int | None:
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=list(SIZES), default="billion")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--validation", type=int, default=4000)
    parser.add_argument("--jacobians", type=int, default=256)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/billion.json"))
    asked = parser.parse_args()
    record = measure(asked.size, asked.rows, asked.validation, asked.jacobians, asked.out)
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
