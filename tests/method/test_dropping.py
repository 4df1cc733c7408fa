"""Candidate edits: which are tried, and their judgement against the slow way."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairij import AllPositive, Exact, Grid, Sequential
from fairij.errors import InvalidInputError
from fairij.fairness import encode_groups
from fairij.fairness.constraints import Constraint, get_constraint
from fairij.fairness.rates import confusion_counts
from fairij.fairness.scores import OF_SCORES, scored
from fairij.method import candidates
from fairij.method.candidates import Candidates, Judge, judged_candidates, pooled_table
from fairij.method.counts import Counts
from fairij.method.curvature import GGN
from fairij.method.preparation import get_search
from fairij.method.search import SEARCHES, SearchContext
from fairij.method.search.dropping import PAPER_SCALES
from fairij.models import adapt
from fairij.models.losses import get_loss
from reference import CASES, Case, make_case

DAMPING = 0.05


# --- which k ----------------------------------------------------------------------------------


def test_the_papers_grid() -> None:
    ks = Grid().ks(positive=20_000, rows=22_000)
    assert len(ks) == 39  # forty values of k, of which the first is 0
    assert (ks[0], ks[-1]) == (51, 2000)
    assert set(np.diff(ks)) <= {51, 52}
    assert Grid().scales == PAPER_SCALES == (0.01, 0.1, 1.0, 2.0, 3.0, 5.0, 10.0)


def test_the_grid_grows_with_the_data() -> None:
    assert Grid().ks(positive=10**6, rows=220_000)[-1] == 20_000
    assert Grid(max_k=300).ks(positive=10**6, rows=220_000)[-1] == 300
    assert Grid(max_k=300).ks(positive=17, rows=220_000) == list(range(1, 18))


@given(
    positive=st.integers(0, 3000),
    rows=st.integers(1, 50_000),
    points=st.integers(2, 60),
    max_k=st.one_of(st.none(), st.integers(1, 4000)),
)
def test_grid_of_k(positive: int, rows: int, points: int, max_k: int | None) -> None:
    ks = Grid(points=points, max_k=max_k).ks(positive, rows)
    assert ks == sorted(set(ks))
    assert all(isinstance(k, int) and 1 <= k <= positive for k in ks)
    assert len(ks) <= points - 1
    top = min(max_k or max(2000, rows // 11), positive)
    assert ks[-1:] == ([top] if top else [])
    if len(ks) > 1:
        assert max(np.diff(ks)) - min(np.diff(ks)) <= 1  # spread evenly


def test_k_as_given() -> None:
    assert Grid(k=(30, 0, 10, 10)).ks(100, 1000) == [10, 30]
    assert Grid(k=(30, 10, 500)).ks(20, 1000) == [10, 20]
    assert Grid(k=(30,)).ks(0, 1000) == []
    assert Grid(k=np.array([3, 7])).ks(100, 1000) == [3, 7]


def test_other_searches() -> None:
    assert AllPositive().ks(17, 100) == [17]
    assert AllPositive().ks(0, 100) == []
    assert Sequential().ks(4, 100) == [1, 2, 3, 4]
    assert Sequential(step=10, max_k=35).ks(100, 100) == [10, 20, 30]
    assert Sequential(step=10).ks(9, 100) == []


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Grid(scales=()), r"`scales` must be one or more positive .*got \(\)"),
        (lambda: Grid(scales=(1.0, 0.0)), r"`scales` must be .*positive.*got \(1.0, 0.0\)"),
        (lambda: Grid(scales=(float("inf"),)), r"`scales` must be .*positive.*got \(inf,\)"),
        (lambda: Grid(scales=(float("nan"),)), r"`scales` must be .*positive.*got \(nan,\)"),
        (lambda: AllPositive(scales=(-1.0,)), r"`scales` must be .*positive.*got \(-1.0,\)"),
        (lambda: Sequential(scales=(-1.0,)), r"`scales` must be .*positive.*got \(-1.0,\)"),
        (lambda: Grid(k=(-1,)), r"`k` must be whole numbers of at least 0, got \(-1,\)"),
        (lambda: Grid(k=(1.5,)), r"`k` must be whole numbers of at least 0, got \(1.5,\)"),
        (lambda: Grid(points=1), "`points` must be a whole number of at least 2; got 1"),
        (lambda: Grid(max_k=0), "`max_k` must be a whole number of at least 1 or None; got 0"),
        (lambda: Sequential(step=0), "`step` must lie between 1 and `max_k`=2000, got 0"),
        (lambda: Sequential(step=9, max_k=5), "`step` must lie between 1 and `max_k`=5, got 9"),
        (lambda: Sequential(scales=(1.0, 2.0)), r"one scale; got \(1.0, 2.0\)"),
    ],
)
def test_settings_are_checked_at_once(make: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        make()


def test_searches_by_name() -> None:
    assert get_search("grid") == Grid()
    assert get_search("all_positive") == AllPositive()
    assert get_search("sequential") == Sequential()
    assert get_search(mine := Grid(points=3)) is mine


@pytest.mark.parametrize("search", ["random", None, 3, Grid, [Grid()]])
def test_unknown_searches(search: Any) -> None:
    with pytest.raises(InvalidInputError, match="`search` must be one of") as caught:
        get_search(search)
    for name in [*SEARCHES, "Grid(max_k=500)", repr(search)]:
        assert name in str(caught.value)


# --- judgement --------------------------------------------------------------------------------


def plain_judgement(
    z: np.ndarray, y: np.ndarray, groups: np.ndarray, constraint: str
) -> dict[str, float]:
    """Gap and performance in loops over rows."""
    names = sorted(set(groups.tolist()))

    by_group: dict[str, float] = {}

    def spread(rate: str, hit: list[bool], base: list[bool]) -> float:
        for name in names:
            rows = [i for i in range(len(y)) if base[i] and groups[i] == name]
            by_group[f"{rate}[{name}]"] = sum(hit[i] for i in rows) / len(rows) if rows else 0.0
        rates = [by_group[f"{rate}[{name}]"] for name in names]
        return max(rates) - min(rates)

    if constraint in ("mean_prediction", "mean_error"):
        for rate, values in (("mean_prediction", z), ("mean_error", z - y)):
            for g in names:
                mean = np.mean([values[i] for i in range(len(y)) if groups[i] == g])
                by_group[f"{rate}[{g}]"] = float(mean)
        means = [by_group[f"{constraint}[{g}]"] for g in names]
        error = sum((z[i] - y[i]) ** 2 for i in range(len(y)))
        return by_group | {
            "gap": max(means) - min(means),
            "r2": 1 - error / sum((v - y.mean()) ** 2 for v in y),
        }
    guess = [int(row > 0) if z.ndim == 1 else int(np.argmax(row)) for row in z]
    classes = [1] if z.ndim == 1 else list(range(z.shape[1]))
    gaps = {"demographic_parity": [], "equal_opportunity": [], "equalized_odds": []}
    for c in classes:
        hit = [g == c for g in guess]
        is_class = [t == c for t in y]
        of_class = f"[{c}]" if len(classes) > 1 else ""
        everyone, is_other = [True] * len(y), [not t for t in is_class]
        gaps["demographic_parity"].append(spread("selection_rate" + of_class, hit, everyone))
        found = spread("true_positive_rate" + of_class, hit, is_class)
        gaps["equal_opportunity"].append(found)
        false = spread("false_positive_rate" + of_class, hit, is_other)
        gaps["equalized_odds"] += [found, false]
    recalls = []
    for c in sorted(set(y.tolist())):
        rows = [i for i in range(len(y)) if y[i] == c]
        recalls.append(sum(guess[i] == c for i in rows) / len(rows))
    return by_group | {
        "gap": (sum if constraint == "equalized_odds" else max)(gaps[constraint]),
        "accuracy": sum(g == t for g, t in zip(guess, y, strict=True)) / len(y),
        "balanced_accuracy": sum(recalls) / len(recalls),
    }


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("at_once", [1, 100, 2**20])
def test_candidates_are_counted_as_audits_are(
    n_classes: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "AT_ONCE", at_once)
    rng = np.random.default_rng(0)
    y, s = rng.integers(n_classes, size=90), rng.choice(list("abc"), size=90)
    groups, finite = encode_groups(s), np.array([True, False, True])
    loss = get_loss("binary_cross_entropy" if n_classes == 2 else "softmax_cross_entropy")
    z = torch.as_tensor(rng.normal(size=(3, 90) if n_classes == 2 else (3, 90, n_classes)))
    judge = Judge(
        SimpleNamespace(), torch.as_tensor(y).double(), groups, loss,
        get_constraint("demographic_parity"), n_classes, recorded={},
    )  # fmt: skip
    predicted = loss.predict(z).numpy()
    expected = confusion_counts(y, predicted, groups.codes, n_groups=3, n_classes=n_classes)
    table = pd.DataFrame({"damping": 0.1, "k": [0, 5, 9], "scale": 1.0})
    keys = [(0.1, k, 1.0) for k in table["k"]]
    np.testing.assert_array_equal(judge._table(loss.predict(z)), expected)
    z[1] = torch.nan
    columns = judge._judged(z, keys)
    table = table.assign(**columns)
    labels = judge.labels(table)
    assert labels is not None
    np.testing.assert_array_equal(labels, predicted[finite])
    for name in ("auc", "brier"):  # of the same edits, in the same order
        np.testing.assert_array_equal(judge.of_scores(table)[name], columns[name][finite])
    assert np.isnan([columns[name][1] for name in ("auc", "gap_error", "gap_p")]).all()


def test_of_each_candidate_the_labels_seen_last_are_kept() -> None:
    judge = Judge(
        SimpleNamespace(estimates=True), torch.tensor([0.0, 1.0]), encode_groups(["a", "b"]),
        get_loss("binary_cross_entropy"), get_constraint("demographic_parity"), 2, recorded={},
    )  # fmt: skip
    several, single = torch.tensor([[1.0, 1.0], [1.0, -1.0]]), torch.tensor([[-1.0, 1.0]])
    table = pd.DataFrame({"damping": 0.1, "k": [3, 3, 7], "scale": [1.0, 2.0, 1.0]})
    keys = list(table.itertuples(index=False, name=None))
    predicted = judge.loss.predict(several)
    judge._record(predicted, np.array([True, False]), keys[:2])
    judge._record(predicted, np.array([True, True]), [keys[2], (0.5, 3, 1.0)])
    judge._record(judge.loss.predict(single), np.array([True]), keys[:1])
    labels = judge.labels(table)
    assert labels is not None
    assert labels.tolist() == [[0, 1], [1, 1]]  # the second one diverged
    judge._record(
        judge.loss.predict(single), np.array([False]), keys[:1]
    )  # now the first one diverges too
    labels = judge.labels(table)
    assert labels is not None
    assert labels.tolist() == [[1, 1]]


def test_an_edit_that_blows_up_on_one_fold_is_no_candidate() -> None:
    """Folds are counted together; what only one of them proposed is left out."""
    judge = Judge(
        SimpleNamespace(), torch.tensor([0.0, 1.0]), encode_groups(["a", "b"]),
        get_loss("binary_cross_entropy"), get_constraint("demographic_parity"), 2, counted=[],
    )  # fmt: skip
    apart, alike = np.zeros((2, 1, 2, 2, 2))  # group, truth, prediction
    apart[0, 0, 0, 0] = apart[0, 1, 1, 1] = 1  # b is selected, a is not
    alike[0, 0, 0, 1] = alike[0, 1, 1, 1] = 1

    def fold(ks: list[int], tables: list[np.ndarray], finite: list[bool]) -> Candidates:
        table = pd.DataFrame({"damping": 0.1, "k": ks, "scale": 1.0, "gap": 9.0})
        table["solve_error"] = [0.01 * len(ks)] * len(ks)
        chances = torch.full((len(ks), 2), 0.5)
        of_scores = scored(chances, torch.tensor([0, 1]), judge.groups)
        counts = Counts(np.concatenate(tables), np.array(finite), of_scores)
        return Candidates(table, counts, {}, {})

    first = fold([0, 10, 20], [apart, alike, alike], [True, True, True])
    second = fold([0, 20, 10, 30], [apart, alike, apart, alike], [True, False, True, True])
    found = pooled_table([first, second], [judge, judge])
    assert found["k"].tolist() == [0, 10, 20]
    assert found["gap"].tolist() == [1.0, 0.5, np.inf]
    assert found["accuracy"].tolist() == [1.0, 0.75, 0.0]
    assert found["solve_error"].tolist() == [0.04] * 3
    assert found["selection_rate[a]"].tolist()[:2] == [0.0, 0.5]
    assert found["auc"].tolist()[:2] == [0.5, 0.5]


def judge_for(case: Case, constraint: str | Constraint, groups: np.ndarray) -> Judge:
    classes = 0 if not case.loss.is_classification else int(case.y.max()) + 1
    return Judge(
        adapt(case.module).evaluator(case.X),
        case.y,
        encode_groups(groups),
        case.loss,
        get_constraint(constraint),
        classes,
    )


def also_measured(case: Case, groups: np.ndarray) -> set[str]:
    """Columns that have tests of their own."""
    sure = {"gap_error", "gap_p"}
    if not case.loss.is_classification:
        return sure | {"mean_squared_error"}
    of_groups = {f"calibration_error[{group}]" for group in np.unique(groups)}
    return sure | {*OF_SCORES, "rarest_class"} | of_groups


def three_groups(n: int) -> np.ndarray:
    return np.random.default_rng(5).choice(["a", "b", "c"], n)


PAIRS = [
    (name, constraint)
    for name in CASES
    for constraint in (
        ("mean_prediction", "mean_error")
        if name == "regression"
        else ("demographic_parity", "equal_opportunity", "equalized_odds")
    )
]


@pytest.mark.parametrize(("name", "constraint"), PAIRS)
def test_judge_equals_a_plain_loop(name: str, constraint: str) -> None:
    case = make_case(name, n=60)
    groups = three_groups(60)
    direction = torch.randn(
        len(case.theta), generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    scales = (0.3, 1.0, 4.0)
    found = judge_for(case, constraint, groups).judge(direction, scales)
    for i, scale in enumerate(scales):
        z = case.outputs(case.theta + scale * direction).detach().numpy()
        expected = plain_judgement(z, case.y.numpy(), groups, constraint)
        assert set(found) - set(expected) == also_measured(case, groups)
        for column, value in expected.items():
            assert found[column][i] == pytest.approx(value, rel=1e-9, abs=1e-12), (column, scale)


def test_an_edit_that_blows_up_is_never_good() -> None:
    for name in ("mlp", "softmax", "regression"):
        case = make_case(name)
        constraint = "mean_prediction" if name == "regression" else "demographic_parity"
        judge = judge_for(case, constraint, three_groups(40))
        direction = torch.full_like(case.theta, 1e200)
        with np.errstate(over="ignore", invalid="ignore"):
            found = judge.judge(direction, (1.0, 1e200))
        assert found["gap"][1] == np.inf
        worst = {"accuracy": 0.0, "balanced_accuracy": 0.0, "r2": -np.inf}
        for column in set(found) - {"gap"}:
            if column in worst:
                assert found[column][1] == worst[column]
            else:  # a group's rate
                assert np.isnan(found[column][1])


def test_a_metric_without_a_value_is_never_good() -> None:
    case = make_case("mlp")

    def undefined(outputs: Tensor, y: Tensor, groups: Tensor) -> Tensor:
        return torch.where(outputs.mean() > -100, torch.nan, 0.0)

    judge = judge_for(case, Constraint.custom(undefined), three_groups(40))
    assert judge.judge(torch.zeros_like(case.theta), (1.0,))["gap"].tolist() == [np.inf]


def test_a_function_is_judged_by_itself() -> None:
    case = make_case("softmax")

    def own(outputs: Tensor, y: Tensor, groups: Tensor) -> Tensor:
        return (outputs[:, 0] * (groups + 1)).sum() + y.sum()

    groups = three_groups(40)
    found = judge_for(case, Constraint.custom(own), groups).judge(
        torch.ones_like(case.theta), (0.5,)
    )
    z = case.outputs(case.theta + 0.5)
    codes = torch.tensor(np.unique(groups, return_inverse=True)[1])
    assert found["gap"][0] == pytest.approx(float(own(z, case.y, codes)))


# --- candidates -------------------------------------------------------------------------------


def run(
    case: Case,
    search: Any,
    order: np.ndarray,
    constraint: str,
    groups: np.ndarray,
    calls: Any = None,
) -> Any:
    objective = case.objective()
    inverse = Exact().prepare(GGN(objective), DAMPING)
    heard = [] if calls is None else calls
    context = SearchContext(objective, inverse, torch.tensor(order), *[None] * 8)
    judge = judge_for(case, constraint, groups)
    found = judged_candidates(search, context, judge, lambda *say: heard.append(say))
    assert len(found.moves) == len(found.table) - 1  # what was judged is what is returned
    assert not found.estimated  # this model runs every candidate
    return found.table


class Scratch:
    """Each candidate by a dense float64 solve of its own."""

    def __init__(self, case: Case, constraint: str, groups: np.ndarray) -> None:
        self.case, self.constraint, self.groups = case, constraint, groups
        self.H = case.ggn() + DAMPING * torch.eye(len(case.theta)).double()
        self.pulls = case.w[:, None] * case.gradients()

    def judged(self, order: np.ndarray, k: int, scale: float) -> dict[str, float]:
        moved = torch.linalg.solve(self.H, self.pulls[order[:k].copy()].sum(0))
        z = self.case.outputs(self.case.theta + scale * moved).detach().numpy()
        return plain_judgement(z, self.case.y.numpy(), self.groups, self.constraint)

    def worst_first(self) -> np.ndarray:
        """Points by their influence on the gap of mean predictions."""
        theta = self.case.theta.clone().requires_grad_()
        z = self.case.outputs(theta)
        means = [z[torch.tensor(self.groups == name)].mean() for name in np.unique(self.groups)]
        (gradient,) = torch.autograd.grad(max(means) - min(means), theta)
        scores = -(self.pulls @ torch.linalg.solve(self.H, gradient))
        return torch.argsort(scores, descending=True).numpy()


@pytest.mark.parametrize("name", CASES)
def test_candidates_equal_edits_made_from_scratch(name: str) -> None:
    case = make_case(name)
    constraint = "mean_error" if name == "regression" else "demographic_parity"
    order = np.random.default_rng(2).permutation(len(case.y))[:25]
    search = Grid(k=(1, 4, 9, 25), scales=(0.5, 3.0))
    calls: list[tuple[str, int, int]] = []
    scratch = Scratch(case, constraint, three_groups(len(case.y)))
    table = run(case, search, order, constraint, scratch.groups, calls)
    assert list(zip(table["k"], table["scale"], strict=True)) == [
        (0, 1.0),
        *[(k, c) for k in (1, 4, 9, 25) for c in (0.5, 3.0)],
    ]
    assert (table["damping"] == DAMPING).all()
    for row in table.to_dict("records"):
        expected = scratch.judged(order, row["k"], row["scale"])
        for column, value in expected.items():
            assert row[column] == pytest.approx(value, rel=1e-7, abs=1e-9), (row, column)
    assert calls == [("candidates", i, 4) for i in (1, 2, 3, 4)]


def test_nothing_to_drop_leaves_the_model_alone() -> None:
    case, groups = make_case("mlp"), three_groups(40)
    z = case.outputs(case.theta).detach().numpy()
    expected = plain_judgement(z, case.y.numpy(), groups, "demographic_parity")
    for search in (Grid(), AllPositive(), Sequential()):
        table = run(case, search, np.empty(0, dtype=np.int64), "demographic_parity", groups)
        assert table["k"].tolist() == [0]
        assert table["gap"][0] == pytest.approx(expected["gap"])


@pytest.mark.parametrize(("step", "scale"), [(1, 0.2), (1, 1.0), (2, 0.2), (5, 0.05)])
def test_sequential_stops_at_the_first_k_that_does_not_improve(step: int, scale: float) -> None:
    # groups by the feature that matters most; the gap of means moves with every point
    case = make_case("regression", n=120)
    groups = np.where(case.X[:, 1] > 0, "a", "b")
    scratch = Scratch(case, "mean_prediction", groups)
    order = scratch.worst_first()
    gaps = [scratch.judged(order, 0, scale)["gap"]]
    for k in range(step, 121, step):
        gaps.append(scratch.judged(order, k, scale)["gap"])
        if not gaps[-1] < gaps[-2]:
            break
    assert 2 < len(gaps) < 120 // step
    search = Sequential(step=step, scales=(scale,))
    table = run(case, search, order, "mean_prediction", groups)
    assert table["k"].tolist() == list(range(0, len(gaps) * step, step))
    np.testing.assert_allclose(table["gap"], gaps, rtol=1e-9)
    if step == 1 and scale == 0.2:
        assert len(gaps) > 17  # past the first chunk of right-hand sides


def test_sequential_takes_no_change_for_no_improvement() -> None:
    # so small a step flips no prediction: the hard gap stays as it was
    case = make_case("mlp")
    search = Sequential(scales=(1e-9,))
    table = run(case, search, np.arange(30), "demographic_parity", three_groups(40))
    assert table["gap"][0] == table["gap"][1]
    assert table["k"].tolist() == [0, 1]
