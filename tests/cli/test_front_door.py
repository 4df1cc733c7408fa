"""Help, version and completion load no heavy library; names in the help are those of the tables."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import get_args

import pytest
import typer.main
from typer.testing import CliRunner

import fairij
from fairij.cli import app
from fairij.cli.options import choices
from fairij.fairness import CONSTRAINTS
from fairij.method.preparation import Drop, ValidationUse
from fairij.method.search import SEARCHES
from fairij.solvers import SOLVERS

HEAVY = ("torch", "sklearn", "pandas", "scipy", "numpy", "altair", "pyarrow")
LISTING = ("influence", "mitigate", "demo")  # their help lists constraints
COMMANDS = [
    [name, inner] if hasattr(command, "commands") else [name]
    for name, command in typer.main.get_command(app).commands.items()  # type: ignore[attr-defined]
    for inner in getattr(command, "commands", [""])
]
ASK = """
import json, os, sys
from typer.testing import CliRunner
from fairij.cli import app
runner, said = CliRunner(), []
for asked in json.loads(sys.argv[1]):
    result = runner.invoke(app, asked["words"], env=asked["env"], prog_name="fairij")
    said.append([result.exit_code, result.output])
loaded = [name for name in json.loads(sys.argv[2]) if name in sys.modules]
print(json.dumps({"said": said, "loaded": loaded}))
"""


def fresh(code: str, *arguments: str) -> str:
    """What a new process prints."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_help_version_and_completion_are_light() -> None:
    complete = {"_FAIRIJ_COMPLETE": "complete_bash", "COMP_WORDS": "fairij mit", "COMP_CWORD": "1"}
    asked = [{"words": words, "env": {}} for words in (["--version"], ["--help"])]
    asked += [
        {"words": [*words, "--help"], "env": {}} for words in COMMANDS if words[0] not in LISTING
    ]
    asked.append({"words": [], "env": complete})
    found = json.loads(fresh(ASK, json.dumps(asked), json.dumps(HEAVY)))
    assert [code for code, _ in found["said"]] == [0] * len(asked)
    assert found["said"][0][1] == f"fairij {fairij.__version__}\n"
    assert found["said"][-1][1] == "mitigate\n"
    assert found["loaded"] == []


def test_help_that_lists_constraints_loads_numpy_at_most() -> None:
    asked = [{"words": [name, "--help"], "env": {}} for name in LISTING]
    assert json.loads(fresh(ASK, json.dumps(asked), json.dumps(HEAVY)))["loaded"] == ["numpy"]


IMPORTS = """
import importlib, json, sys
import fairij

def loaded():
    return sorted(name for name in json.loads(sys.argv[1]) if name in sys.modules)

dir(fairij)
found = {"at first": loaded()}
from fairij import FairIJ
found["with a name"] = loaded()
from sklearn.linear_model import LinearRegression
fairij.models.adapt(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]))
found["with a model"] = loaded()
for room in json.loads(sys.argv[2]):
    for name in [n for n in sys.modules if n.partition(".")[0] == "fairij"]:
        del sys.modules[name]
    importlib.import_module("fairij." + room)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def imported() -> dict[str, list[str]]:
    """Which libraries a new process has loaded; at its end, every room is imported first."""
    rooms = sorted({*fairij._NAMES, *fairij._ROOMS, "cli", "method", "scale", "storage"})
    watched = [*HEAVY, "lightgbm", "xgboost"]
    return dict(json.loads(fresh(IMPORTS, json.dumps(watched), json.dumps(rooms))))


def test_the_library_is_loaded_when_a_name_is_used(imported: dict[str, list[str]]) -> None:
    assert imported["at first"] == []
    assert "torch" in imported["with a name"]


def test_libraries_are_imported_only_for_their_own_models(imported: dict[str, list[str]]) -> None:
    assert "sklearn" in imported["with a model"]
    assert not {"lightgbm", "xgboost"} & set(imported["with a model"])


def test_any_room_can_be_imported_first(imported: dict[str, list[str]]) -> None:
    """No room relies on another one that came before it: the process lived to its end."""
    assert list(imported) == ["at first", "with a name", "with a model"]


def test_every_public_name_is_there_and_no_other() -> None:
    for name in fairij.__all__:
        assert getattr(fairij, name) is not None
    assert set(fairij.__all__) <= set(dir(fairij))
    loaded = {name for names in fairij._NAMES.values() for name in names.split()}
    assert set(fairij.__all__) == {*loaded, *fairij._ROOMS, "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fairij.nothing


def test_the_help_lists_every_name_of_the_tables() -> None:
    shown = CliRunner().invoke(app, ["mitigate", "--help"], env={"COLUMNS": "200"}).output
    shown = " ".join(shown.replace("│", " ").split())
    for names in ("constraints", "solver", "curvature", "search", "loss"):
        assert f"{', '.join(choices()[names])}." in shown
    for name in (*get_args(Drop), *get_args(ValidationUse)):
        assert name in shown


def test_a_solver_and_a_search_are_known_by_the_names_of_their_tables() -> None:
    assert choices()["solver"] == tuple(SOLVERS)
    assert choices()["search"] == tuple(SEARCHES) == tuple(s.name for s in SEARCHES.values())
    assert choices()["constraints"] == tuple(CONSTRAINTS)
