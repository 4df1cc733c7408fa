"""Vectors of a frozen encoder: right, in order, kept on disk, and safe to standardise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from tiny import bert, t5, token_rows

from fairij.errors import CheckpointError, FairIJWarning, InvalidInputError
from fairij.language import features, standardised
from fairij.language.features import fingerprint
from fairij.models._tokens import token_rows as as_tokens
from test_sealed import damaged


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


def test_damaged_vectors_are_computed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, X = bert(num_hidden_layers=1), token_rows(15)
    right = features(X, encoder, cache=tmp_path)
    (path,) = tmp_path.rglob("*.safetensors")
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(200):
        path.write_bytes(damaged(whole, rng))
        with pytest.warns(FairIJWarning, match="its 15 vectors are computed anew"):
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
    with pytest.warns(FairIJWarning, match="of other rows or of another encoder"):
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


def test_a_constant_dimension_survives_standardising() -> None:
    rng = np.random.default_rng(0)
    train, test = rng.normal(3, 2, (50, 3)), rng.normal(3, 2, (20, 3))
    train[:, 1], test[:, 1] = 7.0, 7.5
    a, b = standardised(train.astype(np.float32), test.astype(np.float32))
    assert np.allclose(a[:, [0, 2]].std(0), 1, atol=1e-4)
    assert not a[:, 1].any()
    assert not b[:, 1].any()
