"""What every baseline must do, whichever it is."""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fairij.baselines import BASELINES, Recipe, make_baseline
from fairij.datasets import Split
from fairij.errors import InvalidInputError
from fairij.fairness import CONSTRAINTS, demographic_parity_difference
from fairij.fairness import rates as tables

QUICK: dict[str, Any] = {
    "gapreg": {"recipe": Recipe(epochs=2, learning_rate=1e-2)},
    "fairmixup": {"recipe": Recipe(epochs=2, learning_rate=1e-2)},
    "hgr": {"recipe": Recipe(epochs=2, learning_rate=1e-2)},
    "exponentiated_gradient": {
        "recipe": Recipe(start="model", epochs=1, batch_size=600, checkpoint="last"),
        "max_iter": 2,
    },
}
CASES = [
    (name, constraint)
    for name, method in BASELINES.items()
    for constraint in (method.constraints or (None,))
]


@pytest.mark.parametrize(("name", "constraint"), CASES)
def test_fit_and_predict(trial: Any, name: str, constraint: str | None) -> None:
    before = copy.deepcopy(trial.model.state_dict())
    method = make_baseline(name, constraint=constraint, seed=3, **QUICK.get(name, {}))
    first, again = (method.fit(trial.model, trial.train, trial.validation) for _ in range(2))
    s = trial.test.s if method.needs_group_at_test else None
    labels, scores = first.predict(trial.test.X, s), first.predict_proba(trial.test.X, s)
    assert labels.shape == (len(trial.test),)
    assert set(np.unique(labels)) == {0, 1}
    np.testing.assert_allclose(scores.sum(1), 1)
    assert scores.min() >= 0
    np.testing.assert_array_equal(labels, again.predict(trial.test.X, s))
    assert first.randomised == method.randomised
    assert first.needs_group == method.needs_group_at_test
    if not method.randomised:
        np.testing.assert_array_equal(labels, scores[:, 1] > 0.5)
    for key, value in trial.model.state_dict().items():  # the model given stays as it was
        assert torch.equal(value, before[key])


@pytest.mark.parametrize("name", [n for n, m in BASELINES.items() if m.needs_group_at_test])
def test_the_group_is_asked_for(trial: Any, name: str) -> None:
    predictor = make_baseline(name).fit(trial.model, trial.train, trial.validation)
    with pytest.raises(InvalidInputError, match="`s` must hold the group"):
        predictor.predict(trial.test.X)
    with pytest.raises(InvalidInputError, match="0 to 1; got 0 to 2"):
        predictor.predict(trial.test.X[:3], [0, 1, 2])


def test_sampled_labels_have_the_expected_rates(trial: Any) -> None:
    method = make_baseline("relaxed_thresholds", constraint="equalized_odds")
    predictor = method.fit(trial.model, trial.train, trial.validation)
    test = trial.test
    expected = predictor.expected_counts(test.X, test.y, test.s)
    y = test.y.astype(int)
    sampled = [
        tables.confusion_counts(
            y, predictor.predict(test.X, test.s, seed=seed), test.s, n_groups=2, n_classes=2
        )
        for seed in range(100)
    ]
    spread = np.std(sampled, 0) / 10
    assert spread.max() > 0  # it does draw
    assert (np.abs(np.mean(sampled, 0) - expected) <= 4 * spread + 1e-9).all()


def test_expected_counts_of_a_deterministic_one_are_its_counts(trial: Any) -> None:
    predictor = make_baseline("erm").fit(trial.model, trial.train, trial.validation)
    test = trial.test
    table = predictor.expected_counts(test.X, test.y, test.s)
    gap = demographic_parity_difference(
        test.y, predictor.predict(test.X), sensitive_features=test.s
    )
    metric = CONSTRAINTS["demographic_parity"].metric
    assert metric is not None
    assert float(metric(table)) == pytest.approx(gap)
    with torch.no_grad():
        z = trial.model(torch.as_tensor(test.X))[:, 0].numpy()
    np.testing.assert_array_equal(predictor.predict(test.X), z > 0)


@pytest.mark.parametrize("name", ["gapreg", "hgr", "fst", "linear_post", "relaxed_thresholds"])
def test_more_than_two_groups(three_groups: Any, name: str) -> None:
    settings = {**QUICK.get(name, {})}
    method = make_baseline(name, constraint="demographic_parity", **settings)
    predictor = method.fit(three_groups.model, three_groups.train, three_groups.validation)
    test = three_groups.test
    assert predictor.expected_counts(test.X, test.y, test.s).shape == (3, 2, 2)


def test_wrong_settings_are_named(trial: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"`name` must be one of .*'gapreg'"):
        make_baseline("gap")
    with pytest.raises(InvalidInputError, match="`constraint` of gapreg must be one of"):
        make_baseline("gapreg", constraint="parity")
    with pytest.raises(InvalidInputError, match=r"has no trade-off; got 0\.1"):
        make_baseline("hps", value=0.1)
    with pytest.raises(InvalidInputError, match="`tolerance`"):
        make_baseline("fst", value=-1.0)
    with pytest.raises(InvalidInputError, match="`start` must be one of"):
        Recipe(start="warm")  # type: ignore[arg-type]
    three = replace(trial.train, s=trial.train.s + (trial.train.X[:, 1] > 1))
    with pytest.raises(InvalidInputError, match="two groups for FairMixup, got 3"):
        make_baseline("fairmixup").fit(trial.model, three, three)
    empty = Split(trial.train.X, trial.train.y, np.where(trial.train.y == 1, 1, trial.train.s))
    with pytest.raises(InvalidInputError, match="group 0 has none"):
        make_baseline("gapreg", constraint="equal_opportunity").fit(trial.model, empty, empty)
    with pytest.raises(InvalidInputError, match="got 3: baselines are for two classes"):
        make_baseline("erm").fit(nn.Linear(4, 3), trial.train, trial.validation).predict(
            trial.test.X
        )


def test_two_outputs_are_as_one_logit(trial: Any) -> None:
    """Softmax over (z0, z1) is a sigmoid of z1 - z0."""
    two = nn.Linear(4, 2)
    one = nn.Linear(4, 1)
    with torch.no_grad():
        one.weight.copy_(two.weight[1:] - two.weight[:1])
        one.bias.copy_(two.bias[1:] - two.bias[:1])
    scores = [
        make_baseline("erm").fit(m, trial.train, trial.validation).predict_proba(trial.test.X)
        for m in (one, two)
    ]
    np.testing.assert_allclose(*scores, atol=1e-6)


@pytest.mark.parametrize("name", [n for n, m in BASELINES.items() if m.trade_off])
def test_sweeps_go_from_accurate_to_fair(name: str) -> None:
    trade_off = BASELINES[name].trade_off
    assert trade_off is not None
    values = list(trade_off.sweep)
    fairer_when_larger = trade_off.parameter == "strength"
    assert values == sorted(values, reverse=not fairer_when_larger)
    for value in values:
        method: Any = make_baseline(name, value=value)
        assert getattr(method, trade_off.parameter) == value


@pytest.mark.parametrize("name", ["hps", "exponentiated_gradient"])
def test_without_fairlearn_the_cure_is_named(
    trial: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("fairlearn", "fairlearn.postprocessing", "fairlearn.reductions"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install 'fairij\[baselines\]'"):
        make_baseline(name).fit(trial.model, trial.train, trial.validation)
