"""Vectors of a frozen encoder: right, in order, kept on disk, and safe to standardise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("transformers")

from tiny import bert, classifier, gpt2, roberta, seeded, t5, token_rows, tokenizer

from damage import damaged
from fairij.data.hashing import tensors_fingerprint
from fairij.errors import CheckpointError, FairIJWarning, InvalidInputError
from fairij.language import features, load_encoder, standardised, tokenise
from fairij.language.features import fingerprint
from fairij.language.texts import padded
from fairij.models.text.library import load_transformers
from fairij.models.text.tokens import token_rows as as_tokens


@pytest.mark.parametrize("pooling", ["mean", "pooler"])
def test_vectors_are_those_of_each_row_alone(pooling: str) -> None:
    encoder, X = bert(), token_rows(15)
    found = features(X, encoder, pooling=pooling, batch_tokens=30)
    for row in range(15):
        n = int(X["attention_mask"][row].sum())
        with torch.no_grad():
            out = encoder(input_ids=X["input_ids"][row : row + 1, :n])
        alone = out.last_hidden_state[0].mean(0) if pooling == "mean" else out.pooler_output[0]
        assert np.allclose(found[row], alone.numpy(), atol=1e-5)


def test_vectors_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, X = bert(), token_rows(15)
    first = features(X, encoder, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr(encoder, "forward", lambda **_: pytest.fail("ran again"))
    assert np.array_equal(features(X, encoder, cache=tmp_path), first)


def test_a_stopped_computation_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(features.__globals__, "BLOCK_ROWS", 4)
    encoder, X = bert(), token_rows(15)
    whole = features(X, encoder)

    def stop(phase: str, done: int, rows: int) -> None:
        if done > 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        features(X, encoder, cache=tmp_path, progress=stop)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 2
    seen: list[int] = []
    hook = encoder.register_forward_pre_hook(
        lambda module, args, given: seen.append(len(given["input_ids"])), with_kwargs=True
    )
    assert np.array_equal(features(X, encoder, cache=tmp_path), whole)
    hook.remove()
    assert sum(seen) == 15 - 8


def test_damaged_vectors_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, X = bert(num_hidden_layers=1), token_rows(15)
    right = features(X, encoder, cache=tmp_path)
    (path,) = tmp_path.rglob("*.safetensors")
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(60):
        path.write_bytes(damaged(whole, rng))
        with pytest.warns(FairIJWarning, match="its 15 vectors are computed again"):
            assert np.array_equal(features(X, encoder, cache=tmp_path), right)
    monkeypatch.setattr(encoder, "forward", lambda **_: pytest.fail("ran again"))
    assert np.array_equal(features(X, encoder, cache=tmp_path), right)  # it was mended


def test_vectors_of_other_rows_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(features.__globals__, "BLOCK_ROWS", 5)
    encoder, X = bert(), token_rows(15)
    right = features(X, encoder, cache=tmp_path)
    first, second, _ = sorted(tmp_path.rglob("*.safetensors"))
    second.write_bytes(first.read_bytes())
    with pytest.warns(FairIJWarning, match="belongs to other rows or to another encoder"):
        assert np.array_equal(features(X, encoder, cache=tmp_path), right)


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(CheckpointError, match="must be writable: Not a directory"):
        features(token_rows(4), bert(), cache=tmp_path / "file")


def test_a_change_of_rows_weights_or_pooling_changes_the_fingerprint() -> None:
    encoder, rows = bert(), as_tokens(token_rows(15), device=torch.device("cpu"))
    one = fingerprint(rows, encoder, "mean")
    assert fingerprint(rows, bert(), "mean") == one
    assert fingerprint(rows, encoder, "pooler") != one
    assert fingerprint({**rows, "input_ids": rows["input_ids"] + 1}, encoder, "mean") != one
    with torch.no_grad():
        encoder.encoder.layer[1].output.dense.bias += 1e-3
    assert fingerprint(rows, encoder, "mean") != one


def test_t5_has_no_pooler() -> None:
    with pytest.raises(InvalidInputError, match="has no pooler"):
        features(token_rows(4), t5(), pooling="pooler")


def alone(encoder: Any, **tokens: Any) -> np.ndarray:
    """The mean vector of one row that is run by itself."""
    given = {name: torch.tensor([row]) for name, row in tokens.items()}
    with torch.no_grad():
        return encoder(**given).last_hidden_state[0].mean(0).numpy()


def test_an_encoder_in_training_is_run_without_dropout_and_goes_on_training() -> None:
    encoder, X = bert(), token_rows(15)
    expected = features(X, encoder)
    encoder.train()
    encoder.pooler.eval()
    modes = [part.training for part in encoder.modules()]
    assert np.array_equal(features(X, encoder), expected)
    assert [part.training for part in encoder.modules()] == modes


def test_an_unknown_pooling_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"must be one of \['mean', 'pooler'\], got 'cls'"):
        features(token_rows(4), bert(), pooling="cls")  # type: ignore[arg-type]


def test_token_types_are_passed_on() -> None:
    encoder, pair = bert(), tokenizer()("w5 w6", "w7", return_token_type_ids=True)
    assert 1 in pair["token_type_ids"]
    found = features({name: [row] for name, row in pair.items()}, encoder)
    assert np.allclose(found[0], alone(encoder, **pair), atol=1e-6)
    assert not np.allclose(found[0], alone(encoder, input_ids=pair["input_ids"]), atol=1e-3)


def test_token_types_that_an_encoder_does_not_know_are_refused() -> None:
    rows = {"input_ids": [[2, 5, 3]], "token_type_ids": [[0, 1, 1]]}
    for encoder in (t5(), roberta(type_vocab_size=1)):
        with pytest.raises(InvalidInputError, match=r"must be below 1, .* got 1"):
            features(rows, encoder)
        plain = features({"input_ids": rows["input_ids"]}, encoder)
        assert np.array_equal(features({**rows, "token_type_ids": [[0, 0, 0]]}, encoder), plain)


def test_only_token_types_that_matter_change_the_fingerprint() -> None:
    encoder, rows = bert(), as_tokens(token_rows(15), device=torch.device("cpu"))
    about = f"mean {encoder.config.to_json_string()}"

    def plain(rows: Any) -> str:
        return tensors_fingerprint([*rows.items(), *encoder.state_dict().items()], about=about)[:32]

    assert fingerprint(rows, encoder, "mean") == plain(rows)
    zeros = {**rows, "token_type_ids": torch.zeros_like(rows["input_ids"])}
    assert fingerprint(zeros, encoder, "mean") == plain(zeros)
    ones = {**rows, "token_type_ids": torch.ones_like(rows["input_ids"])}
    assert fingerprint(ones, encoder, "mean") != plain(ones)


@pytest.mark.parametrize("kind", [gpt2, roberta])
def test_every_token_of_rows_of_unlike_lengths_is_real(kind: Any) -> None:
    encoder = kind()
    rows = [[1, 5, 6], [5, 0, 1, 1, 0], [7, 1]]  # 0 and 1 are paddings elsewhere
    found = features(pd.DataFrame({"input_ids": rows}), encoder)
    for vector, row in zip(found, rows, strict=True):
        given = {"input_ids": row, "attention_mask": [1] * len(row)}
        assert np.allclose(vector, alone(encoder, **given), atol=1e-5)


def test_what_tokenise_gives_is_real_also_where_rows_are_of_one_length() -> None:
    encoder = roberta()
    rows = tokenise(["w5 unknown w6"], tokenizer())
    assert rows["input_ids"].tolist() == [[2, 5, 1, 6, 3]]
    given = {"input_ids": rows["input_ids"][0], "attention_mask": [1] * 5}
    assert np.allclose(features(rows, encoder)[0], alone(encoder, **given), atol=1e-5)


def test_a_table_without_mask_is_padded_by_the_models_id_if_it_has_one() -> None:
    table = {"input_ids": torch.tensor([[5, 0, 1]])}
    masks = {pad: padded(table, torch.device("cpu"), pad=pad) for pad in (None, 0, 1)}
    found = {pad: tokens["attention_mask"].tolist() for pad, tokens in masks.items()}
    assert found == {None: [[1, 1, 1]], 0: [[1, 0, 1]], 1: [[1, 1, 0]]}


def test_of_a_classifier_the_body_is_taken_and_of_two_halves_the_encoder() -> None:
    library, X = load_transformers(), token_rows(6)
    model = classifier()
    assert np.array_equal(features(X, model), features(X, model.bert))
    config = library.T5Config(
        vocab_size=60, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, num_labels=2
    )
    model = seeded(lambda: library.T5ForSequenceClassification(config))
    found = features(X, model)
    for row in range(6):
        n = int(X["attention_mask"][row].sum())
        ids = X["input_ids"][row, :n].tolist()
        assert np.allclose(found[row], alone(model.transformer.encoder, input_ids=ids), atol=1e-5)
    with pytest.raises(InvalidInputError, match="must be a model of transformers, got Linear"):
        features(X, torch.nn.Linear(2, 2))


@pytest.mark.parametrize("kind", ["T5", "MT5", "Bart"])
def test_the_encoder_of_two_halves_is_loaded(kind: str, tmp_path: Path) -> None:
    library = load_transformers()
    sizes = {"d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    if kind == "Bart":
        sizes = {f"{half}_{n}": 2 for half in ("encoder", "decoder") for n in ("layers",)}
        sizes |= {f"{half}_attention_heads": 2 for half in ("encoder", "decoder")}
    config = getattr(library, f"{kind}Config")(vocab_size=60, d_model=16, **sizes)
    whole = seeded(lambda: getattr(library, f"{kind}Model")(config))
    whole.save_pretrained(tmp_path)
    encoder, X = load_encoder(tmp_path), token_rows(5)
    assert not hasattr(encoder, "decoder")
    assert np.array_equal(features(X, encoder), features(X, whole))


def test_rows_that_cannot_be_encoded_are_refused() -> None:
    encoder = bert()
    for rows, complaint in [
        ({"input_ids": [[5, 6], []]}, "at least one token in every row, but row 1 has none"),
        ({"input_ids": [[]]}, "at least one token in every row, but row 0 has none"),
        ({"input_ids": []}, "at least one row"),
        ({"input_ids": [[5], [5] * 41]}, r"at most 40 tokens .* row 1 has 41: .*max_length=40"),
    ]:
        with pytest.raises(InvalidInputError, match=complaint):
            features(rows, encoder)
    assert features({"input_ids": [[5] * 50]}, t5()).shape == (1, 16)  # it knows no positions
    with pytest.raises(InvalidInputError, match="`batch_tokens` must be a whole number"):
        features(token_rows(4), encoder, batch_tokens=-5)


def test_a_constant_dimension_survives_standardising() -> None:
    rng = np.random.default_rng(0)
    train, test = rng.normal(3, 2, (50, 3)), rng.normal(3, 2, (20, 3))
    train[:, 1], test[:, 1] = 7.0, 7.5
    a, b = standardised(train.astype(np.float32), test.astype(np.float32))
    assert np.allclose(a[:, [0, 2]].std(0), 1, atol=1e-4)
    assert not a[:, 1].any()
    assert not b[:, 1].any()
