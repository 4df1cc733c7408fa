"""What pages say of the library is true: names and options exist, and examples run."""

from __future__ import annotations

import ast
import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.main
from blocks import ROOT, Block, blocks

from biased import QUICK, fitted, problem
from fairij import CONSTRAINTS, SOLVERS, FairIJ
from fairij.cli import app
from fairij.method.curvature import CURVATURES
from fairij.method.rules import RULES
from fairij.method.search import SEARCHES
from fairij.report import checks, outcome_checks
from fairij.report.page import SECTIONS

PAGES = sorted(path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md"))
BLOCKS = [(page, block) for page in PAGES for block in blocks(page)]
COMMANDS: Any = typer.main.get_command(app)


def of_kind(kind: str) -> list[Any]:
    found = [(page, block) for page, block in BLOCKS if block.kind == kind]
    return [pytest.param(block, id=f"{page}-{at}") for at, (page, block) in enumerate(found)]


@pytest.mark.parametrize("block", of_kind("python"))
def test_imports_of_ours_exist(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("fairij"):
            module = import_module(str(node.module))
            for alias in node.names:
                name = alias.name.replace("*", "__all__")
                assert hasattr(module, name), f"{node.module}.{name}"


@pytest.mark.parametrize("block", of_kind("bash"))
def test_commands_and_their_options_exist(block: Block) -> None:
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.partition(" || ")[0], comments=True)
        if not words or words[0] != "fairij":
            continue
        command = COMMANDS.commands[words[1]]
        if hasattr(command, "commands"):
            command = command.commands[words[2]]
        known = {name for parameter in command.params for name in parameter.opts}
        asked = {word for word in words if word.startswith("--")}
        assert asked <= known | {"--help"}, line


@pytest.mark.parametrize("page", ["models/torch.md", "models/scikit-learn.md"])
def test_examples_of_the_families_run(page: str) -> None:
    data = problem()
    scope: dict[str, Any] = {
        "module": fitted(dtype=torch.float32),
        **{"X": data.X, "y": data.y, "X_val": data.X_val, "y_val": data.y_val},
        "groups": data.sex_val,
    }
    (block,) = (block for block in blocks(page) if block.kind == "python")
    before = {name: tensor.clone() for name, tensor in scope["module"].state_dict().items()}
    exec(block.text.replace("weight_decay=1e-4", "weight_decay=1e-2"), scope)
    gap = "demographic_parity_difference"
    # the default closes what costs little
    assert scope["fair"].after_[gap] < 0.8 * scope["fair"].before_[gap]
    for name, tensor in scope["module"].state_dict().items():
        assert torch.equal(tensor, before[name])


def test_another_edit_than_the_rules_can_be_taken_as_the_page_says() -> None:
    data, model = problem(), fitted()
    fair = data.fit(FairIJ(model, search=QUICK, damping=(1e-2, 1e-1), weight_decay=1e-2))
    (block,) = (block for block in blocks("choosing.md") if "pareto" in block.text)
    scope: dict[str, Any] = {"fair": fair, "model": model}
    exec(block.text, scope)
    row, other = scope["row"], scope["other"].set_params(weight_decay=1e-2)
    data.fit(other)
    taken = other.candidates_.iloc[other.chosen_]
    assert (taken["k"], taken["scale"], taken["damping"]) == tuple(row[["k", "scale", "damping"]])
    assert taken["gap"] == pytest.approx(row["gap"], abs=0.02)


@pytest.mark.parametrize("table", [SOLVERS, SEARCHES], ids=["solvers", "searches"])
def test_choosing_names_all_there_is(table: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8").replace('"', "")
    assert [name for name in table if f"`{name}`" not in text] == []


NAMED = {
    "constraints": CONSTRAINTS,
    "curvature": CURVATURES,
    "search": SEARCHES,
    "selection": RULES,
    "solver": SOLVERS,
}


@pytest.mark.parametrize("page", [*PAGES, "../README.md"])
def test_what_a_page_names_exists(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for key, name in re.findall(r'\b(\w+)="(\w+)"', text):
        assert name in NAMED.get(key, name), f'{key}="{name}"'
    for name in re.findall(r"`fairij((?:\.\w+)+)", text):
        found: Any = import_module("fairij")
        for part in name.split(".")[1:]:
            if not hasattr(found, part):
                found = import_module(f"{found.__name__}.{part}")
            else:
                found = getattr(found, part)
    for path in re.findall(r"`([a-z_/]+/[a-z_/]*\.(?:py|json|md))`", text):
        assert (ROOT / path).exists() or (ROOT / "src" / "fairij" / path).exists(), path


def test_the_fit_that_is_drawn_goes_through_files_that_exist() -> None:
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    drawn = re.findall(
        r"(?<![\w/])(?:fairness|data|models|method|solvers|storage|scale)/[a-z_/]+\.py", text
    )
    assert len(set(drawn)) > 20
    assert [path for path in set(drawn) if not (ROOT / "src" / "fairij" / path).exists()] == []


def test_choosing_names_only_constraints_that_exist() -> None:
    text = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    table = text[text.index("| `constraints=`") : text.index('"Accepted" means')]
    cells = [line.split("|")[1] for line in table.splitlines()[2:] if line.startswith("|")]
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert "demographic_parity" in named
    assert named <= set(CONSTRAINTS)


def test_the_page_on_the_report_names_its_sections_and_questions() -> None:
    text = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    assert [title for _, title in SECTIONS if f"**{title}" not in text] == []
    files = [Path(str(module.__file__)) for module in (checks, outcome_checks)]
    questions = set(re.findall(r'"([A-Z][^"\n]*\?)"', "".join(f.read_text() for f in files)))
    assert len(questions) == 13
    assert [question for question in questions if f"| {question} |" not in text] == []
