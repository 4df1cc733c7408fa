"""Training of heads, triggers and classifiers; stopped and gone on; from every kind of table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("transformers")

from tiny import bert, biased_rows, classifier, token_rows

from fairij.baselines.gapreg import GapReg
from fairij.errors import CheckpointError, InvalidInputError
from fairij.language import (
    Recipe,
    TriggerTokens,
    labelled,
    linear_head,
    nonlinear_head,
    tokenise,
    train,
)
from fairij.language.batches import InHalves, run_all, shuffled, sizes
from test_sealed import damaged


def vectors(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    s = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    X[:, 1] += 2 * s
    y = (X[:, 0] + 0.7 * X[:, 1] + 0.3 * rng.normal(size=n) > 0.7).astype(np.float32)
    return X, y, s


def test_the_non_linear_head_is_the_papers() -> None:
    shapes = [tuple(p.shape) for p in nonlinear_head(384).parameters()]
    assert shapes == [(768, 384), (768,), (128, 768), (128,), (1, 128), (1,)]


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_a_head_is_trained_to_the_epoch_of_best_validation_loss(optimiser: Any) -> None:
    (X, y, _), (X_val, y_val, _) = vectors(300, 0), vectors(200, 1)
    fresh = linear_head(6)
    before = [p.clone() for p in fresh.parameters()]
    recipe = Recipe(optimiser=optimiser, learning_rate=0.3, epochs=8, batch_size=32)
    seen: list[tuple[int, int]] = []
    done = train(
        fresh,
        X,
        y,
        X_val=X_val,
        y_val=y_val,
        recipe=recipe,
        progress=lambda _, k, n: seen.append((k, n)),
    )
    losses = [epoch["validation"] for epoch in done.history]
    assert losses.index(min(losses)) + 1 == done.best_epoch < len(losses)
    z = run_all(done.model, torch.from_numpy(X_val))
    loss = torch.nn.functional.binary_cross_entropy_with_logits(z, torch.from_numpy(y_val))
    assert float(loss) == pytest.approx(min(losses), abs=1e-6)
    assert float(((z > 0).numpy() == y_val).mean()) > 0.9
    assert all(torch.equal(a, b) for a, b in zip(before, fresh.parameters(), strict=True))
    assert seen[-1] == (len(losses), 8)


@pytest.mark.parametrize("kind", ["head", "classifier"])
def test_a_stopped_training_goes_on_to_the_same_bits(kind: str, tmp_path: Path) -> None:
    if kind == "head":
        (X, y, _), (X_val, y_val, _) = vectors(100, 0), vectors(80, 1)
        fresh: Any = nonlinear_head(6, hidden=(8, 4))
    else:  # with dropout and batches of like length
        (X, y, _), (X_val, y_val, _) = biased_rows(60, 0), biased_rows(40, 1)
        fresh = classifier()
    data = {"X": X, "y": y, "X_val": X_val, "y_val": y_val}
    whole = train(fresh, recipe=Recipe(epochs=4, batch_size=16), **data)
    half = tmp_path / "half.pt"
    train(fresh, recipe=Recipe(epochs=2, batch_size=16), checkpoint=half, **data)
    rest = train(fresh, recipe=Recipe(epochs=4, batch_size=16), checkpoint=half, **data)
    assert rest.history == whole.history
    for a, b in zip(rest.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(CheckpointError, match=r"same training; it differs in batch_size\."):
        train(fresh, recipe=Recipe(epochs=4, batch_size=8), checkpoint=half, **data)


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_a_damaged_checkpoint_is_refused(optimiser: Any, tmp_path: Path) -> None:
    (X, y, _), (X_val, y_val, _) = vectors(40, 0), vectors(30, 1)
    path, fresh = tmp_path / "half", nonlinear_head(6, hidden=(8, 4))

    def go_on(epochs: int) -> list[Any]:
        recipe = Recipe(optimiser=optimiser, epochs=epochs, batch_size=20)
        given = {"X": X, "y": y, "X_val": X_val, "y_val": y_val, "penalty": GapReg()}
        groups = {"groups": np.arange(40) % 2, "groups_val": np.arange(30) % 2}
        done = train(fresh, recipe=recipe, checkpoint=path, **given, **groups)
        return [*done.model.parameters()]

    go_on(2)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(200):
        path.write_bytes(damaged(whole, rng))
        with pytest.raises(CheckpointError, match=r"must be a whole file .* Remove it to start"):
            go_on(3)
    path.write_bytes(whole)
    rest = go_on(3)
    path.unlink()
    assert all(torch.equal(a, b) for a, b in zip(rest, go_on(3), strict=True))


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    (X, y, s), (X_val, y_val, s_val) = vectors(40, 0), vectors(30, 1)
    other = nonlinear_head(6, hidden=(8, 4), seed=1)
    given: dict[str, Any] = {
        "model": nonlinear_head(6, hidden=(8, 4)),
        "X": X,
        "y": y,
        "X_val": X_val,
        "y_val": y_val,
        "penalty": GapReg(),
        "groups": s,
        "groups_val": s_val,
        "recipe": Recipe(epochs=1),
        "checkpoint": tmp_path / "half",
    }
    train(**given)
    frozen = nonlinear_head(6, hidden=(8, 4))
    next(frozen.parameters()).requires_grad_(False)
    for changed, name in [
        ({"model": other}, "model"),
        ({"model": frozen}, "trained parameters"),
        ({"X": X + 1}, "rows"),
        ({"y": 1 - y}, "labels"),
        ({"X_val": X_val[:-1], "y_val": y_val[:-1], "groups_val": s_val[:-1]}, "validation rows"),
        ({"y_val": 1 - y_val}, "validation labels"),
        ({"groups": 1 - s}, "groups"),
        ({"penalty": GapReg(strength=0.3)}, "penalty"),
        ({"seed": 5}, "seed"),
    ]:
        with pytest.raises(CheckpointError, match=f"it differs in .*{name}"):
            train(**{**given, **changed})
    torch.save({"of": "an earlier version"}, tmp_path / "half")
    with pytest.raises(CheckpointError, match="must be a whole file"):
        train(**given)


def test_triggers_learn_and_leave_the_encoder_alone() -> None:
    (X, y, _), (X_val, y_val, _) = biased_rows(300, 0), biased_rows(100, 1)
    encoder = bert()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    recipe = Recipe(learning_rate=2e-2, epochs=6, batch_size=32)
    done = train(TriggerTokens(encoder, 3), X, y, X_val=X_val, y_val=y_val, recipe=recipe)
    assert done.history[-1]["train"] < 0.98 * done.history[0]["train"]
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())


def test_a_penalty_narrows_the_gap_that_it_stands_for() -> None:
    (X, y, s), (X_val, y_val, s_val) = vectors(600, 0), vectors(400, 1)
    data = {"X": X, "y": y, "X_val": X_val, "y_val": y_val}
    groups = {"groups": s, "groups_val": s_val}
    recipe = Recipe(learning_rate=5e-2, epochs=10, batch_size=64)

    def gap(model: Any) -> float:
        said = (run_all(model, torch.from_numpy(X_val)) > 0).numpy()
        return abs(said[s_val == 1].mean() - said[s_val == 0].mean())

    plain = train(linear_head(6), recipe=recipe, **data)
    fair = train(linear_head(6), recipe=recipe, penalty=GapReg(strength=2.0), **data, **groups)
    assert gap(fair.model) < 0.5 * gap(plain.model)


def test_the_shorter_half_is_run_apart_and_cut() -> None:
    model, X = TriggerTokens(bert(), 3), token_rows(21)
    widths: list[int] = []
    hook = model.register_forward_pre_hook(
        lambda module, args, given: widths.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    found = InHalves(model, 0)(X["input_ids"])
    hook.remove()
    torch.testing.assert_close(found, model(**X)[:, 0])
    assert widths == sorted(widths)
    assert widths[0] < widths[1] == 12


def test_every_row_is_in_one_batch_and_batches_are_of_like_length() -> None:
    rows = token_rows(200)
    size = sizes(rows)
    assert size is not None
    seen, widths = [], []
    for batch, index in shuffled(rows, 20, torch.Generator().manual_seed(0), size):
        assert torch.equal(
            batch["input_ids"], rows["input_ids"][index][:, : batch["input_ids"].shape[1]]
        )
        seen += index.tolist()
        widths.append(int(size[index].max() - size[index].min()))
    assert sorted(seen) == list(range(200))
    assert max(widths) <= 3  # of 3 to 12


def test_tables_of_every_kind_are_read(tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": ["a b", "c"], "label": [0, 1], "other": [1, 2]})
    datasets = pytest.importorskip("datasets")
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_json(tmp_path / "t.jsonl", lines=True, orient="records")
    frame.to_parquet(tmp_path / "t.parquet")
    sources: list[Any] = [frame, datasets.Dataset.from_pandas(frame)]
    sources += [tmp_path / name for name in ("t.csv", "t.jsonl", "t.parquet")]
    for source in sources:
        texts, labels = labelled(source)
        assert texts == ["a b", "c"]
        assert labels.tolist() == [0, 1]
    with pytest.raises(InvalidInputError, match=r"must have the columns \['toxic'\]"):
        labelled(frame, label="toxic")
    with pytest.raises(InvalidInputError, match="must end in one of"):
        labelled("t.xml")


def test_tokenising_takes_a_column_or_a_dataset() -> None:
    class Letters:
        def __call__(self, texts: list[str], **_: Any) -> dict[str, list[list[int]]]:
            return {"input_ids": [[ord(letter) for letter in text] for text in texts]}

    datasets = pytest.importorskip("datasets")
    for source in (
        ["ab", "c"],
        pd.Series(["ab", "c"]),
        datasets.Dataset.from_dict({"text": ["ab", "c"]}),
    ):
        assert tokenise(source, Letters())["input_ids"].tolist() == [[97, 98], [99]]


def test_a_model_without_trainable_parameters_is_refused() -> None:
    X, y, _ = vectors(20, 0)
    with pytest.raises(InvalidInputError, match="must have parameters that require a gradient"):
        train(linear_head(6).requires_grad_(False), X, y, X_val=X, y_val=y)
