"""One vocabulary: the command line and Python have the same words, and former ones still work."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any, get_args

import pytest
import typer.main
from sklearn.base import clone
from typer.testing import CliRunner

from fairij import CONSTRAINTS, CURVATURES, LOSSES, SOLVERS, FairIJ
from fairij.cli import app
from fairij.cli.former import NAMES, in_todays_words, renamed_keys
from fairij.cli.options import EditOptions
from fairij.cli.registration import MOST_SET, PANELS
from fairij.errors import FairIJWarning, InvalidInputError
from fairij.fairness.rates import ConstraintName
from fairij.method.curvature import CurvatureName
from fairij.method.rules import RULES, RuleName
from fairij.method.search import SEARCHES, SearchName
from fairij.method.selection import BUDGETED, Measure
from fairij.models.losses import LossName
from fairij.solvers import SolverName

# options that are parameters of the rule of choice, the search or `BlackBox`
ELSEWHERE = {
    *("budget", "accuracy_budget", "target_gap", "target_ratio", "slack"),
    *("max_k", "scale", "black_box", "correction"),
}


@pytest.mark.parametrize(
    ("names", "known"),
    [
        (ConstraintName, CONSTRAINTS), (SolverName, SOLVERS), (SearchName, SEARCHES),
        (RuleName, RULES), (CurvatureName, CURVATURES), (LossName, LOSSES), (Measure, BUDGETED),
    ],
)  # fmt: skip
def test_type_checkers_know_the_names_of_the_tables(names: Any, known: Any) -> None:
    assert get_args(names) == tuple(known)


def test_settings_of_an_edit_have_the_names_of_python() -> None:
    options = {field.name for field in dataclasses.fields(EditOptions)}
    assert options - ELSEWHERE <= set(inspect.signature(FairIJ).parameters)
    assert options >= ELSEWHERE


def test_a_former_parameter_still_works() -> None:
    with pytest.warns(FairIJWarning, match="`validation` is called `validation_use` now"):
        made = FairIJ(None, validation="split")
    assert made.validation_use == "split"
    with pytest.warns(FairIJWarning, match="`validation_use` now"):
        made.set_params(validation="cross_fit")
    assert clone(FairIJ(None, validation_use="cross_fit")).validation_use == made.validation_use
    assert "validation" not in made.get_params()
    with pytest.raises(InvalidInputError, match="`validation_use` must be given once"):
        FairIJ(None, validation="split", validation_use="split")
    with pytest.raises(TypeError, match="validations"):
        FairIJ(None, validations="split")


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("--seed 3 --reuse=split", "--random-state 3 --validation-use=split"),
        ("--constraint equal_opportunity", "--constraints equal_opportunity"),
        ("--random-state 3 --label seed", "--random-state 3 --label seed"),
        ("--out x -- --seed", "--out x -- --seed"),
    ],
)
def test_a_former_option_is_read_as_the_one_of_today(given: str, read: str) -> None:
    words, replaced = in_todays_words(given.split(), NAMES.values())
    assert words == read.split()
    assert bool(replaced) == (given != read)
    assert in_todays_words(given.split(), ["seed", "reuse", "constraint"])[0] == given.split()


def test_keys_of_a_settings_file() -> None:
    assert renamed_keys({"seed": 1, "label": "y"}) == {"random_state": 1, "label": "y"}
    assert renamed_keys({"seed": 1, "random_state": 2}) == {"random_state": 2}


def test_what_most_people_set_comes_first_and_the_rest_is_in_boxes() -> None:
    for command in typer.main.get_command(app).commands.values():  # type: ignore[attr-defined]
        boxes = [
            getattr(p, "rich_help_panel", None)
            for p in getattr(command, "params", [])
            if p.name != "help"
        ]
        order = [None, *dict.fromkeys(PANELS.values())]
        assert boxes == sorted(boxes, key=order.index)
        named = [p.name for p in getattr(command, "params", []) if p.name in MOST_SET]
        assert named == [name for name in MOST_SET if name in named]


def test_a_former_option_and_a_former_key_lead_to_a_note(tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text('model = "m"\ntrain = "t"\nlabel = "y"\nsensitive = ["s"]\nseed = 3\n')
    asked = ["mitigate", "--config", str(settings), "--reuse", "maybe", "--out", str(tmp_path)]
    found = CliRunner().invoke(app, asked)
    said = " ".join(found.output.split())
    assert found.exit_code == 2
    assert "--validation-use must be one of auto, reuse, split, cross_fit; got 'maybe'." in said
    assert "note: --reuse is called --validation-use now; the former name still works." in said
    assert "is called 'random_state' now; the former name still works." in said
