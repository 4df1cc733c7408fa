"""The model of the group behind chances: any table of rows, never its own row's group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from fairij.data.sources import ArraySource
from fairij.errors import InvalidInputError
from fairij.fairness.chances import Chances
from fairij.fairness.constraints import CONSTRAINTS, Constraint
from fairij.fairness.groups import encode_groups
from fairij.method import encoding, small_models
from fairij.method.encoding import NoChancesError, encoded
from fairij.method.fairness_rows import FairnessRows, GroupedRows
from fairij.method.group_model import chances_of
from fairij.models.losses import LOSSES

N = 300
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
S = (X[:, 0] + 0.5 * RNG.normal(size=N) > 0.3).astype(int)
Y = (X[:, 1] + RNG.normal(size=N) > 0).astype(int)
Z = torch.as_tensor(X[:, 1])


def grouped(table: Any = X, s: Any = S, y: Any = Y) -> GroupedRows:
    return GroupedRows(table, torch.as_tensor(y), encode_groups(np.asarray(s)))


def found(
    name: str = "demographic_parity",
    known: GroupedRows | None = None,
    closely: bool = False,
    **seen: Any,
) -> Chances:
    rows, loss = FairnessRows(grouped(**seen), known), LOSSES["binary_cross_entropy"]
    return chances_of(rows, Z, loss, CONSTRAINTS[name], 0, closely=closely)


# --- chances ----------------------------------------------------------------------------------


@pytest.mark.parametrize("closely", [False, True])
@pytest.mark.parametrize("name", ["demographic_parity", "equalized_odds", "accuracy_parity"])
def test_they_sum_to_one_and_tell_groups_apart(name: str, closely: bool) -> None:
    weights = found(name, closely=closely).weights
    assert weights.shape == (N, 2, 2)
    torch.testing.assert_close(weights.sum((1, 2)), torch.ones(N, dtype=torch.float64))
    if not closely:
        torch.testing.assert_close(weights.sum(1)[:, 1], torch.sigmoid(Z))
    assert float((weights.sum(2)[:, 1].numpy() > 0.5) @ S) > 0.7 * S.sum()


@pytest.mark.parametrize("closely", [False, True])
def test_a_row_is_judged_by_a_model_that_did_not_learn_from_it(closely: bool) -> None:
    wide = np.random.default_rng(1).normal(size=(N, 100))  # says nothing, and could be learnt
    chance = found(table=wide, closely=closely).weights.sum(2)[:, 1].numpy()
    assert abs(chance[S == 1].mean() - chance[S == 0].mean()) < 0.1
    known = found(table=wide, known=grouped(wide)).weights.sum(2)[:, 1].numpy()
    assert known[S == 1].mean() - known[S == 0].mean() > 0.3  # what it would be otherwise


def test_one_close_model_tells_groups_given_each_label() -> None:
    """Here a label says which sign of a column goes with the group."""
    y = np.random.default_rng(2).integers(0, 2, N)
    s = (np.where(y == 1, X[:, 0], -X[:, 0]) > 0).astype(int)
    few = np.array([1.0, 0.3, 0.0])  # columns that say less
    weights = found("equalized_odds", closely=True, table=X * few, s=s, y=y).weights
    given = (weights / weights.sum(1, keepdim=True))[:, 1].numpy()  # (N, C)
    for label, sign in ((0, -1), (1, 1)):
        certain = sign * X[:, 0] > 1
        assert given[certain, label].mean() > 0.7
        assert given[sign * X[:, 0] < -1, label].mean() < 0.3


def test_boosted_trees_see_the_columns_that_tell_the_group() -> None:
    wide = np.random.default_rng(3).normal(size=(N, 3 * small_models.COLUMNS))
    s = (np.abs(wide[:, 7]) > 0.7).astype(int)  # no straight line tells it
    seen = np.concatenate([wide, (wide[:, 7:8] ** 2)], 1)
    likely = small_models.close(seen[:200], s[:200], 2)(seen[200:])[:, 1]
    assert likely[s[200:] == 1].mean() > likely[s[200:] == 0].mean() + 0.4


def test_groups_of_training_rows_are_learned_from() -> None:
    train = grouped(X + 0.01)
    mixed = np.roll(S, 7)
    ours, same = (found(known=train, s=s).weights for s in (S, mixed))
    torch.testing.assert_close(ours, same)
    alone = found(s=mixed).weights
    assert float((alone - ours).abs().max()) > 0.2


def test_training_rows_that_lack_a_group_are_left_out() -> None:
    train = replace(grouped(), groups=encode_groups(S).take(np.zeros(N, dtype=int)))
    torch.testing.assert_close(found(known=train).weights, found().weights)


def test_a_group_of_few_rows_is_no_trouble() -> None:
    s = S.copy()
    s[:2] = 2
    for closely in (False, True):
        weights = found("equalized_odds", s=s, closely=closely).weights
        assert bool(torch.isfinite(weights).all())
        torch.testing.assert_close(weights.sum((1, 2)), torch.ones(N, dtype=torch.float64))


# --- rows -------------------------------------------------------------------------------------


def frame() -> pd.DataFrame:
    missing = X[:, 0].copy()
    missing[:5] = [np.nan, np.inf, -np.inf, 1e300, np.nan]
    return pd.DataFrame(
        {
            "number": missing,
            "nothing": np.nan,
            "same": 1.0,
            "yes": X[:, 1] > 0,
            "whole": pd.array([None, *range(N - 1)], dtype="Int64"),
            "category": pd.Categorical(np.where(X[:, 2] > 0, "a", "b")),
            "word": np.array([None, np.nan, 3, *("word" for _ in range(N - 3))], dtype=object),
            "number as object": X[:, 2].astype(object),
            "many": [f"w{i}" for i in range(N)],
            "day": pd.date_range("2020-01-01", periods=N),
        }
    )


TABLES = {
    "array": X,
    "float32": X.astype(np.float32),
    "tensor": torch.as_tensor(X),
    "lists": X.tolist(),
    "objects": X.astype(object),
    "frame": frame(),
    "sparse": sp.csr_matrix(np.where(X > 0, X, 0)),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_any_table_of_columns_becomes_numbers(table: Any) -> None:
    design = encoded([table])
    values = design.toarray() if sp.issparse(design) else design
    assert values.shape[0] == N
    assert np.isfinite(values).all()
    assert np.abs(values).max() < 50
    for closely in (False, True):
        weights = found("equalized_odds", table=table, closely=closely).weights
        assert bool(torch.isfinite(weights).all())


def test_tables_are_encoded_alike() -> None:
    table = frame()
    together = encoded([table, table[::-1]])
    np.testing.assert_allclose(together[:N], together[N:][::-1])


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (["a text"] * N, "got list"),
        ({"a": X}, "got dict"),
        (X[:, :, None], "got ndarray"),
        (ArraySource(X), "streamed"),
    ],
)
def test_other_rows_are_refused(table: Any, told: str) -> None:
    with pytest.raises(NoChancesError, match=told) as met:
        found(table=table)
    assert met.value.parameter == "search"


def test_other_constraints_are_refused() -> None:
    own = Constraint.custom(lambda z, y, groups: z.mean())
    rows, loss = FairnessRows(grouped()), LOSSES["binary_cross_entropy"]
    with pytest.raises(InvalidInputError, match="'<lambda>' is none"):
        chances_of(rows, Z, loss, own, 0)
    with pytest.raises(NoChancesError, match="'mean_error' is none"):
        chances_of(rows, Z, LOSSES["squared_error"], CONSTRAINTS["mean_error"], 0)


def test_rows_of_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "processes", lambda: 2)
    with pytest.raises(NoChancesError, match="shared by several"):
        found()
