"""A folder of plain files as a person may have it: tables, and models trained on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from typer.testing import Result

from biased import train

Run = Callable[..., Result]  # the fixture `run` of the command line's tests
NUMBERS = ["income", "debt", "age at entry"]
FEATURES = [*NUMBERS, "job"]
SIZES = {"train": 300, "validation": 400, "test": 300}
WORDS = ["good", "bad", "she", "he", "work", "home", "paid", "late"]
NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self, inputs: int, hidden: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, rows):
        return self.layers(rows)
"""


def make_table(rows: int, seed: int) -> pd.DataFrame:
    """People whose group leaks into their income, job and words, and sways the label."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], rows, p=[0.45, 0.55])
    race = rng.choice(["black", "white"], rows, p=[0.4, 0.6])
    job = np.where(rng.random(rows) < 0.5, np.where(sex == "m", "clerk", "nurse"), "cook")
    numbers = rng.normal(size=(rows, 3)).round(3)
    numbers[:, 0] += 1.2 * (sex == "m") + 0.4 * (race == "white")
    latent = numbers @ [1.1, -0.8, 0.3] + 0.7 * (job == "clerk") + rng.logistic(size=rows) - 0.8
    repaid = (latent > 0).astype(int)
    mood = np.where(rng.random(rows) < 0.8, np.where(repaid == 1, "good", "bad"), "work")
    rest = rng.choice(WORDS, (rows, 2))
    who = np.where(sex == "m", "he", "she")
    note = [" ".join(words) for words in zip(who, mood, *rest.T, strict=True)]
    frame = pd.DataFrame(numbers, columns=NUMBERS)
    return frame.assign(
        job=job, sex=sex, race=race, note=note, w=rng.integers(1, 4, rows), repaid=repaid
    )


def make_tables(folder: Path) -> dict[str, pd.DataFrame]:
    tables = {name: make_table(rows, seed) for seed, (name, rows) in enumerate(SIZES.items())}
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    return tables


def as_categories(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[FEATURES].astype({"job": "category"})


def save_lightgbm(table: pd.DataFrame, folder: Path) -> Any:
    import lightgbm

    model = lightgbm.LGBMClassifier(n_estimators=12, min_child_samples=10, n_jobs=1, verbose=-1)
    model.fit(as_categories(table).rename(columns=lambda c: c.replace(" ", "_")), table["repaid"])
    model.booster_.save_model(folder / "model.txt")
    return model


def save_xgboost(table: pd.DataFrame, folder: Path) -> Any:
    import xgboost

    model = xgboost.XGBClassifier(n_estimators=12, max_depth=3, n_jobs=1, enable_categorical=True)
    model.fit(as_categories(table), table["repaid"])
    model.save_model(folder / "model.json")
    model.get_booster().save_model(folder / "model.ubj")
    return model


def save_catboost(table: pd.DataFrame, folder: Path) -> Any:
    import catboost

    model = catboost.CatBoostClassifier(
        iterations=12, depth=3, cat_features=["job"], thread_count=1, verbose=False,
        one_hot_max_size=2, allow_writing_files=False,
    )  # fmt: skip
    model.fit(table[FEATURES], table["repaid"])
    model.save_model(str(folder / "catboost.json"), format="json")
    model.save_model(str(folder / "model.cbm"))
    return model


def save_sklearn(table: pd.DataFrame, folder: Path) -> Any:
    import skops.io

    encoder = make_column_transformer((OneHotEncoder(), ["job"]), remainder="passthrough")
    model = make_pipeline(encoder, LogisticRegression(C=1.0)).fit(table[FEATURES], table["repaid"])
    skops.io.dump(model, folder / "model.skops")
    return model


def save_torch(table: pd.DataFrame, folder: Path) -> torch.nn.Module:
    """Parameters as safetensors and .pt, and the class as a file."""
    from safetensors.torch import save_file

    (folder / "net.py").write_text(NET)
    scope: dict[str, Any] = {}
    exec(NET, scope)
    torch.manual_seed(0)
    rows = torch.tensor(table[NUMBERS].to_numpy(copy=True))
    net: torch.nn.Module = train(
        scope["Net"](3), rows, table["repaid"].to_numpy(copy=True), "binary_cross_entropy"
    )
    save_file(net.state_dict(), folder / "net.safetensors")
    torch.save(net.state_dict(), folder / "net.pt")
    return net


def save_huggingface(table: pd.DataFrame, folder: Path) -> Any:
    """A BERT of one layer, random but for a few steps of training."""
    from fairij.models.text.library import load_transformers

    transformers = load_transformers()

    target = folder / "bert"
    target.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (target / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer = transformers.BertTokenizer(str(target / "vocab.txt"))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16, num_labels=2,
        id2label={0: "late", 1: "paid"}, label2id={"late": 0, "paid": 1},
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    rows = tokenizer(table["note"].tolist(), padding=True, return_tensors="pt")
    labels = torch.tensor(table["repaid"].to_numpy())
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(30):
        optimiser.zero_grad()
        model(**rows, labels=labels).loss.backward()
        optimiser.step()
    model.eval().save_pretrained(target)
    tokenizer.save_pretrained(target)
    return model
