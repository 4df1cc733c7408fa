"""Training of heads, triggers and classifiers; stopped and gone on; from every kind of table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("transformers")

from tiny import bert, biased_rows, classifier, roberta, token_rows, tokenizer

from damage import damaged
from fairij.baselines.penalties import GapReg
from fairij.errors import CheckpointError, InvalidInputError
from fairij.language import (
    TextClassifier,
    TrainingRecipe,
    TriggerTokens,
    linear_head,
    nonlinear_head,
    train,
)
from fairij.language.batches import InHalves, on_device, run_all, shuffled
from fairij.models.text.tokens import lengths


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
    recipe = TrainingRecipe(optimiser=optimiser, learning_rate=0.3, epochs=8, batch_size=32)
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
    whole = train(fresh, recipe=TrainingRecipe(epochs=4, batch_size=16), **data)
    half = tmp_path / "half.pt"
    train(fresh, recipe=TrainingRecipe(epochs=2, batch_size=16), checkpoint=half, **data)
    rest = train(fresh, recipe=TrainingRecipe(epochs=4, batch_size=16), checkpoint=half, **data)
    assert rest.history == whole.history
    for a, b in zip(rest.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(CheckpointError, match=r"same training; it differs in batch_size\."):
        train(fresh, recipe=TrainingRecipe(epochs=4, batch_size=8), checkpoint=half, **data)


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_a_damaged_checkpoint_is_refused(optimiser: Any, tmp_path: Path) -> None:
    (X, y, _), (X_val, y_val, _) = vectors(40, 0), vectors(30, 1)
    path, fresh = tmp_path / "half", nonlinear_head(6, hidden=(8, 4))

    def go_on(epochs: int) -> list[Any]:
        recipe = TrainingRecipe(optimiser=optimiser, epochs=epochs, batch_size=20)
        given = {"X": X, "y": y, "X_val": X_val, "y_val": y_val, "penalty": GapReg()}
        groups = {"groups": np.arange(40) % 2, "groups_val": np.arange(30) % 2}
        done = train(fresh, recipe=recipe, checkpoint=path, **given, **groups)
        return [*done.model.parameters()]

    go_on(2)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(60):
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
        "recipe": TrainingRecipe(epochs=1),
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
    recipe = TrainingRecipe(learning_rate=2e-2, epochs=6, batch_size=32)
    done = train(TriggerTokens(encoder, 3), X, y, X_val=X_val, y_val=y_val, recipe=recipe)
    assert done.history[-1]["train"] < 0.98 * done.history[0]["train"]
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())


def test_a_penalty_narrows_the_gap_that_it_stands_for() -> None:
    (X, y, s), (X_val, y_val, s_val) = vectors(600, 0), vectors(400, 1)
    data = {"X": X, "y": y, "X_val": X_val, "y_val": y_val}
    groups = {"groups": s, "groups_val": s_val}
    recipe = TrainingRecipe(learning_rate=5e-2, epochs=10, batch_size=64)

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
    found = InHalves(model, X)(torch.arange(21))
    hook.remove()
    torch.testing.assert_close(found, model(**X)[:, 0])
    assert widths == sorted(widths)
    assert widths[0] < widths[1] == 12


def test_every_row_is_in_one_batch_and_batches_are_of_like_length() -> None:
    rows = token_rows(200)
    size = lengths(rows).cpu()
    seen, widths = [], []
    for batch, index in shuffled(rows, 20, torch.Generator().manual_seed(0), size):
        assert torch.equal(
            batch["input_ids"], rows["input_ids"][index][:, : batch["input_ids"].shape[1]]
        )
        seen += index.tolist()
        widths.append(int(size[index].max() - size[index].min()))
    assert sorted(seen) == list(range(200))
    assert max(widths) <= 3  # of 3 to 12


def test_a_model_without_trainable_parameters_is_refused() -> None:
    X, y, _ = vectors(20, 0)
    with pytest.raises(InvalidInputError, match="must have parameters that require a gradient"):
        train(linear_head(6).requires_grad_(False), X, y, X_val=X, y_val=y)


def with_running_means() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        )


def test_running_means_are_kept_with_the_best_epoch_and_in_the_checkpoint(tmp_path: Path) -> None:
    (X, y, _), (X_val, y_val, _) = vectors(200, 0), vectors(150, 1)
    data = {"X": X, "y": y, "X_val": X_val, "y_val": y_val}

    def recipe(epochs: int) -> TrainingRecipe:
        return TrainingRecipe(epochs=epochs, batch_size=32, learning_rate=0.1, patience=20)

    whole = train(with_running_means(), recipe=recipe(8), **data)
    losses = [epoch["validation"] for epoch in whole.history]
    assert whole.best_epoch < 8
    z = run_all(whole.model, torch.from_numpy(X_val))
    loss = torch.nn.functional.binary_cross_entropy_with_logits(z, torch.from_numpy(y_val))
    assert float(loss) == pytest.approx(min(losses), abs=1e-6)
    half = tmp_path / "half"
    train(with_running_means(), recipe=recipe(3), checkpoint=half, **data)
    rest = train(with_running_means(), recipe=recipe(8), checkpoint=half, **data)
    assert rest.history == whole.history
    expected = whole.model.state_dict()
    for name, value in rest.model.state_dict().items():
        assert torch.equal(value, expected[name])


def changed(values: np.ndarray, value: Any) -> np.ndarray:
    """A copy whose first value is another."""
    copied = values.copy()
    copied.flat[0] = value
    return copied


X, Y, S = vectors(40, 0)
GROUPS = {"penalty": GapReg(), "groups": S, "groups_val": S}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"y": Y[:-1]}, "`y` must have one row per data point: expected 40, got 39"),
        ({"y": np.append(Y, 1)}, "`y` must have .* expected 40, got 41"),
        ({"y_val": np.append(Y, 1)}, "`y_val` must have .* expected 40, got 41"),
        ({"y": Y + 1}, r"`y` must be 0 or 1 .* say which values are 1, as in `y == 2.0`"),
        ({"y": np.where(Y, "a", "b")}, "`y` must be 0 or 1 in every row: row 0 holds '[ab]'"),
        ({"y": changed(Y, np.nan)}, "`y` must not hold missing"),
        ({"y_val": changed(Y, 0.3)}, "`y_val` must be 0 or 1 .* >= 0.5`"),
        ({"X": changed(X, np.nan)}, "`X` must be finite.*: row 0, column 0 holds nan"),
        ({"X_val": changed(X, np.inf)}, "`X_val` must be finite"),
        ({"X": X[:0], "y": Y[:0]}, "`X` must have at least one row"),
        ({"X": X[:, :5]}, r"`X` must be rows that the model takes, .* Give vectors as wide"),
        ({"X_val": X[:, :5]}, "`X_val` must be rows that the model takes"),
        ({"X": ["a text"] * 40}, "`X` must be tokenised for this model, got texts"),
        ({**GROUPS, "groups": None}, "`groups` must be given with a `penalty`, got None"),
        ({**GROUPS, "groups_val": None}, "`groups_val` must be given with a `penalty`"),
        ({**GROUPS, "groups": np.where(S, "a", "b")}, "`groups` must be 0 or 1 .* '[ab]'`"),
        ({**GROUPS, "groups_val": S[1:]}, "`groups_val` must have .* expected 40, got 39"),
        ({**GROUPS, "penalty": GapReg}, r"which is a class: write GapReg\(\.\.\.\)"),
        (
            {"X": 1e20 * X, "recipe": TrainingRecipe(learning_rate=1e30, optimiser="sgd")},
            "lower the reci",
        ),
    ],
)
def test_rows_labels_and_groups_that_do_not_fit_are_refused(given: Any, complaint: str) -> None:
    data = {"X": X, "y": Y, "X_val": X, "y_val": Y}
    with pytest.raises(InvalidInputError, match=complaint):
        train(linear_head(6), **{**data, **given})


def test_labels_of_several_outputs_are_their_numbers() -> None:
    model, recipe = torch.nn.Linear(6, 3), TrainingRecipe(epochs=1)
    assert train(model, X, Y, X_val=X, y_val=Y, recipe=recipe).best_epoch == 1
    for y, found in ((Y + 2, r"3\.0"), (np.where(Y, "a", "b"), "'[ab]'")):
        with pytest.raises(InvalidInputError, match=f"0 to 2 for a model with 3 .* holds {found};"):
            train(model, X, y, X_val=X, y_val=Y, recipe=recipe)


def test_vectors_of_any_precision_and_frames_are_taken() -> None:
    recipe = TrainingRecipe(epochs=2)
    whole = np.round(4 * X)
    expected = train(linear_head(6), whole, Y, X_val=whole, y_val=Y, recipe=recipe).history
    for same in (whole.astype(np.float64), whole.astype(np.int64), pd.DataFrame(whole)):
        given = {"X": same, "y": Y.astype(bool), "X_val": same, "y_val": Y}
        assert train(linear_head(6), **given, recipe=recipe).history == expected


def test_a_text_classifier_is_trained_on_texts() -> None:
    rows, y, _ = biased_rows(40, 0)
    texts = [" ".join(f"w{i}" for i in row if i > 3) for row in rows["input_ids"].tolist()]
    model, recipe = TextClassifier(classifier(), tokenizer()), TrainingRecipe(epochs=1)
    by_texts = train(model, texts, y, X_val=texts, y_val=y, recipe=recipe)
    tokens = model.tokenise(texts)
    by_tokens = train(model, tokens, y, X_val=tokens, y_val=y, recipe=recipe)
    assert isinstance(by_texts.model, TextClassifier)
    assert by_texts.history == by_tokens.history
    with pytest.raises(InvalidInputError, match="`X_val` must be texts, but row 1 holds None"):
        train(model, texts, y, X_val=["w5", None], y_val=[0, 1], recipe=recipe)


def test_rows_longer_than_the_models_positions_are_refused() -> None:
    rows, y = {"input_ids": [[5] * 3, [6] * 38]}, [0, 1]
    model = TriggerTokens(bert(), 3)
    with pytest.raises(InvalidInputError, match="`X` must have at most 37 tokens per row"):
        train(model, rows, y, X_val=rows, y_val=y)


def test_a_penalty_masks_what_training_masks() -> None:
    rows = on_device({"input_ids": [[2, 1, 5, 3], [2, 6, 3]]}, torch.device("cpu"), pad=1)
    assert isinstance(rows, dict)
    assert rows["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    model, index = TriggerTokens(roberta(), 2), torch.tensor([1, 0, 0])
    with torch.no_grad():
        found = InHalves(model, rows)(index)
        torch.testing.assert_close(found, run_all(model, rows)[index])
