"""Results of statsmodels on the command line: columns by name, by place, and by a formula."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from plain_files import NUMBERS, Run

sm = pytest.importorskip("statsmodels.api")
smf = pytest.importorskip("statsmodels.formula.api")

FORMULA = "repaid ~ income * debt + Q('age at entry') + C(job)"
RUN = ("mitigate", "--train", "train.csv", "--validation", "validation.csv", "--trust-pickle")
ASKED = ("--label", "repaid", "--sensitive", "sex", "--sensitive", "race", "--slack", "0", "--json")


def by_names(table: pd.DataFrame) -> Any:
    family = sm.families.Binomial()
    return sm.GLM(table["repaid"], sm.add_constant(table[NUMBERS]), family=family).fit()


def by_places(table: pd.DataFrame) -> Any:
    return sm.Logit(table["repaid"].to_numpy(), sm.add_constant(table[NUMBERS].to_numpy())).fit()


def by_formula(table: pd.DataFrame) -> Any:
    return smf.logit(FORMULA, table).fit()


def designed(results: Any, table: pd.DataFrame) -> Any:
    """Rows as the library's own `predict` takes them."""
    return table if hasattr(results.model, "formula") else sm.add_constant(table[NUMBERS])


@pytest.mark.parametrize("make", [by_names, by_places, by_formula])
def test_only_the_model_s_columns_are_read(make: Any, run: Run, files: Path) -> None:
    train, validation = (pd.read_csv(f"{name}.csv") for name in ("train", "validation"))
    before = make(train)
    before.save("results.pickle")
    features = [f"--features={name}" for name in NUMBERS] if make is by_places else []
    done = run(*RUN, "--model", "results.pickle", *ASKED, *features, "--out", "out")
    after = sm.load("out/model.pickle")
    assert type(after) is type(before)
    p = np.asarray(after.predict(designed(after, validation)))
    rows = validation.groupby(["sex", "race"]).indices.values()
    rates = [(p[part] > 0.5).mean() for part in rows]
    told = json.loads(done.stdout)["validation"]["after"]["metrics"]
    gap = told["demographic_parity_difference"]["value"]
    assert gap == pytest.approx(max(rates) - min(rates))
    assert not np.array_equal(after.params, before.params)
    run("undo", "--model", "out/model.pickle", "--edit", "out/edit.safetensors", "--trust-pickle",
        "--out", "back.pickle")  # fmt: skip
    assert np.array_equal(sm.load("back.pickle").params, before.params)


def test_a_column_that_a_formula_needs_is_named(run: Run, files: Path) -> None:
    by_formula(pd.read_csv("train.csv")).save("results.pickle")
    pd.read_csv("train.csv").drop(columns="job").to_csv("train.csv", index=False)
    said = run(*RUN, "--model", "results.pickle", *ASKED, "--out", "out", code=2).stderr
    assert "for the model's features" in said
    assert "'job'" in said
