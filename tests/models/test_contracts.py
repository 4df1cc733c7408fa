"""Every family keeps the contract of models, and every wrapper passes on every capability."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

sys.path.insert(0, str(Path(__file__).parents[1] / "language"))

from biased import mlp, problem
from fairij import BlackBox
from fairij.data.sources import ArraySource
from fairij.models import FAMILIES, EditableDefaults, adapt
from fairij.models.base import Delegating, Linearization
from fairij.models.constant import ConstantLinearization, FeatureJacobian
from fairij.models.contract import check_editable, check_wrapper
from fairij.models.sklearn.pipeline import WrappedEditable
from fairij.models.text.transformers import InGivenOrder
from fairij.scale.checkpoints import Journal
from fairij.scale.journaled_model import JournaledEditable
from fairij.scale.sharded_model import ShardedEditable
from fairij.scale.sharding import Shard
from fairij.scale.streaming import StreamedEditable
from sklearn_cases import fit

ROWS = 12  # of the training rows, on which a contract is checked
CASES: dict[str, Callable[[], tuple[Any, Any]]] = {}  # a fitted model, and its options


def case(name: str, task: str = "binary", **options: Any) -> Callable[[Any], Any]:
    """A case from a function that takes the features and labels of a task."""

    def added(fit: Callable[[Any, Any], Any]) -> Any:
        CASES[name] = cache(lambda: (fit(problem(task).X.astype("f8"), problem(task).y), options))
        return fit

    return added


def estimators() -> None:
    """One line per scikit-learn estimator."""
    network = {"hidden_layer_sizes": (3,), "solver": "lbfgs", "max_iter": 30, "random_state": 0}
    small = {"max_depth": 2, "min_samples_leaf": 30, "random_state": 0}
    members = [
        ("linear", LogisticRegression()),
        ("trees", GradientBoostingClassifier(n_estimators=2, max_depth=2)),
    ]
    scaled = make_pipeline(StandardScaler(), LogisticRegression())
    for name, task, model in (
        ("logistic", "binary", LogisticRegression(C=0.5)),
        ("multinomial", "three", LogisticRegression(class_weight="balanced")),
        ("sgd", "binary", SGDClassifier("log_loss", early_stopping=True, random_state=0)),
        ("least squares", "real", LinearRegression()),
        ("discriminant", "three", LinearDiscriminantAnalysis()),
        ("perceptron", "three", MLPClassifier(activation="tanh", **network)),
        ("perceptron, one output", "real", MLPRegressor(activation="tanh", **network)),
        ("histogram", "three", HistGradientBoostingClassifier(max_iter=3, max_leaf_nodes=4)),
        ("histogram, one output", "real", HistGradientBoostingRegressor(max_iter=3)),
        (
            "boosted",
            "binary",
            GradientBoostingClassifier(n_estimators=4, n_iter_no_change=3, random_state=0),
        ),
        ("forest", "binary", RandomForestClassifier(n_estimators=3, **small)),
        ("forest, three classes", "three", RandomForestClassifier(n_estimators=3, **small)),
        ("forest, one output", "real", RandomForestRegressor(n_estimators=3, **small)),
        ("voting", "binary", VotingClassifier(members, voting="soft")),
        ("voting, three classes", "three", VotingClassifier(members, voting="soft")),
        ("stack", "binary", StackingClassifier(members, cv=2)),
        ("pipeline", "binary", scaled),
        ("search", "binary", GridSearchCV(scaled, {"logisticregression__C": [0.1, 1.0]}, cv=2)),
    ):
        case(name, task)(partial(fit, model))
    case("frozen")(lambda X, y: FrozenEstimator(LogisticRegression().fit(X, y)))


estimators()


@case("network")
def network(X: Any, y: Any) -> Any:
    return mlp().double()


@case("network, three classes, in batches", "three", batch_size=5)
def network_in_batches(X: Any, y: Any) -> Any:
    return mlp(3).double()


@case("network without kept graphs", memory_limit=0, parameters="2")
def network_without_graphs(X: Any, y: Any) -> Any:
    return mlp()


@case("lightgbm", "three")
def lightgbm(X: Any, y: Any) -> Any:
    library = pytest.importorskip("lightgbm")
    return library.LGBMClassifier(n_estimators=3, num_leaves=4, n_jobs=1, verbosity=-1).fit(X, y)


@case("xgboost")
def xgboost(X: Any, y: Any) -> Any:
    library = pytest.importorskip("xgboost")
    return library.XGBClassifier(n_estimators=4, max_depth=2, n_jobs=1).fit(X, y)


@case("catboost", "three")
def catboost(X: Any, y: Any) -> Any:
    library = pytest.importorskip("catboost")
    settings = {"iterations": 3, "depth": 2, "verbose": False, "thread_count": 1}
    return library.CatBoostClassifier(allow_writing_files=False, **settings).fit(X, y)


@case("skorch")
def skorch(X: Any, y: Any) -> Any:
    library = pytest.importorskip("skorch")
    torch.manual_seed(0)
    net = library.NeuralNetBinaryClassifier(mlp().double(), max_epochs=1, verbose=0)
    return net.fit(X, y.astype(float))


@case("black box")
def black_box(X: Any, y: Any) -> Any:
    return BlackBox(fit(GaussianNB(), X, y)).fit(X)


@case("black box, three classes, trees", "three")
def black_box_of_three(X: Any, y: Any) -> Any:
    box = BlackBox(fit(GaussianNB(), X, y), correction="trees")
    return box.fit(X, grouped=(X, (X[:, 0] > 0).astype(int)))


@case("ebm", "three")
def ebm(X: Any, y: Any) -> Any:
    glassbox = pytest.importorskip("interpret.glassbox")
    settings = {"max_bins": 4, "outer_bags": 2, "max_rounds": 20, "interactions": 0, "n_jobs": 1}
    return glassbox.ExplainableBoostingClassifier(**settings).fit(X, y)


@case("statsmodels")
def logit(X: Any, y: Any) -> Any:
    return pytest.importorskip("statsmodels.api").Logit(y, X).fit(disp=0)


def on_tokens(name: str) -> tuple[Any, dict[str, Any]]:
    pytest.importorskip("transformers")
    import tiny

    from fairij.models.text.triggers import TriggerTokens

    if name == "classifier":
        return tiny.classifier().double(), {"parameters": "classifier"}
    if name == "classifier, deep":
        return tiny.classifier().double(), {
            "parameters": ["classifier", "*query*"],
            "batch_size": 5,
        }
    return TriggerTokens(tiny.bert().double(), 2).double(), {}


ON_TOKENS = ("classifier", "classifier, deep", "triggers")
CASES |= {name: cache(lambda name=name: on_tokens(name)) for name in ON_TOKENS}


def rows_of(name: str) -> Any:
    if name in ON_TOKENS:
        import tiny

        return tiny.token_rows(ROWS)
    return problem().X[:ROWS].astype("f8")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", CASES)
def test_a_family_keeps_the_contract(name: str) -> None:
    model, options = CASES[name]()
    check_editable(adapt(model, **options), rows_of(name))


def test_every_family_has_a_case() -> None:
    models = [make()[0] for make in CASES.values()]
    first = [next(f.name for f in FAMILIES if f.recognises(model)) for model in models]
    missing = {family.name for family in FAMILIES} - set(first)
    assert not missing, f"add a small fitted model of {missing} to CASES"


# --- what the contract finds ------------------------------------------------------------------


class Scorecard(EditableDefaults):
    """A linear model of one's own, as the documentation has it."""

    parameter_names = ("points",)

    def __init__(self, theta: torch.Tensor) -> None:
        self.theta = theta

    def linearize(self, X: Any, *, keep: bool = True) -> ConstantLinearization:
        jacobian = FeatureJacobian(torch.as_tensor(X), 1, intercept=False)
        return ConstantLinearization(jacobian.times(self.theta), jacobian)

    evaluator = linearize

    def outputs(self, X: Any, theta: torch.Tensor | None = None) -> torch.Tensor:
        return torch.as_tensor(X) @ (self.theta if theta is None else theta)

    def edited(self, theta: torch.Tensor) -> Any:
        return type(self)(theta)

    def frame_fingerprint(self) -> str:
        return "points"


def card(**changes: Any) -> Any:
    """A scorecard with some members changed."""
    return type("Card", (Scorecard,), changes)(torch.tensor([1.0, -1.0, 0.5, 2.0]).double())


def broken(name: str, answer: Any) -> dict[str, Any]:
    """A scorecard whose linearisations have one wrong member."""
    kind = type("Broken", (ConstantLinearization,), {name: answer})

    def linearize(self: Any, X: Any, *, keep: bool = True) -> Any:
        right = Scorecard.linearize(self, X)
        return kind(right.outputs, right.jacobian)

    return {"linearize": linearize, "evaluator": linearize}


def in_place(self: Any, theta: torch.Tensor) -> Any:
    self.theta.copy_(theta)
    return self


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (broken("jvp", lambda self, r: 2 * self.jacobian.times(r)), "jvp, by differences"),
        (broken("vjp", lambda self, u: 2 * self.jacobian.transposed_times(u)), "<u, J r>"),
        (broken("sandwich", lambda self, r, middle: r), "sandwich, by vjp and jvp"),
        (broken("second_order", lambda self, u, r: r), "second_order, by differences"),
        (broken("moved", lambda self, by: self), r"moved\(by\).outputs"),
        (broken("rows", lambda self, index: self.jacobian.X[index]), "rows has shape"),
        (broken("restrict", lambda self, index, *, keep=False: self), r"restrict\(index\)"),
        (broken("sums", lambda self, u, pieces: torch.ones(4, len(pieces))), "sums, by rows"),
        (broken("gram", lambda self, middle: torch.eye(4)), "gram, by rows"),
        (broken("row_squares", lambda self: torch.zeros(12)), "row_squares must be"),
        (broken("row_products", lambda self: torch.eye(12)), "row_products, by rows"),
        (broken("held_bytes", lambda self: -1), "held_bytes must be None or at least 0"),
        (broken("along", lambda self, d, scales: self.outputs[None]), "along has shape"),
        (broken("confirm", lambda self, d, c, *, everywhere: self.outputs[None]), "confirm"),
        ({"edited": in_place}, "outputs of the edited model|original"),
        ({"edited": lambda self, theta: type(self)(self.theta)}, "theta of the edited model"),
        ({"loss_name": "hinge"}, "loss_name is 'hinge'"),
        ({"frame_fingerprint": lambda self: str(float(self.theta[0]))}, "frame_fingerprint must"),
        ({"l2": lambda self, rows, weight_sum: torch.ones(3)}, r"l2 must be None or have shape"),
        ({"held_back": lambda self, y: [len(y)]}, "held_back must be None, 'unknown' or row"),
        ({"row_weights": lambda self, y, weight: None}, "row_weights must give one finite weight"),
    ],
)
def test_a_broken_contract_is_named(changes: dict[str, Any], said: str) -> None:
    check_editable(card(), rows_of(""))
    with pytest.raises(AssertionError, match=said):
        check_editable(card(**changes), rows_of(""))


# --- wrappers ---------------------------------------------------------------------------------


class Reordered(Delegating):
    """The rows in another order, seen in the order given."""

    def linearize(self, X: Any, *, keep: bool = True) -> Linearization:
        order = torch.tensor([4, 2, 8, 0, 1, 7, 6, 3, 5])
        return InGivenOrder(self._inner.linearize(X[order], keep=keep), order)


def wrapped(inner: Any) -> WrappedEditable:
    return WrappedEditable("a pipeline", inner, [])


@pytest.fixture
def one_process(tmp_path: Path) -> Any:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("make", "own"),
    [
        (Delegating, ()),
        (Reordered, ()),
        (wrapped, ("edited", "frame_fingerprint")),
        (StreamedEditable, ()),
    ],
)
def test_a_wrapper_passes_on_every_capability(make: Any, own: tuple[str, ...]) -> None:
    check_wrapper(make, own=own)


@pytest.mark.parametrize("chunk", [4, 100])
def test_streaming_passes_on_every_capability(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairij.scale.streaming.CHUNK_ROWS", chunk)
    check_wrapper(StreamedEditable, ArraySource, own=("held_bytes", "row_products", "with_outputs"))


def test_several_processes_pass_on_every_capability(one_process: None) -> None:
    check_wrapper(
        ShardedEditable, Shard, own=("held_bytes", "row_products", "factors", "with_outputs")
    )
    check_wrapper(ShardedEditable)


def test_a_journal_passes_on_every_capability(tmp_path: Path) -> None:
    for _ in range(2):  # written, then read
        journal = Journal.open(tmp_path / "run", {"case": "contract"})
        check_wrapper(lambda inner, j=journal: JournaledEditable(inner, j))
        journal.write()


def test_a_lost_capability_is_named() -> None:
    class Lossy(Delegating):
        def l2(self, rows: int, weight_sum: float) -> None:
            return None

    with pytest.raises(AssertionError, match="Lossy must pass on `l2` of `Editable`"):
        check_wrapper(Lossy)

    class Estimating(Delegating):
        def evaluator(self, X: Any) -> Any:
            return adapt(card()).evaluator(np.hstack([X, X[:, :1]]))

    with pytest.raises(AssertionError, match="must pass on"):
        check_wrapper(Estimating)
