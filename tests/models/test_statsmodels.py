"""Results of statsmodels: its own predictions, minima, refits, files, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from fairlearn.metrics import demographic_parity_difference

from biased import problem
from fairij import FairIJ, Grid
from fairij.errors import FairIJWarning, InvalidInputError
from fairij.models import adapt
from fairij.models.losses import LOSSES

sm = pytest.importorskip("statsmodels.api")
smf = pytest.importorskip("statsmodels.formula.api")

DATA = problem(n=400, n_val=600)
X, X_VAL = sm.add_constant(DATA.X), sm.add_constant(DATA.X_val)
COUNTS = np.random.default_rng(0).poisson(np.exp(0.3 * DATA.X[:, 0])) + 1.0
WEIGHTS = np.random.default_rng(1).integers(1, 4, len(X)).astype(float)
FAMILIES = sm.families
NAMES = list("abcd")[: DATA.X.shape[1]]
TABLE = pd.DataFrame(DATA.X, columns=NAMES).assign(y=DATA.y, n=COUNTS)
TABLE_VAL = pd.DataFrame(DATA.X_val, columns=NAMES)


def glm(family: Any, y: Any, **settings: Any) -> Any:
    return sm.GLM(y, X, family=family, **settings).fit(tol=1e-12)


MODELS: dict[str, Any] = {
    "ols": lambda: (sm.OLS(COUNTS, X).fit(), COUNTS),
    "wls": lambda: (sm.WLS(COUNTS, X, weights=WEIGHTS).fit(), COUNTS),
    "logit": lambda: (sm.Logit(DATA.y, X).fit(disp=0, tol=1e-12), DATA.y),
    "poisson": lambda: (sm.Poisson(COUNTS, X).fit(disp=0, tol=1e-12), COUNTS),
    "binomial": lambda: (glm(FAMILIES.Binomial(), DATA.y, freq_weights=WEIGHTS), DATA.y),
    "gaussian": lambda: (glm(FAMILIES.Gaussian(), COUNTS), COUNTS),
    "counts": lambda: (glm(FAMILIES.Poisson(), COUNTS, var_weights=WEIGHTS), COUNTS),
    "gamma": lambda: (glm(FAMILIES.Gamma(FAMILIES.links.Log()), COUNTS), COUNTS),
    "tweedie": lambda: (glm(FAMILIES.Tweedie(var_power=1.5), COUNTS), COUNTS),
}


def fit(results: Any, rows: Any = X, rows_val: Any = X_VAL, **settings: Any) -> FairIJ:
    fair = FairIJ(results, search=Grid(points=4), selection="lowest_gap", verbose=False, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairIJWarning)
        return fair.fit(
            rows, DATA.y, X_val=rows_val, y_val=DATA.y_val, sensitive_features_val=DATA.sex_val
        )


@pytest.mark.parametrize("name", MODELS)
def test_predictions_are_its_own_and_the_gradient_vanishes(name: str) -> None:
    results, y = MODELS[name]()
    editable = adapt(results)
    loss, seen = LOSSES[editable.loss_name], editable.linearize(X)
    predicted = loss.predict(seen.outputs) if y is COUNTS else torch.sigmoid(seen.outputs)
    assert np.allclose(predicted, results.predict(X), rtol=1e-12)
    weight = editable.row_weights(torch.as_tensor(y), None)
    slope = loss.slope(seen.outputs, torch.as_tensor(y, dtype=torch.float64))
    gradient = seen.vjp(slope if weight is None else slope * weight)
    assert float(gradient.norm()) < 1e-6 * len(X)


def test_influence_is_that_of_a_real_refit() -> None:
    results, _ = MODELS["logit"]()
    fair = fit(results, solver="exact", damping=1e-8)
    dropped = int(np.abs(fair.influence_).argmax())
    kept = np.arange(len(X)) != dropped
    again = sm.Logit(DATA.y[kept], X[kept]).fit(disp=0, tol=1e-12)

    def gap(model: Any) -> float:
        p = model.predict(X_VAL)
        return abs(p[DATA.sex_val == "m"].mean() - p[DATA.sex_val == "f"].mean())

    fell = gap(results) - gap(again)
    assert fair.influence_[dropped] == pytest.approx(fell, rel=0.1)


def test_an_edit_is_saved_by_the_library_and_undone(tmp_path: Path) -> None:
    results, _ = MODELS["binomial"]()
    fair = fit(results)
    edited = fair.estimator_
    p = edited.predict(X_VAL)
    assert type(edited) is type(results)
    assert np.array_equal((p > 0.5).astype(int), fair.predict(X_VAL))
    before, after = (
        demographic_parity_difference(DATA.y_val, q > 0.5, sensitive_features=DATA.sex_val)
        for q in (results.predict(X_VAL), p)
    )
    assert after < 0.5 * before
    assert fair.after_["demographic_parity_difference"] == pytest.approx(after)
    assert not np.allclose(edited.fittedvalues, results.fittedvalues)
    undone = fair.edit_.undo(edited)
    assert np.array_equal(undone.params, results.params)
    assert np.array_equal(undone.predict(X_VAL), results.predict(X_VAL))
    edited.save(str(tmp_path / "fair.pickle"))
    np.save(tmp_path / "rows.npy", X_VAL)
    code = (
        "import sys; sys.modules['fairij'] = None; import numpy as np, statsmodels.api as sm;"
        "print(sm.load('fair.pickle').predict(np.load('rows.npy')).tobytes().hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == p.tobytes().hex()


def test_formulas_make_their_own_columns() -> None:
    results = smf.logit("y ~ a + b * c", TABLE).fit(disp=0)
    fair = fit(results, TABLE[NAMES], TABLE_VAL)
    p = fair.estimator_.predict(TABLE_VAL)
    assert np.array_equal((p > 0.5).astype(int), fair.predict(TABLE_VAL))
    assert fair.candidates_["gap"][fair.chosen_] < fair.candidates_["gap"][0]
    with pytest.raises(InvalidInputError, match="columns of the model's formula"):
        fit(results, TABLE[["a", "c", "d"]], TABLE_VAL[["a", "c", "d"]])
    with pytest.raises(InvalidInputError, match="must be finite, without NaN"):
        fit(results, TABLE[NAMES].assign(b=TABLE["b"].where(TABLE.index > 2)), TABLE_VAL)


BAD: dict[str, tuple[Any, str]] = {
    "probit": (lambda: sm.Probit(DATA.y, X).fit(disp=0), "it holds a Probit"),
    "a link": (
        lambda: glm(FAMILIES.Binomial(FAMILIES.links.Probit()), DATA.y),
        "its family is Binomial with the link Probit",
    ),
    "a power": (lambda: glm(FAMILIES.Tweedie(var_power=1.2), COUNTS), "Tweedie with the link Log"),
    "a penalty": (
        lambda: sm.Logit(DATA.y, X).fit_regularized(disp=0, alpha=0.1),
        "fitted without a penalty",
    ),
    "an offset": (
        lambda: glm(FAMILIES.Poisson(), COUNTS, offset=DATA.X[:, 0]),
        "fitted without `offset`",
    ),
    "an exposure": (
        lambda: glm(FAMILIES.Poisson(), COUNTS, exposure=COUNTS),
        "fitted without `exposure`",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_has_no_such_edit_is_refused(name: str) -> None:
    make, said = BAD[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = make()
    with pytest.raises(InvalidInputError, match=said):
        adapt(results)


def test_rows_and_settings_that_do_not_fit_are_refused() -> None:
    results, _ = MODELS["logit"]()
    with pytest.raises(InvalidInputError, match="the constant among them"):
        fit(results, DATA.X, DATA.X_val)
    with pytest.raises(InvalidInputError, match="params are edited together"):
        adapt(results, parameters=["x1"])
    weighted, _ = MODELS["binomial"]()
    with pytest.raises(InvalidInputError, match="fitted with weights, and knows them for 400 rows"):
        adapt(weighted).row_weights(torch.zeros(7), None)
    results.params[0] = np.nan
    with pytest.raises(InvalidInputError, match="`params` must be finite"):
        adapt(results)
