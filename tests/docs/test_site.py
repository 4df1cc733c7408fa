"""The site is built without a warning, and asks nothing of the network when it is read."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from blocks import ROOT

pytest.importorskip("mkdocs")


def hook(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "hooks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_formulas_become_mathml() -> None:
    pytest.importorskip("latex2mathml")
    made = hook("mathematics").on_page_content(
        '<p><span class="arithmatex">\\(a &lt; b\\)</span></p><div class="arithmatex">\\[c\\]</div>'
    )
    assert "arithmatex" not in made
    assert made.count("<math") == 2
    assert 'display="block"' in made


def test_the_command_line_page_has_every_command_and_default() -> None:
    made = hook("commands").on_page_markdown("<!-- commands -->")
    for name in ("audit", "mitigate", "datasets fetch"):
        assert f"## fairij {name}\n" in made
    assert re.search(r"\| `--table` \| .+ \| required \|\n", made)
    assert re.search(r"\| `--random-state` \| .+ \| `0` \|\n", made)


def test_the_command_line_page_can_be_read_without_the_site() -> None:
    commands = hook("commands")
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert commands.overview() in page
    assert commands.exit_codes() in page
    for name in ("mitigate", "datasets fetch", "reproduce"):
        assert f"| `fairij {name}` |" in page
    assert "| 130 |" in page


def test_tables_are_those_of_the_records() -> None:
    records = hook("records")
    found = json.loads((records.RESULTS / "engine.json").read_text())
    row = next(row for row in found["rows"] if row["name"] == "fairij GGN CG default")
    assert f"| fairij GGN CG default | {row['seconds']:.2f} |" in records.engine()
    first = json.loads((records.RESULTS / "adult_fresh_seeds.json").read_text())["test"]["ERM"]
    assert f"{first['accuracy'][0]:.4f} ± {first['accuracy'][1]:.4f}" in records.adult()


def test_tables_in_pages_are_those_of_the_code_and_the_records() -> None:
    """So that pages can be read without the site."""
    from fairij.fairness.metrics import METRICS
    from fairij.fairness.rates import markdown

    api, results, speed = (
        (ROOT / "docs" / page).read_text(encoding="utf-8")
        for page in ("api/fairness.md", "results.md", "speed.md")
    )
    made = hook("constraints").on_page_markdown(api)
    assert markdown() in made
    assert [name for name in METRICS if f"`{name}`" not in made] == []
    stated = {line for line in api.splitlines() if line.startswith("| `")}
    assert "| `equal_opportunity` | true positive rates |" in api
    assert stated <= set(markdown().splitlines())
    records = hook("records")
    assert records.adult() in results
    rows = {
        row["name"]: row
        for row in json.loads((records.RESULTS / "engine.json").read_text())["rows"]
    }
    table = re.findall(
        r"^\| ((?:fairij|curvlinops|kronfluence|dattri|pydvl|captum) .+) \|$", speed, re.M
    )
    assert len(table) == 17
    for line in table:
        name, *figures = line.split(" | ")
        row = rows[name]
        assert figures == [
            f"{row['seconds']:.2f}",
            f"{row['spearman']:.4f}",
            f"{row['top500']:.3f}",
        ]


def test_links_to_studies_that_have_not_been_run_are_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    studies = hook("studies")
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "README.md").write_text("# Adult: all\n![Both](gaps.png)\n")
    monkeypatch.setattr(studies, "FOLDER", tmp_path)
    text = "[one](../studies/adult/README.md) [two](../studies/trees/README.md)"
    made = studies.LINK.sub(studies._link, text)
    assert made == "[one](studies/adult/study.md) two (`fairij reproduce trees`)"
    overview = studies._overview()
    assert "### [Adult](studies/adult/study.md)" in overview
    assert "[![Both](studies/adult/gaps.png)](studies/adult/study.md)" in overview
    assert "`fairij reproduce trees`" in overview


@pytest.mark.slow
def test_the_site_is_built_strictly_and_needs_no_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = [path for path in tmp_path.rglob("*.html") if path.name != "404.html"]
    assert len(pages) > 25
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert re.findall(r'<(?:script|img|iframe)[^>]*src="?(?:https?:)?//', text) == [], page
        assert re.findall(r'<link[^>]*rel="?stylesheet"?[^>]*href="?(?:https?:)?//', text) == [], (
            page
        )
        assert "<!-- record" not in text, page
        assert 'class="arithmatex"' not in text, page
