"""Small random encoders and made-up token rows; made from configurations, nothing is fetched."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fairij.models.text.library import load_transformers

BERT = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}

GPT2 = {"vocab_size": 60, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40}


def seeded(make: Any, seed: int = 0) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make().eval()


def bert(**options: Any) -> Any:
    library = load_transformers()
    return seeded(lambda: library.BertModel(library.BertConfig(**{**BERT, **options})))


def classifier(**options: Any) -> Any:
    library = load_transformers()
    config = library.BertConfig(**{**BERT, **options})
    return seeded(lambda: library.BertForSequenceClassification(config))


def t5() -> Any:
    library = load_transformers()
    config = library.T5Config(
        vocab_size=60, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, dropout_rate=0.0
    )
    return seeded(lambda: library.T5EncoderModel(config))


def gpt2(**options: Any) -> Any:
    library = load_transformers()
    config = library.GPT2Config(**{**GPT2, **options})
    return seeded(lambda: library.GPT2Model(config))


def gpt2_classifier(**options: Any) -> Any:
    library = load_transformers()
    config = library.GPT2Config(**{**GPT2, **options})
    return seeded(lambda: library.GPT2ForSequenceClassification(config))


def roberta(**options: Any) -> Any:
    """Its padding is 1, and its positions begin behind that."""
    library = load_transformers()
    config = library.RobertaConfig(**{**BERT, **options})
    return seeded(lambda: library.RobertaModel(config))


def tokenizer(**options: Any) -> Any:
    """Words are "w4" to "w59"; [CLS] and [SEP] around a text, [UNK] is 1, padding is 0."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = {name: i for i, name in enumerate([*special, *(f"w{i}" for i in range(4, 60))])}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    given = {"unk_token": "[UNK]", "pad_token": "[PAD]", "eos_token": "[SEP]", **options}
    return load_transformers().PreTrainedTokenizerFast(tokenizer_object=made, **given)


def token_rows(n: int = 40, seed: int = 0) -> dict[str, torch.Tensor]:
    """Rows of 3 to 12 tokens, padded with 0 to 12."""
    draws = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 60, (n, 12), generator=draws)
    length = torch.randint(3, 13, (n,), generator=draws)
    mask = (torch.arange(12)[None] < length[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def biased_rows(n: int, seed: int) -> tuple[dict[str, torch.Tensor], np.ndarray, np.ndarray]:
    """Comments, labels and who mentions word 5, which are called toxic more often."""
    rng = np.random.default_rng(seed)
    s = rng.integers(0, 2, n)
    y = (rng.random(n) < np.where(s == 1, 0.65, 0.3)).astype(np.int64)
    ids = rng.integers(20, 60, (n, 10))
    ids[:, 0] = 1
    ids[y == 1, 3] = rng.integers(10, 20, int(y.sum()))
    ids[s == 1, 6] = 5
    tokens = torch.from_numpy(ids)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, y, s
