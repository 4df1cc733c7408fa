"""The page on extending: its blocks run, do what it says, and are as short as it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from blocks import blocks

BLOCKS = blocks("extending.md")


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """The names that the blocks leave behind, run one after the other."""
    scope: dict[str, Any] = {"__name__": "page"}
    for block in BLOCKS:
        exec(compile(block.text, "extending.md", "exec", dont_inherit=True), scope)
    return scope


def test_each_extension_is_under_thirty_lines() -> None:
    assert len(BLOCKS) == 9
    lines = [sum(bool(line.strip()) for line in block.text.splitlines()) for block in BLOCKS]
    assert max(lines) < 30


def test_the_metric_is_made_small(made: dict[str, Any]) -> None:
    assert made["before"] > 0.05
    assert made["after"] < 0.6 * made["before"]  # the default closes what costs little
    assert made["fair"].edit_.settings["constraint"] == "gap_of_better_offers"


def test_the_family_is_edited_as_what_it_is(made: dict[str, Any]) -> None:
    fair, card = made["fair_card"], made["card"]
    assert type(fair.estimator_) is type(card)
    name = "demographic_parity_difference"
    assert fair.after_[name] < 0.6 * fair.before_[name]
    assert fair.diagnostics_["gradient_norm"] < 1e-8  # the block trains it to the minimum
    X = made["X"][made["held"]]
    z = fair.estimator_.outputs(X)
    np.testing.assert_array_equal(fair.predict(X), (z.numpy() > 0).astype(int))
    assert not np.array_equal(z, card.outputs(X))


def test_the_solver_agrees_with_our_own(made: dict[str, Any]) -> None:
    ours, theirs = made["by_cg"], made["by_minres"]
    np.testing.assert_allclose(theirs.influence_, ours.influence_, rtol=0.02, atol=1e-7)
    assert theirs.diagnostics_["solver"] == "minres"
    assert theirs.diagnostics_["influence_residual"] < 1e-2


def test_the_search_and_the_rule_do_what_they_say(made: dict[str, Any]) -> None:
    name = "demographic_parity_difference"
    straight, cheap = made["straight"], made["cheap"]
    assert straight.diagnostics_["search"] == "straight"
    assert straight.after_[name] < 0.6 * straight.before_[name]
    assert cheap.after_[name] < cheap.before_[name]
    assert cheap.after_["accuracy"] > made["by_cg"].after_["accuracy"]
