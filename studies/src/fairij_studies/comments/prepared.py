"""The data of the study in one folder: tokenised comments and a frozen encoder.

The folder can be made on one machine and copied to another one that has no network. Comments are
stored as token numbers (14 MB), the encoder in half precision (45 MB).
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from fairij.datasets.comments import IDENTITY_TERMS, fetch_wikipedia_comments
from fairij.language import load_encoder, load_tokenizer
from fairij.models.text.library import load_transformers
from fairij.storage.checksummed import write_whole
from fairij_studies.comments.minilm import fetch_minilm

PathLike = str | os.PathLike[str]
MAX_LENGTH = 128
PARTS = ("train", "val", "test")
COMMENTS, ENCODER = "comments.npz", "encoder"
MENTIONED = ("muslim", "female", "lgbt")


@dataclass(frozen=True)
class Part:
    """The comments of one split."""

    tokens: pd.DataFrame  # input_ids, one array per row
    y: NDArray[np.float32]
    mentions: pd.DataFrame  # one column of booleans per identity
    rows: NDArray[np.int64]  # their numbers in the whole table

    def take(self, index: NDArray[np.int64]) -> Part:
        return Part(
            self.tokens.iloc[index], self.y[index], self.mentions.iloc[index], self.rows[index]
        )


def prepare(
    folder: PathLike,
    *,
    data_home: PathLike | None = None,
    path: PathLike | None = None,
    encoder: PathLike | None = None,
    others: tuple[int, ...] = (),
) -> Path:
    """Fetch, tokenise and write everything that the study needs into a folder.

    ``others``: of each split, only so many comments that mention none of `MENTIONED`.
    """
    folder = Path(folder)
    source = fetch_minilm(data_home=data_home, path=encoder)
    comments = fetch_wikipedia_comments(
        sensitive=list(IDENTITY_TERMS), data_home=data_home, path=path
    )
    tokenizer = load_tokenizer(source)
    ids = tokenizer(list(comments.data), truncation=True, max_length=MAX_LENGTH)["input_ids"]
    parts = [ids, comments.target, np.asarray(comments.split), comments.sensitive_features]
    if others:
        some = sampled(parts[2], comments.sensitive_features, others)
        parts = [[ids[row] for row in some], *(np.asarray(p)[some] for p in parts[1:3])]
        parts.append(comments.sensitive_features.iloc[some])
    write_comments(folder, *parts)
    tokenizer.save_pretrained(folder / ENCODER)
    half = load_encoder(source).half()
    half.save_pretrained(folder / ENCODER)
    return folder


def sampled(split: Any, mentions: pd.DataFrame, others: tuple[int, ...]) -> NDArray[np.int64]:
    """Return all comments that mention an identity, and so many others of each split."""
    rng, named = np.random.default_rng(0), mentions[list(MENTIONED)].any(axis=1).to_numpy(bool)
    chosen = [np.flatnonzero(named)]
    for part, number in zip(PARTS, others, strict=True):
        chosen.append(rng.permutation(np.flatnonzero((split == part) & ~named))[:number])
    return np.sort(np.concatenate(chosen))


def make_up(folder: PathLike, *, rows: int = 1000, seed: int = 0) -> Path:
    """Make up comments and a small random BERT for the quick form. Neither is real.

    Words are numbers. Some are rude, and one marks an identity. Comments that mention it are
    labelled toxic more often than their words explain.
    """
    folder = Path(folder)
    rng = np.random.default_rng(seed)
    mention = rng.random(rows) < 0.3
    toxic = rng.random(rows) < np.where(mention, 0.5, 0.25)
    ids = []
    for is_toxic, is_mention in zip(toxic, mention, strict=True):
        words = rng.integers(20, 60, rng.integers(4, 12))
        rude = rng.integers(10, 20, 2 if is_toxic else int(rng.random() < 0.15))
        body = rng.permutation([*words, *rude, *([5] if is_mention else [])])
        ids.append([1, *body.tolist(), 2])
    split = rng.choice(np.array(PARTS), rows, p=[0.5, 0.25, 0.25])
    mentions = pd.DataFrame(dict.fromkeys(("muslim", "female", "lgbt"), mention))
    write_comments(folder, ids, toxic.astype(int), split, mentions)
    library = load_transformers()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = library.BertConfig(
            vocab_size=64,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=64,
        )
        library.BertModel(config).save_pretrained(folder / ENCODER)
    made_up_tokenizer(library).save_pretrained(folder / ENCODER)
    return folder


def made_up_tokenizer(library: Any) -> Any:
    """Return a tokenizer that knows the words of the made-up comments, and no others."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3, **{f"w{i}": i for i in range(4, 64)}}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    marks = [("[CLS]", 1), ("[SEP]", 2)]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=marks
    )
    return library.PreTrainedTokenizerFast(
        tokenizer_object=made,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


def write_comments(folder: Path, ids: Any, y: Any, split: Any, mentions: pd.DataFrame) -> None:
    content = io.BytesIO()
    np.savez_compressed(
        content,
        ids=np.concatenate([np.asarray(row, dtype=np.uint16) for row in ids]),
        lengths=np.array([len(row) for row in ids], dtype=np.uint8),
        y=np.asarray(y, dtype=np.int8),
        split=np.array([PARTS.index(part) for part in split], dtype=np.int8),
        mentions=mentions.to_numpy(bool),
        names=np.array(list(mentions.columns), dtype="U20"),
    )
    write_whole(folder / COMMENTS, content.getvalue())


@cache
def comments(folder: str) -> dict[str, Part]:
    """Return the comments of each split."""
    with np.load(Path(folder) / COMMENTS) as stored:
        lengths = stored["lengths"].astype(np.int64)
        rows = np.split(stored["ids"].astype(np.int64), np.cumsum(lengths)[:-1])
        names = [str(name) for name in stored["names"]]
        mentions = pd.DataFrame(stored["mentions"], columns=names)
        y, split = stored["y"].astype(np.float32), stored["split"]
    tokens = pd.DataFrame({"input_ids": rows})
    whole = Part(tokens, y, mentions, np.arange(len(y)))
    return {name: whole.take(np.flatnonzero(split == i)) for i, name in enumerate(PARTS)}


def mentions_unit(*, folder: str) -> list[dict[str, Any]]:
    """Count the comments that mention each identity, and the toxic ones, per split."""
    return [
        {
            "method": "mentions",
            "part": name,
            "identity": identity,
            "mentioned": int(mentioned.sum()),
            "toxic": int(part.y[mentioned].sum()),
        }
        for name, part in comments(folder).items()
        for identity, mentioned in part.mentions.items()
    ]


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


@cache
def encoder(folder: str, name: str, where: str, precision: str) -> Any:
    """Return a frozen encoder of the folder on a device. "bfloat16" is for GPUs."""
    return load_encoder(Path(folder) / name, device=where, dtype=getattr(torch, precision))
