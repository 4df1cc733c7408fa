"""Hard metrics against fairlearn and scikit-learn, and against loops where neither goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import fairlearn.metrics as fairlearn
import numpy as np
import pandas as pd
import pytest
import sklearn.metrics as sklearn
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairij import fairness
from fairij.errors import InvalidInputError
from group_reference import RATES, Rows, fixed, labelled_rows, metric, rate

METHODS = ("between_groups", "to_overall")
FAMILIES = {
    gap.family: gap
    for gap in fairness.GAPS.values()
    if gap.is_classification and gap.form == "difference"
}
NAMES = tuple(f"{family}_{kind}" for family in FAMILIES for kind in ("difference", "ratio"))

# Cells without a row, by name, so that they are tried whatever hypothesis draws.
NO_POSITIVES = Rows([0, 1, 0, 0], [0, 1, 1, 0], [("a",), ("a",), ("b",), ("b",)])
NO_NEGATIVES = Rows([0, 1, 1, 1], [1, 1, 1, 0], [("a",), ("a",), ("b",), ("b",)])
NEVER_SELECTED = Rows([0, 1, 1, 0], [0, 0, 0, 0], [("a",), ("a",), ("b",), ("b",)])
NO_FALSE_POSITIVE = Rows([0, 1, 0, 1, 1], [0, 1, 0, 1, 0], [("a",)] * 2 + [("b",)] * 3)
NO_TRUE_POSITIVE = Rows([0, 1, 0, 0, 1], [1, 0, 0, 1, 0], [("a",)] * 2 + [("b",)] * 3)
ONE_CLASS = Rows([1, 1, 1], [1, 1, 1], [("a",), ("b",), ("b",)])
ONE_GROUP = Rows([0, 1, 1], [1, 1, 0], [("a",)] * 3)
NOBODY_IN_ONE_CELL = Rows([0, 1, 1], [1, 1, 0], [("a", "b"), ("a", "a"), ("b", "a")])


ODDS = (fairlearn.true_positive_rate, fairlearn.false_positive_rate)


def frame(rows: Rows, *metrics: Callable[..., float]) -> fairlearn.MetricFrame:
    return fairlearn.MetricFrame(
        metrics={of.__name__: of for of in metrics},
        y_true=rows.y_true,
        y_pred=rows.y_pred,
        sensitive_features=rows.options["sensitive_features"],
        sample_params={of.__name__: {"sample_weight": rows.weight} for of in metrics},
    )


def precision(y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
    return SCORES["precision"](y_true, y_pred, sample_weight=sample_weight)


def npv(y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
    return SCORES["negative_predictive_value"](y_true, y_pred, sample_weight=sample_weight)


# fairlearn's names of rates that differ
PEERS = {"accuracy": "accuracy_score", "error_rate": "zero_one_loss"}
# rates of which it has no differences ready made
SCORES = {
    "precision": partial(sklearn.precision_score, zero_division=0),
    "negative_predictive_value": partial(sklearn.precision_score, zero_division=0, pos_label=0),
}


def derived(rate: str, kind: str) -> Callable[..., float]:
    """A metric of fairlearn's: the difference or ratio of a rate."""
    if rate not in SCORES:
        return getattr(fairlearn, f"{PEERS.get(rate, rate)}_{kind}")

    def of_groups(*data: Any, method: str = "between_groups", **options: Any) -> float:
        params = {rate: {"sample_weight": options.pop("sample_weight", None)}}
        named = dict(zip(("y_true", "y_pred"), data, strict=True))
        made = fairlearn.MetricFrame(
            metrics={rate: SCORES[rate]}, **named, **options, sample_params=params
        )
        return float(getattr(made, kind)(method=method)[rate])

    return of_groups


def theirs_of(name: str) -> Callable[..., float]:
    """The same metric by fairlearn: its own, or folded from its metrics of each rate."""
    if hasattr(fairlearn, name):
        return getattr(fairlearn, name)
    family, _, kind = name.rpartition("_")
    rates = [rate.name for rate in FAMILIES[family].rates]

    def folded(*data: Any, agg: str = "worst_case", **options: Any) -> float:
        found = [derived(rate, kind)(*data, **options) for rate in rates]
        fold = "mean" if agg == "mean" else "min" if kind == "ratio" else "max"
        return getattr(pd.Series(found), fold)()  # leaves NaN out

    return folded


def settings_of(name: str) -> list[dict[str, str]]:
    """Everything that fairlearn lets one choose."""
    aggs = ("worst_case", "mean") if len(FAMILIES[name.rpartition("_")[0]].rates) > 1 else (None,)
    return [
        {"method": method} | ({"agg": agg} if agg else {}) for method in METHODS for agg in aggs
    ]


CHOICES = tuple((name, chosen) for name in NAMES for chosen in settings_of(name))


def assert_equal_to_fairlearn(rows: Rows, name: str, chosen: dict[str, str]) -> None:
    data = (rows.y_true, rows.y_pred)
    if name == "equalized_odds_ratio" and chosen["agg"] == "worst_case":
        # `min` of a NaN and a number is whichever comes first: see the test of it below
        theirs = frame(rows, *ODDS).ratio(method=chosen["method"]).min()
    else:
        theirs = theirs_of(name)(*data, **rows.options, **chosen)
    ours = getattr(fairness, name)(*data, **rows.options, **chosen)
    assert ours == pytest.approx(theirs, abs=1e-12, nan_ok=True), (name, chosen)


EMPTY_CELLS = [
    NO_POSITIVES,
    NO_NEGATIVES,
    NEVER_SELECTED,
    NO_FALSE_POSITIVE,
    NO_TRUE_POSITIVE,
    ONE_CLASS,
    ONE_GROUP,
    NOBODY_IN_ONE_CELL,
]


@pytest.mark.parametrize("rows", EMPTY_CELLS)
@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_empty_cells_are_what_fairlearn_makes_of_them(rows: Rows, half: int) -> None:
    """Every metric on half of the rows at first; the slow ones try the other half."""
    for place, (name, chosen) in enumerate(CHOICES):
        if (place + EMPTY_CELLS.index(rows)) % 2 != half:
            continue
        assert_equal_to_fairlearn(rows, name, chosen)


@settings(fixed, max_examples=50)
@given(labelled_rows(), st.sampled_from(CHOICES))
def test_every_metric_of_fairlearn_s_is_equalled(
    rows: Rows, choice: tuple[str, dict[str, str]]
) -> None:
    assert_equal_to_fairlearn(rows, *choice)


@pytest.mark.parametrize("method", METHODS)
def test_an_undefined_ratio_does_not_hide_the_other(method: str) -> None:
    """Where one of the two ratios is 0/0, fairlearn's worst case depends on which of them it is."""
    for rows, theirs in ((NO_FALSE_POSITIVE, "the other ratio"), (NO_TRUE_POSITIVE, "NaN")):
        data, options = (rows.y_true, rows.y_pred), {**rows.options, "method": method}
        other = fairlearn.equalized_odds_ratio(*data, **options, agg="mean")  # leaves NaN out
        assert 0 < other < 1
        worst = fairlearn.equalized_odds_ratio(*data, **options, agg="worst_case")
        assert worst == other if theirs == "the other ratio" else np.isnan(worst)
        for agg in ("worst_case", "mean"):
            assert fairness.equalized_odds_ratio(*data, **options, agg=agg) == pytest.approx(other)


@fixed
@given(labelled_rows())
@example(NO_POSITIVES)
@example(NEVER_SELECTED)
def test_group_rates_are_those_of_a_metric_frame(rows: Rows) -> None:
    ours = fairness.group_rates(rows.y_true, rows.y_pred, **rows.options)
    of_rows = (sklearn.accuracy_score, fairlearn.selection_rate, *ODDS, precision, npv)
    theirs = frame(rows, *of_rows).by_group
    theirs = theirs.dropna()  # it lists combinations that nobody has
    predictive = ["precision", "negative_predictive_value"]
    odds = ["true_positive_rate", "false_positive_rate"]
    assert list(ours.columns) == ["count", "accuracy", "selection_rate", *odds, *predictive]
    counted = Counter(rows.groups)
    assert ours.pop("count").tolist() == [counted[group] for group in sorted(counted)]
    assert ours.index.name == "group"
    names = [key if isinstance(key, str) else " & ".join(key) for key in theirs.index]
    assert list(ours.index) == names
    # a rate over no rows is 0 there, and NaN here
    np.testing.assert_allclose(
        np.nan_to_num(ours.to_numpy(float)), theirs.to_numpy(float), atol=1e-12
    )


@pytest.mark.parametrize("name", NAMES)
def test_labels_may_be_booleans_or_signs_as_in_fairlearn(name: str) -> None:
    rng = np.random.default_rng(0)
    y_true, y_pred, groups = rng.integers(0, 2, 40), rng.integers(0, 2, 40), rng.choice(4, 40)
    expected = theirs_of(name)(y_true, y_pred, sensitive_features=groups)
    ours: Callable[..., float] = getattr(fairness, name)
    assert 0 < expected < 1
    for low, high in ((False, True), (-1, 1), ("no", "yes"), (0.0, 1.0), (1, 2)):
        labels = np.array([low, high])
        data = labels[y_true], labels[y_pred]
        assert ours(*data, sensitive_features=groups) == pytest.approx(expected)
    columns = y_true[:, None], pd.Series(y_pred, index=rng.permutation(40), dtype="Int64")
    assert ours(*columns, sensitive_features=groups) == pytest.approx(expected)
    tensors = (torch.tensor(values) for values in (y_true, y_pred, groups))
    found = ours(next(tensors), next(tensors), sensitive_features=next(tensors))
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("label", "selected"), [(0, 0.0), (1, 1.0), (-1, 0.0), (True, 1.0), (False, 0.0)]
)
def test_a_single_label_is_read_as_fairlearn_reads_it(label: Any, selected: float) -> None:
    data = {"y_true": [label] * 3, "y_pred": [label] * 3, "sensitive_features": list("abb")}
    rates = fairness.group_rates(**data)
    assert rates["selection_rate"].tolist() == [selected] * 2
    assert rates["accuracy"].tolist() == [1.0, 1.0]
    theirs = fairlearn.demographic_parity_ratio(**data)
    assert fairness.demographic_parity_ratio(**data) == pytest.approx(theirs, nan_ok=True)
    theirs = fairlearn.equalized_odds_ratio(**data)
    assert np.isnan(theirs) == (label in (0, -1))  # 1: its other ratio is defined


def test_a_single_label_of_another_kind_counts_as_positive() -> None:
    data = (["yes"] * 3, ["yes"] * 3)
    assert fairness.demographic_parity_ratio(*data, sensitive_features=list("abb")) == 1.0
    assert fairness.accuracy(*data) == 1.0


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_a_group_of_weight_zero_takes_no_part() -> None:
    y_true, y_pred = [0, 1, 0, 1, 1, 0], [0, 1, 1, 1, 0, 0]
    weight = [1, 1, 2, 1, 0, 0]
    options = {"sensitive_features": list("aabbcc"), "sample_weight": weight}
    kept = {"sensitive_features": list("aabb"), "sample_weight": weight[:4]}
    for name in NAMES:
        for method in METHODS:
            ours = getattr(fairness, name)(y_true, y_pred, **options, method=method)
            expected = theirs_of(name)(y_true[:4], y_pred[:4], **kept, method=method)
            assert ours == pytest.approx(expected, nan_ok=True), (name, method)
            if name.startswith("demographic_parity"):  # fairlearn refuses the others
                theirs = theirs_of(name)(y_true, y_pred, **options, method=method)
                assert ours == pytest.approx(theirs)
    rates = fairness.group_rates(y_true, y_pred, **options)
    assert rates.loc["c"].isna().tolist() == [False, *[True] * 6]
    for function in (fairness.mean_prediction_difference, fairness.mean_error_difference):
        assert function(y_true, y_pred, **options) == function(y_true[:4], y_pred[:4], **kept)


def test_weights_of_any_size_do_not_cancel() -> None:
    y_true, y_pred, weight = [1, 0, 0, 0, 1], [1, 1, 1, 0, 1], [1e17, 1.0, 1.0, 3.0, 1.0]
    options = {"sensitive_features": list("aabba"), "sample_weight": weight}
    rates = fairness.group_rates(y_true, y_pred, **options)
    assert rates["false_positive_rate"].tolist() == [1.0, 0.25]
    assert fairness.equalized_odds_sum(y_true, y_pred, **options) == pytest.approx(1.75)


def test_equalized_odds_sum_by_hand() -> None:
    y_true = [1, 1, 1, 0, 0, 1, 1, 0]
    y_pred = [1, 1, 0, 1, 0, 1, 0, 1]  # a: TPR 2/3, FPR 1/2; b: TPR 1/2, FPR 1
    options = {"sensitive_features": list("aaaaabbb")}
    assert fairness.equalized_odds_sum(y_true, y_pred, **options) == pytest.approx(1 / 6 + 1 / 2)
    # more weight on the first row: TPR of a is 8/9, the rest stays
    weight = [7, 1, 1, 1, 1, 1, 1, 1]
    weighted = fairness.equalized_odds_sum(y_true, y_pred, **options, sample_weight=weight)
    assert weighted == pytest.approx(8 / 9 - 1 / 2 + 1 / 2)
    # a third group, c: TPR 0, FPR 3/4, is the new lowest TPR and lies between in FPR
    y_true, y_pred = [*y_true, 1, 0, 0, 0, 0], [*y_pred, 0, 1, 1, 1, 0]
    options = {"sensitive_features": list("aaaaabbbccccc")}
    assert fairness.equalized_odds_sum(y_true, y_pred, **options) == pytest.approx(2 / 3 + 1 / 2)
    both = fairness.equalized_odds_difference(y_true, y_pred, **options, agg="sum")
    assert both == pytest.approx(2 / 3 + 1 / 2)


@fixed
@given(labelled_rows(classes=("x", "y", "z")))
def test_more_than_two_classes_are_each_taken_against_the_rest(rows: Rows) -> None:
    classes = sorted({*rows.y_true, *rows.y_pred})
    shown = classes if len(classes) > 2 else [classes[-1]]  # the positive one of two
    for name in NAMES:
        for method in METHODS:
            for agg in ("worst_case", "mean", "sum"):
                if name.endswith("ratio") and agg == "sum":
                    continue
                ours = getattr(fairness, name)(
                    rows.y_true, rows.y_pred, **rows.options, method=method, agg=agg
                )
                expected = metric(rows, name, shown, method=method, agg=agg)
                assert ours == pytest.approx(expected, abs=1e-12, nan_ok=True), (name, method, agg)
    table = fairness.group_rates(rows.y_true, rows.y_pred, **rows.options)
    for name, conditions in RATES.items():
        if not fairness.RATES[name].shown:
            continue
        for c in shown if fairness.RATES[name].has_classes else shown[:1]:
            many = len(shown) > 1 and fairness.RATES[name].has_classes
            column = table[f"{name}[{c}]" if many else name]
            slow = [rate(rows, *conditions(c), group) for group in sorted(set(rows.groups))]
            np.testing.assert_allclose(np.nan_to_num(column), np.nan_to_num(slow), atol=1e-12)


@fixed
@given(labelled_rows(classes=(0, 1, 2)))
@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true:UserWarning")
@pytest.mark.filterwarnings("ignore:A single label was found:UserWarning")
def test_accuracies_are_scikit_learn_s(rows: Rows) -> None:
    data, weight = (rows.y_true, rows.y_pred), {"sample_weight": rows.weight}
    accuracy = sklearn.accuracy_score(*data, **weight)
    assert fairness.accuracy(*data, **weight) == pytest.approx(accuracy, abs=1e-12)
    balanced = sklearn.balanced_accuracy_score(*data, **weight)
    assert fairness.balanced_accuracy(*data, **weight) == pytest.approx(balanced, abs=1e-12)


numbers = st.floats(-1e3, 1e3, allow_subnormal=False)


@fixed
@given(
    st.lists(st.tuples(numbers, numbers, st.sampled_from("abc"), st.floats(0.1, 10)), min_size=1)
)
def test_regression_forms_are_gaps_of_means(rows: list[tuple[float, float, str, float]]) -> None:
    truth, predicted, groups, weight = (list(column) for column in zip(*rows, strict=True))

    def gap(values: list[float], weight: list[float]) -> float:
        means = []
        for group in set(groups):
            own = [i for i, g in enumerate(groups) if g == group]
            means.append(sum(values[i] * weight[i] for i in own) / sum(weight[i] for i in own))
        return max(means) - min(means)

    error = [p - t for t, p in zip(truth, predicted, strict=True)]
    for given_weight, w in ((None, [1.0] * len(rows)), (weight, weight)):
        options = {"sensitive_features": groups, "sample_weight": given_weight}
        ours = fairness.mean_prediction_difference(truth, predicted, **options)
        assert ours == pytest.approx(gap(predicted, w), abs=1e-9)
        ours = fairness.mean_error_difference(truth, predicted, **options)
        assert ours == pytest.approx(gap(error, w), abs=1e-9)


OK: dict[str, Any] = {
    "y_true": [0, 1, 0, 1],
    "y_pred": [0, 1, 1, 1],
    "sensitive_features": list("aabb"),
}
NAN = float("nan")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_pred": [0, 1]}, "`y_pred` must have one row per data point: expected 4, got 2"),
        ({"y_pred": []}, r"`y_pred` must be a non-empty vector, got an array of shape \(0,\)"),
        ({"y_true": 1}, r"`y_true` must be a non-empty vector, got an array of shape \(\)"),
        ({"y_true": np.zeros((4, 2))}, r"`y_true` must be .* got an array of shape \(4, 2\)"),
        ({"y_true": [0, 1, NAN, 1]}, "`y_true` must not hold missing .* but row 2 is nan: drop"),
        ({"y_pred": [0, np.inf, 0, 1]}, "`y_pred` must not hold .* infinite .* row 1 is inf"),
        ({"y_pred": [0, 1, None, 1]}, "`y_pred` must not hold missing .* row 2"),
        ({"y_true": ["n", NAN, "n", "y"]}, "`y_true` must not hold missing .* row 1"),
        ({"y_true": np.array([0, None, 1, 1], dtype=object)}, "`y_true` .* missing .* row 1"),
        ({"y_pred": np.ma.array([0, 1, 0, 1], mask=[0, 0, 0, 1])}, "`y_pred` .* row 3"),
        ({"y_pred": pd.Series([0, 1, None, 1], dtype="Int64")}, "`y_pred` .* row 2"),
        ({"y_true": torch.tensor([0, NAN, 0, 1])}, "`y_true` .* row 1"),
        ({"y_true": ["0", "1", "0", "1"]}, "labels of one kind, got a mixture of int and str:"),
        ({"y_true": np.array(["0", "1", "0", "1"])}, "labels of one kind"),
        ({"y_true": [0, "1", 0, 1]}, "labels of one kind"),
        ({"y_true": [-1, 0, 0, -1], "y_pred": [0, 0, 0, 0]}, "Labels -1 and 0 do not say which"),
        ({"sensitive_features": list("aab")}, "`sensitive_features` .* expected 4, got 3"),
        ({"sensitive_features": ["a", None, "b", "b"]}, "1 missing value"),
        ({"sensitive_features": []}, "`sensitive_features` .* expected 4, got 0"),
        ({"sample_weight": [1, 1, 1]}, "`sample_weight` must have .* expected 4, got 3"),
        ({"sample_weight": [1, 1, -1, 1]}, "`sample_weight` must not be negative"),
        ({"sample_weight": [0, 0, 0, 0]}, "`sample_weight` must not be all zero; pass None"),
        ({"sample_weight": [1, NAN, 1, 1]}, "`sample_weight` must not hold missing .* row 1"),
        ({"sample_weight": ["a", "b", "c", "d"]}, "`sample_weight` must be numbers, got 'a'"),
    ],
)
def test_inputs_that_cannot_be_measured_are_refused(change: dict[str, Any], message: str) -> None:
    arguments = OK | change
    for name in (*NAMES, "equalized_odds_sum", "group_rates"):
        with pytest.raises(InvalidInputError, match=message):
            getattr(fairness, name)(**arguments)
    if "sensitive_features" not in change:
        del arguments["sensitive_features"]
        for function in (fairness.accuracy, fairness.balanced_accuracy):
            with pytest.raises(InvalidInputError, match=message):
                function(**arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_true": [0.5]}, "`y_pred` must have one row per data point: expected 1, got 4"),
        ({"y_true": [0, 1, 2, NAN]}, "`y_true` must not hold missing or infinite .* row 3"),
        ({"y_pred": ["a", "b", "c", "d"]}, "`y_pred` must be numbers, got 'a'"),
        ({"sensitive_features": list("ab")}, "expected 4, got 2"),
        ({"sample_weight": [1.0]}, "expected 4, got 1"),
    ],
)
def test_regression_forms_check_as_much(change: dict[str, Any], message: str) -> None:
    for function in (fairness.mean_prediction_difference, fairness.mean_error_difference):
        with pytest.raises(InvalidInputError, match=message):
            function(**(OK | change))


@pytest.mark.parametrize("name", NAMES)
def test_unknown_choices_are_refused_with_the_known_ones(name: str) -> None:
    function = getattr(fairness, name)
    with pytest.raises(InvalidInputError, match=r"'between_groups', 'to_overall'.*, got 'max'"):
        function(**OK, method="max")
    known = r"'worst_case', 'mean'\]" if name.endswith("ratio") else r"'mean', 'sum'\]"
    with pytest.raises(InvalidInputError, match=f"`agg` must be one of .*{known}, got 'min'"):
        function(**OK, agg="min")
    if name.endswith("ratio"):
        with pytest.raises(InvalidInputError, match="got 'sum'"):
            function(**OK, agg="sum")
