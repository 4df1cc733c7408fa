"""`fairij audit` as a gate: exit codes, files, the hook of pre-commit and the action."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import yaml

from plain_files import Run

ROOT = Path(__file__).parents[2]
ASKED = ("audit", "--table", "said.csv", "--label", "y", "--score", "p", "--sensitive", "sex")
FILES = ("--junit", "out/j.xml", "--markdown", "out/m.md", "--sarif", "out/s.json")


@pytest.fixture
def said(files: Path) -> Path:
    """Predictions that select 30 % of one group and 50 % of the other."""
    n = 1000
    sex = np.repeat(["f", "m"], n)
    selected = np.concatenate([np.arange(n) < 300, np.arange(n) < 500])
    p = np.where(selected, 0.8, 0.2)
    table = {"sex": sex, "y": np.tile([0, 1, 1, 0], n // 2), "p": p}
    pd.DataFrame(table).to_csv(files / "said.csv", index=False)
    (files / "out").mkdir()
    return files


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--max-gap", "0.3"), 0),
        (("--max-gap", "demographic_parity=0.1"), 5),
        (("--max-gap", "0.19", "--certain"), 0),
        (("--max-gap", "0.19", "--certain", "--confidence", "0.01"), 5),
        (("--min-ratio", "0.8"), 5),
        (("--min-ratio", "0.5", "--max-gap", "equal_opportunity=0.5"), 0),
        (("--max-gap", "0.3", "--min-rows", "1001"), 5),
        (("--max-gap", "0.3", "--require-group", "x"), 5),
    ],
)
def test_the_exit_code_says_it(run: Run, said: Path, options: tuple[str, ...], code: int) -> None:
    found = json.loads(run(*ASKED, *options, *FILES, "--json", code=code).stdout)
    assert found["gate"]["passed"] == (code == 0)
    suite = ElementTree.parse(said / "out" / "j.xml").getroot()[0]
    faults = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    assert (faults == 0) == (code == 0)
    assert ("✅" in (said / "out" / "m.md").read_text(encoding="utf-8").partition("\n")[0]) == (
        code == 0
    )
    levels = {
        r["level"] for r in json.loads((said / "out/s.json").read_text())["runs"][0]["results"]
    }
    assert ("error" in levels) == (code == 5)


def test_the_comment_names_the_column_of_labels_and_of_groups(run: Run, said: Path) -> None:
    table = pd.read_csv(said / "said.csv")
    table.assign(sex=(table["sex"] == "f").astype(int)).to_csv(said / "said.csv", index=False)
    run(*ASKED, "--max-gap", "0.3", *FILES)
    text = html.unescape((said / "out" / "m.md").read_text(encoding="utf-8"))
    assert "“y = 1” to 50 of 100 rows in the group sex 0" in text


def test_what_could_not_be_measured_never_passes(run: Run, said: Path) -> None:
    table = pd.read_csv(said / "said.csv")
    table.loc[table["sex"] == "f", "y"] = 0
    table.to_csv(said / "said.csv", index=False)
    shown = run(*ASKED, "--max-gap", "equal_opportunity=1", "--certain", code=5).stdout
    assert "It could not be measured." in shown
    assert "'f' has no rows with label 1" in shown
    assert "The gate has failed: 0 of 1 limits are kept." in shown


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--max-gap", "equal_oportunity=0.1"), "Did you mean 'equal_opportunity'?"),
        (("--max-gap", "five"), "--max-gap must be a constraint and a number"),
        (("--max-gap", "0.1", "--max-gap", "0.2"), "names demographic_parity twice"),
        (("--min-ratio", "80"), "--min-ratio of demographic_parity must be above 0 and at most 1"),
        (("--max-gap", "mean_error=1"), "does not measure mean_error"),
        (("--certain",), "--certain is about a gate, and there is no limit"),
        (("--junit", "j.xml"), "--junit is about a gate, and there is no limit"),
        (("--max-gap", "0.1", "--junit", "a", "--sarif", "./a"), "must be two files"),
        (("--max-gap", "0.1", "--junit", "said.csv", "--force"), "--junit must not be"),
    ],
)
def test_bad_limits_are_refused_before_the_work(
    run: Run, said: Path, options: tuple[str, ...], says: str
) -> None:
    result = run(*ASKED, *options, code=2)
    assert says in result.stderr
    assert result.stdout == ""


def test_a_model_and_a_settings_file(run: Run, said: Path) -> None:
    (said / "gate.toml").write_text(
        'model = "model.txt"\ntable = "test.csv"\nlabel = "repaid"\nsensitive = ["sex"]\n'
        'max-gap = ["demographic_parity=0.01"]\njunit = "junit.xml"\n'
    )
    run("audit", "--config", "gate.toml", code=5)
    run("audit", "--config", "gate.toml", "--max-gap", "0.99", "--force")
    assert 'failures="0"' in (said / "junit.xml").read_text()


def environment(**more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    source = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PATH": path, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", **more}


def hook() -> list[str]:
    """The command of the hook, as pre-commit reads it."""
    (read,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert shlex.split(read["entry"])[0] in program
    assert read["pass_filenames"] is False
    matched = re.compile(read["files"])
    assert [bool(matched.search(name)) for name in ("a/said.csv", "model.txt", "x.py")] == [1, 1, 0]
    return shlex.split(read["entry"])


def test_the_hook_of_pre_commit(run: Run, said: Path) -> None:
    shown = run(*hook()[1:], *ASKED[1:], "--max-gap", "0.1", code=5).stdout
    assert "Not kept: demographic parity gap at most 0.1." in shown


@pytest.mark.slow
def test_the_hook_of_pre_commit_runs(said: Path) -> None:
    done = subprocess.run(  # as pre-commit runs it: the entry, then the arguments of its user
        [*hook(), *ASKED[1:], "--max-gap", "0.1"],
        cwd=said, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    assert "Not kept: demographic parity gap at most 0.1." in done.stdout


EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")


class Action:
    """The composite action, its expressions filled in and its steps run as a runner does."""

    def __init__(self, here: Path, /, **inputs: str) -> None:
        self.parts: Any = yaml.safe_load((ROOT / "action.yml").read_text())
        asked = {name.replace("_", "-"): value for name, value in inputs.items()}
        assert set(asked) <= set(self.parts["inputs"])
        lacking = [
            n for n, i in self.parts["inputs"].items() if i.get("required") and n not in asked
        ]
        assert lacking == []
        known = {name: one.get("default", "") for name, one in self.parts["inputs"].items()}
        self.values = {f"inputs.{name}": value for name, value in (known | asked).items()}
        self.values["github.action_path"] = str(ROOT)
        self.here, self.output, self.summary = here, here / "output", here / "summary"
        self.output.touch()
        self.summary.touch()

    def run(self) -> list[int]:
        """The exit codes of the steps that run; after a failure only those that always do."""
        codes: list[int] = []
        for step in self.parts["runs"]["steps"]:
            assert step["shell"] == "bash"
            assert "${{" not in step["run"]  # inputs are never put into a script
            always = step.get("if") == "always()"
            if (
                step.get("if") == "inputs.install == 'true'"
                and self.values["inputs.install"] != "true"
            ):
                continue
            if any(codes) and not always:
                continue
            filled = {name: self.filled(str(text)) for name, text in step["env"].items()}
            files = {"GITHUB_OUTPUT": str(self.output), "GITHUB_STEP_SUMMARY": str(self.summary)}
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=self.here, env=environment(**filled, **files), capture_output=True,
                text=True, check=False,
            )  # fmt: skip
            codes.append(done.returncode)
            self.said = done.stdout + done.stderr
        return codes

    def filled(self, text: str) -> str:
        return EXPRESSION.sub(lambda found: self.values[found[1]], text)


@pytest.mark.parametrize(
    ("bound", "code"), [("0.1", 5), pytest.param("0.3", 0, marks=pytest.mark.slow)]
)
def test_the_steps_of_the_action_run(said: Path, bound: str, code: int) -> None:
    table = pd.read_csv(said / "said.csv")
    table.rename(columns={"sex": "sex $(touch hacked)"}).to_csv(said / "said.csv", index=False)
    action = Action(
        said, table="said.csv", label="y", score="p", sensitive="\n  sex $(touch hacked)\n",
        max_gap=f"demographic_parity={bound}\nequal_opportunity=0.9", folder="a b/fairness",
        arguments="--title=Loans; touch hacked", install="false",
    )  # fmt: skip
    assert action.run() == [code, 0]
    written = {path.name for path in (said / "a b" / "fairness").iterdir()}
    assert written == {"audit.html", "audit.md", "audit.sarif", "junit.xml"}
    last = action.output.read_text().splitlines()[-1]
    assert last.startswith(f"passed={'true' if code == 0 else 'false'}")
    assert ("❌" if code else "✅") in action.summary.read_text(encoding="utf-8")
    assert "Loans; touch hacked" in (said / "a b/fairness/audit.html").read_text(encoding="utf-8")
    assert not (said / "hacked").exists()
    expression = action.parts["outputs"]["page"]["value"]
    assert (said / action.filled(expression)).is_file()


@pytest.mark.slow
def test_a_mistake_in_the_action_fails_too(said: Path) -> None:
    action = Action(said, table="said.csv", label="y", score="p", sensitive="sex", install="false")
    assert action.run() == [2, 0]  # no limit
    assert action.output.read_text() == "passed=false\n"
