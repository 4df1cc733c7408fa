"""One line per model family: Adult before and after an edit, measured as a user would.

``python -m benchmarks.families`` runs every case, ``python -m benchmarks.families CatBoost EBM``
some of them. A case is one function that fits a model of its library. The edit is for demographic
parity between women and men, with groups known for validation rows only. Figures are of UCI's test
rows: labels and scores by the library's own `predict` and `predict_proba`, the gap by fairlearn.
The edited model is then saved, loaded in a process that has no fairij, and asked for the same
scores (``round_trip``); and the edit is taken off again (``undone``: all parameters and scores are
equal to the last bit). Regressions predict hours of work per week; their
gap is of mean predictions.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Any

import joblib
import numpy as np
import pandas as pd
from fairij_studies.provenance import code_hash
from fairlearn.metrics import demographic_parity_difference
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from threadpoolctl import threadpool_limits

from fairij import FairIJ, __version__
from fairij.datasets import adult_splits, fetch_adult, three_way_split
from fairij.models import adapt

RESULTS = Path(__file__).parent / "results" / "families.json"
SEED = 0


@dataclass(frozen=True)
class Part:
    """Rows as frames with words in them, or as numbers."""

    X: Any
    y: Any
    s: Any


@dataclass(frozen=True)
class Case:
    """How to fit a model of one family."""

    fit: Callable[[Any, Any], Any]
    library: str
    raw: bool  # whether it takes words as they are
    labels: Callable[[Any, Any], Any] = lambda model, X: model.predict(X)
    scores: Callable[[Any, Any], Any] = lambda model, X: model.predict_proba(X)[:, 1]
    # how the library writes its own file; else joblib does
    saved: Callable[[Any, Path], Any] | None = None
    asks: str = "scores = loaded.predict_proba(X)[:, 1]"  # of what was read from the file
    reads: str = "import joblib; loaded = joblib.load(file)"
    rows: Callable[[Any], Any] = lambda X: X  # as the model takes them in a fit
    of_numbers: Callable[[], list[Part]] | None = None  # the rows of a regression
    settings: dict[str, Any] = field(default_factory=dict)  # what the model cannot say itself


CASES: dict[str, Case] = {}


def case(name: str, library: str, **options: Any) -> Callable[[Any], Any]:
    """Add a case by the function that fits its model."""

    def added(fit: Callable[[Any, Any], Any]) -> Any:
        CASES[name] = Case(fit, library, **({"raw": False} | options))
        return fit

    return added


@case(
    "LightGBM",
    "lightgbm",
    saved=lambda model, file: model.booster_.save_model(file),
    reads="import lightgbm; loaded = lightgbm.Booster(model_file=file)",
    asks="scores = loaded.predict(X)",
)
def lightgbm(X: Any, y: Any) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=200, learning_rate=0.05, n_jobs=1, verbosity=-1).fit(X, y)


@case(
    "CatBoost",
    "catboost",
    raw=True,
    saved=lambda model, file: model.save_model(file),
    reads="import catboost; loaded = catboost.CatBoostClassifier().load_model(file)",
)
def catboost(X: Any, y: Any) -> Any:
    from catboost import CatBoostClassifier

    words = [name for name in X.columns if not pd.api.types.is_numeric_dtype(X[name])]
    model = CatBoostClassifier(
        iterations=300, random_seed=0, thread_count=1, verbose=False, allow_writing_files=False
    )
    return model.fit(X, y, cat_features=words)


@case("random forest", "scikit-learn")
def random_forest(X: Any, y: Any) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(min_samples_leaf=5, random_state=0).fit(X, y)


@case("extra trees", "scikit-learn")
def extra_trees(X: Any, y: Any) -> Any:
    from sklearn.ensemble import ExtraTreesClassifier

    return ExtraTreesClassifier(50, min_samples_leaf=5, random_state=0).fit(X, y)


@case("bagged trees", "scikit-learn")
def bagged_trees(X: Any, y: Any) -> Any:
    from sklearn.ensemble import BaggingClassifier
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(min_samples_leaf=5)
    return BaggingClassifier(tree, 50, random_state=0).fit(X, y)


@case("decision tree", "scikit-learn")
def decision_tree(X: Any, y: Any) -> Any:
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(min_samples_leaf=20, random_state=0).fit(X, y)


@case(
    "LightGBM, forest",
    "lightgbm",
    saved=lambda model, file: model.booster_.save_model(file),
    reads="import lightgbm; loaded = lightgbm.Booster(model_file=file)",
    asks="scores = loaded.predict(X)",
)
def lightgbm_forest(X: Any, y: Any) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(
        boosting_type="rf",
        bagging_freq=1,
        bagging_fraction=0.6,
        feature_fraction=0.5,
        num_leaves=127,
        n_jobs=1,
        verbosity=-1,
    ).fit(X, y)


XGBOOST: dict[str, Any] = {
    "saved": lambda model, file: model.save_model(f"{file}.json"),
    "reads": "import xgboost; loaded = xgboost.XGBClassifier(); loaded.load_model(file + '.json')",
}


@case("XGBoost", "xgboost-cpu", **XGBOOST)
def xgboost(X: Any, y: Any) -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=200, learning_rate=0.1, max_depth=5, n_jobs=1).fit(X, y)


@case("XGBoost, forest", "xgboost-cpu", **XGBOOST)
def xgboost_forest(X: Any, y: Any) -> Any:
    from xgboost import XGBRFClassifier

    return XGBRFClassifier(max_depth=10, n_jobs=1).fit(X, y)


@case("histogram boosting", "scikit-learn")
def histogram_boosting(X: Any, y: Any) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(early_stopping=False, random_state=0).fit(X, y)


@case("gradient boosting", "scikit-learn")
def gradient_boosting(X: Any, y: Any) -> Any:
    from sklearn.ensemble import GradientBoostingClassifier

    return GradientBoostingClassifier(random_state=0).fit(X, y)


@case("logistic regression", "scikit-learn")
def logistic_regression(X: Any, y: Any) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000).fit(X, y)


@case("perceptron", "scikit-learn")
def perceptron(X: Any, y: Any) -> Any:
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier((50,), alpha=1e-3, max_iter=20, random_state=0).fit(X, y)


def _constant(X: Any) -> Any:
    """The rows as statsmodels takes them, without columns that depend on others."""
    some = np.asarray(X, np.float64)[:, :6]
    return np.column_stack([np.ones(len(some)), some])


_OF_STATSMODELS: dict[str, Any] = {
    "library": "statsmodels",
    "labels": lambda results, X: (results.predict(_constant(X)) > 0.5).astype(int),
    "scores": lambda results, X: results.predict(_constant(X)),
    "asks": "import numpy as np; rows = np.asarray(X, np.float64)[:, :6]; "
    "scores = loaded.predict(np.column_stack([np.ones(len(rows)), rows]))",
    "rows": _constant,
}


@case("logit of statsmodels (six columns)", **_OF_STATSMODELS)
def statsmodels_logit(X: Any, y: Any) -> Any:
    import statsmodels.api as sm

    return sm.Logit(np.asarray(y), _constant(X)).fit(disp=0)


@case("binomial GLM of statsmodels (six columns)", **_OF_STATSMODELS)
def statsmodels_glm(X: Any, y: Any) -> Any:
    import statsmodels.api as sm

    return sm.GLM(np.asarray(y), _constant(X), family=sm.families.Binomial()).fit()


@case("EBM", "interpret-core", raw=True)
def ebm(X: Any, y: Any) -> Any:
    from interpret.glassbox import ExplainableBoostingClassifier

    return ExplainableBoostingClassifier(outer_bags=2, n_jobs=1, random_state=0).fit(X, y)


def _floats(X: Any) -> Any:
    return np.asarray(X, np.float32)


@case(
    "skorch",
    "skorch",
    labels=lambda net, X: net.predict(_floats(X)),
    scores=lambda net, X: net.predict_proba(_floats(X))[:, 1],
    asks="import numpy as np; scores = loaded.predict_proba(np.asarray(X, np.float32))[:, 1]",
)
def skorch(X: Any, y: Any) -> Any:
    import torch
    from skorch import NeuralNetBinaryClassifier

    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(X.shape[1], 50), torch.nn.SELU(), torch.nn.Linear(50, 1)
    )
    net = NeuralNetBinaryClassifier(
        module,
        optimizer=torch.optim.Adam,
        lr=1e-3,
        max_epochs=15,
        verbose=0,
        train_split=None,
    )
    return net.fit(_floats(X), np.asarray(y, np.float32))


def _chances_of(module: Any, X: Any) -> Any:
    import torch

    with torch.no_grad():
        return torch.sigmoid(module(torch.from_numpy(_floats(X))).ravel()).numpy()


TORCH: dict[str, Any] = {
    "labels": lambda module, X: (_chances_of(module, X) > 0.5).astype(int),
    "scores": _chances_of,
    "asks": "with torch.no_grad(): "
    "scores = torch.sigmoid(loaded(torch.from_numpy(X.astype('float32'))).ravel()).numpy()",
    "rows": _floats,
    "settings": {"outputs": "logits"},
}


@case(
    "torch",
    "torch",
    saved=lambda module, file: _torch_save(module, file),
    reads="import torch; loaded = torch.load(file, weights_only=False)",
    **TORCH,
)
def torch_network(X: Any, y: Any) -> Any:
    import torch

    torch.manual_seed(0)
    rows, truth = torch.from_numpy(_floats(X)), torch.from_numpy(_floats(y))
    net = torch.nn.Sequential(
        torch.nn.Linear(rows.shape[1], 50), torch.nn.SELU(), torch.nn.Linear(50, 1)
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(10):
        for part in torch.randperm(len(rows)).split(128):
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                net(rows[part]).ravel(), truth[part]
            )
            loss.backward()
            optimizer.step()
    return net


def _torch_save(model: Any, file: Path) -> None:
    import torch

    torch.save(model, file)


LIGHTNING = """
import lightning, torch
class Net(lightning.LightningModule):
    def __init__(self, inputs):
        super().__init__()
        self.save_hyperparameters()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(inputs, 50), torch.nn.SELU(), torch.nn.Linear(50, 1)
        )
    def forward(self, X):
        return self.layers(X)
    def training_step(self, batch, _):
        return torch.nn.functional.binary_cross_entropy_with_logits(
            self(batch[0]).ravel(), batch[1]
        )
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)
"""


@case(
    "Lightning",
    "lightning",
    saved=lambda module, file: _checkpoint(module, file),
    reads=LIGHTNING + "loaded = Net.load_from_checkpoint(file, weights_only=False).eval()",
    **TORCH,
)
def lightning_module(X: Any, y: Any) -> Any:
    import lightning
    import torch

    scope: dict[str, Any] = {"__name__": "net"}
    exec(LIGHTNING, scope)
    lightning.seed_everything(0, verbose=False)
    rows = torch.utils.data.TensorDataset(
        torch.from_numpy(_floats(X)), torch.from_numpy(_floats(y))
    )
    net = scope["Net"](X.shape[1])
    lightning.Trainer(
        max_epochs=5,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(net, torch.utils.data.DataLoader(rows, batch_size=128, shuffle=True))
    return net


def _checkpoint(module: Any, file: Path) -> None:
    """As Lightning writes the parameters and settings of a module."""
    import lightning
    import torch

    held = {"state_dict": module.state_dict(), "hyper_parameters": dict(module.hparams)}
    torch.save(held | {"pytorch-lightning_version": lightning.__version__}, file)


@case("SGDClassifier", "scikit-learn")
def stochastic_gradient(X: Any, y: Any) -> Any:
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(loss="log_loss", alpha=1e-3, random_state=0).fit(X, y)


@case("linear discriminant analysis", "scikit-learn")
def discriminant(X: Any, y: Any) -> Any:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    return LinearDiscriminantAnalysis().fit(X, y)


@case("soft voting", "scikit-learn")
def voting(X: Any, y: Any) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, VotingClassifier
    from sklearn.linear_model import LogisticRegression

    parts = [
        ("linear", LogisticRegression(max_iter=1000)),
        ("trees", HistGradientBoostingClassifier(early_stopping=False, random_state=0)),
    ]
    return VotingClassifier(parts, voting="soft").fit(X, y)


@case("stacking", "scikit-learn")
def stacking(X: Any, y: Any) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, StackingClassifier
    from sklearn.linear_model import LogisticRegression

    parts = [
        ("linear", LogisticRegression(max_iter=1000)),
        ("trees", HistGradientBoostingClassifier(early_stopping=False, random_state=0)),
    ]
    return StackingClassifier(parts, LogisticRegression(), cv=3, passthrough=True).fit(X, y)


def _split(X: Any, y: Any, s: Any, parts: Any) -> list[Part]:
    """Parts of the rows, with features standardised as they are in the first."""
    X = np.asarray(pd.get_dummies(X, dtype=float), np.float64)
    mean, deviation = X[parts[0]].mean(0), X[parts[0]].std(0)
    X = (X - mean) / np.where(deviation > 0, deviation, 1.0)
    return [Part(X[rows], np.asarray(y, np.float64)[rows], np.asarray(s)[rows]) for rows in parts]


def hours_parts() -> list[Part]:
    """Adult, the hours of work per week, women and men."""
    parts = raw_parts()
    X = pd.concat([part.X for part in parts], ignore_index=True)
    s = np.concatenate([part.s for part in parts])
    places = np.split(np.arange(len(X)), np.cumsum([len(part.X) for part in parts])[:-1])
    return _split(X.drop(columns="hours-per-week"), X["hours-per-week"], s, places)


NUMBERS: dict[str, Any] = {
    "labels": lambda model, X: model.predict(X),
    "scores": lambda model, X: model.predict(X),
    "asks": "scores = loaded.predict(X)",
}


@case("Ridge", "scikit-learn", of_numbers=hours_parts, **NUMBERS)
def ridge(X: Any, y: Any) -> Any:
    from sklearn.linear_model import Ridge

    return Ridge(alpha=1.0).fit(X, y)


@case("LightGBM, regression", "lightgbm", of_numbers=hours_parts, **NUMBERS)
def lightgbm_regression(X: Any, y: Any) -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(learning_rate=0.05, n_jobs=1, verbosity=-1).fit(X, y)


@case("PoissonRegressor", "scikit-learn", of_numbers=hours_parts, **NUMBERS)
def poisson(X: Any, y: Any) -> Any:
    from sklearn.linear_model import PoissonRegressor

    return PoissonRegressor(alpha=1e-3, max_iter=1000).fit(X, y)


def raw_parts() -> list[Part]:
    """Training, validation and test rows of Adult as UCI has them, without sex."""
    adult = fetch_adult(include_sensitive=False)
    words = adult.data.select_dtypes(exclude="number").columns
    X = adult.data.astype(dict.fromkeys(words, str))
    s, y = np.asarray(adult.sensitive_features), np.asarray(adult.target)
    known = np.flatnonzero(np.asarray(adult.split) == "train")
    train, validation, _ = three_way_split(len(known), SEED, validation=0.33, test=0.0)
    test = np.flatnonzero(np.asarray(adult.split) == "test")
    parts = (known[train], known[validation], test)
    return [Part(X.iloc[rows].reset_index(drop=True), y[rows], s[rows]) for rows in parts]


def encoded_parts() -> list[Part]:
    """The same as numbers, standardised and one-hot."""
    return [Part(part.X, part.y.astype(int), part.s) for part in adult_splits(SEED)]


def measured(one: Case, model: Any, test: Part) -> dict[str, float]:
    if one.of_numbers is not None:
        found = np.asarray(one.labels(model, test.X))
        means = [found[test.s == group].mean() for group in np.unique(test.s)]
        return {"r2": float(r2_score(test.y, found)), "gap": float(max(means) - min(means))}
    labels = np.ravel(one.labels(model, test.X)).astype(int)
    gap = demographic_parity_difference(test.y, labels, sensitive_features=test.s)
    return {
        "accuracy": float(accuracy_score(test.y, labels)),
        "gap": float(gap),
        "auc": float(roc_auc_score(test.y, one.scores(model, test.X))),
    }


ELSEWHERE = """
import sys
sys.modules["fairij"] = None  # importing it is an error
import joblib
folder = sys.argv[1]
X, expected = joblib.load(folder + "/rows.joblib")
file = folder + "/model"
{reads}
{asks}
import numpy as np
print(float(np.abs(np.asarray(scores) - expected).max()))
"""


def round_trip(one: Case, model: Any, X: Any) -> float:
    """The largest difference of scores by the saved model, in a process without fairij."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        joblib.dump((X, np.asarray(one.scores(model, X))), path / "rows.joblib")
        if one.saved is None:
            joblib.dump(model, path / "model")
        else:
            one.saved(model, path / "model")
        code = ELSEWHERE.format(reads=one.reads, asks=one.asks)
        done = subprocess.run(
            [sys.executable, "-c", code, folder], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return float(done.stdout.split()[-1])


def _parameters(one: Case, model: Any) -> Any:
    return adapt(model, **one.settings).theta.numpy()


def run(name: str) -> dict[str, Any]:
    one = CASES[name]
    parts = one.of_numbers or (raw_parts if one.raw else encoded_parts)
    train, validation, test = parts()
    start = process_time()
    model = one.fit(train.X, train.y)
    trained = process_time() - start
    fair = FairIJ(
        model,
        constraints="mean_prediction" if one.of_numbers else "demographic_parity",
        search="auto",
        verbose=False,
        **one.settings,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fair.fit(
            one.rows(train.X),
            train.y,
            X_val=one.rows(validation.X),
            y_val=validation.y,
            sensitive_features_val=validation.s,
        )
    seconds = process_time() - start - trained
    undone = fair.edit_.undo(fair.estimator_)
    is_undone = bool(
        np.array_equal(_parameters(one, undone), _parameters(one, model))
        and np.array_equal(one.scores(undone, test.X), one.scores(model, test.X))
    )
    return {
        "before": measured(one, model, test),
        "after": measured(one, fair.estimator_, test),
        "library": f"{one.library} {version(one.library)}",
        "seconds": round(seconds, 1),
        "round_trip": round_trip(one, fair.estimator_, test.X),
        "undone": is_undone,
        "training": round(trained, 1),
        "fairij": __version__,
        "code": code_hash(),
        "machine": platform.machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CASES)}")
    names = parser.parse_args().names or list(CASES)
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names:
        with threadpool_limits(1):
            kept[name] = run(name)
        kept = {name: kept[name] for name in CASES if name in kept}
        print(name, json.dumps(kept[name]))
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
