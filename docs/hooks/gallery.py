"""The gallery: the build makes a notebook of every script and runs it.

A script's docstring is its title and first paragraph. ``# %%`` starts a cell, ``# %% [markdown]`` a
cell of text. The page of a script shows its cells with what they printed and drew, and links the
notebook. Pages (.html) that a script leaves in its folder are linked too. A run is kept under
build/gallery until the script or the package changes.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode, v4

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "docs" / "gallery").glob("*.py"))
KEPT = ROOT / "build" / "gallery"
CARDS = "<!-- cards -->"
# charts as pictures instead of as scripts; of the run, not of the notebook that people get
START = """
import warnings
import altair
altair.renderers.enable("svg")
warnings.simplefilter("ignore")
"""
SECONDS = 1800


def on_config(config: Any) -> Any:
    """List the scripts' pages in the navigation."""
    pages = [{title(script): f"gallery/{script.stem}.md"} for script in SCRIPTS]
    for entry in config.nav:
        if "Gallery" in entry:
            entry["Gallery"] = ["gallery/index.md", *pages]
    return config


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add a page for each script, and what it made."""
    for script in SCRIPTS:
        folder = run(script)
        text = page(script, folder)
        files.append(File.generated(config, f"gallery/{script.stem}.md", content=text))
        for made in sorted(folder.iterdir()):
            if made.suffix in (".svg", ".html", ".ipynb"):
                uri = f"gallery/{made.name if made.suffix == '.ipynb' else linked(script, made)}"
                files.append(File.generated(config, uri, abs_src_path=str(made)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The cards of the overview."""
    return markdown.replace(CARDS, cards()) if CARDS in markdown else markdown


def title(script: Path) -> str:
    """The first line of the script's docstring."""
    about = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    return about.splitlines()[0].removesuffix(".")


def notebook(script: Path) -> NotebookNode:
    """The script as a notebook that has not been run."""
    text = script.read_text(encoding="utf-8")
    tree = ast.parse(text)
    about = (ast.get_docstring(tree) or "").partition("\n")[2].strip()
    code = "".join(text.splitlines(keepends=True)[tree.body[0].end_lineno :])
    cells = [v4.new_markdown_cell(f"# {title(script)}\n\n{about}")]
    for part in re.split(r"^# %%", code, flags=re.MULTILINE):
        kind, _, body = (
            part.partition("\n") if part.startswith((" [markdown]", "\n")) else ("", "", part)
        )
        if not body.strip():
            continue
        if "markdown" in kind:
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines()]
            cells.append(v4.new_markdown_cell("\n".join(lines)))
        else:
            cells.append(v4.new_code_cell(body.strip()))
    for place, cell in enumerate(cells):
        cell["id"] = f"cell-{place}"
    made = v4.new_notebook(cells=cells)
    made.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return made


def run(script: Path) -> Path:
    """The folder with the executed notebook, its pictures, and what else the script made."""
    digest = hashlib.sha256(script.read_bytes())
    for source in sorted((ROOT / "src").rglob("*.*")):
        if source.suffix != ".pyc":
            digest.update(source.read_bytes())
    kept = KEPT / f"{script.stem}-{digest.hexdigest()[:16]}"
    if kept.is_dir():
        return kept
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT) as place:
        folder = Path(place) / "work"
        folder.mkdir()
        executed = _executed(notebook(script), folder, script.name)
        for number, picture in enumerate(pictures(executed), 1):
            (folder / f"figure-{number}.svg").write_text(picture, encoding="utf-8")
        nbformat.write(executed, folder / f"{script.stem}.ipynb")
        for name in ("__pycache__", ".ipynb_checkpoints"):
            shutil.rmtree(folder / name, ignore_errors=True)
        folder.rename(kept)
    return kept


def _executed(made: NotebookNode, folder: Path, name: str) -> NotebookNode:
    """The notebook with its outputs; the first cell only says how charts are drawn."""
    made.cells.insert(0, v4.new_code_cell(START))
    os.environ.setdefault("COLUMNS", "100")
    client = NotebookClient(
        made, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise PluginError(f"docs/gallery/{name} failed:\n{error}") from None
    del made.cells[0]
    for number, cell in enumerate(cell for cell in made.cells if cell.cell_type == "code"):
        cell.execution_count = number + 1
        for output in cell.outputs:
            if "execution_count" in output:
                output["execution_count"] = number + 1
        cell.metadata.pop("execution", None)
    return made


def pictures(made: NotebookNode) -> list[str]:
    """The drawings among the outputs, in order."""
    data = (output.get("data", {}) for cell in made.cells for output in cell.get("outputs", ()))
    return [one["image/svg+xml"] for one in data if "image/svg+xml" in one]


def page(script: Path, folder: Path) -> str:
    """The executed notebook as a page."""
    made = nbformat.read(folder / f"{script.stem}.ipynb", as_version=4)
    link = f"[Download the notebook]({script.stem}.ipynb){{ .md-button download }}"
    parts, number = list[str](), 0
    for cell in made.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            number += "image/svg+xml" in data
            parts += shown(script, output, data, number)
    parts.insert(1, link)
    for path in sorted(folder.glob("*.html")):
        parts.append(
            f'[Open `{path.name}`]({linked(script, path)}){{ .md-button target="_blank" }}'
        )
    return "\n\n".join(parts) + "\n"


def shown(script: Path, output: Any, data: Any, number: int) -> Iterator[str]:
    """One output: a picture, a table or result in HTML, or text."""
    if "image/svg+xml" in data:
        yield f"![What the cell above draws]({script.stem}-figure-{number}.svg)"
    elif "text/html" in data:
        lines = (line.strip() for line in str(data["text/html"]).splitlines())
        yield f'<div class="output">{" ".join(line for line in lines if line)}</div>'
    else:
        text = output.get("text") or data.get("text/plain", "")
        if text.strip():
            yield f"```text\n{text.rstrip()}\n```"


def linked(script: Path, made: Path) -> str:
    """The name of a file of a script on the site."""
    return f"{script.stem}-{made.name}"


def cards() -> str:
    """A picture, a title and a sentence for each script."""
    found = []
    for script in SCRIPTS:
        folder = run(script)
        text = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
        first = re.split(r"(?<=[.?])\s", text.partition("\n")[2].strip(), maxsplit=1)[0]
        drawn = sorted(folder.glob("figure-*.svg"))
        picture = f"![]({linked(script, drawn[0])})" if drawn else ""
        found.append(
            f'<div class="card" markdown>\n\n[{picture}]({script.stem}.md)\n\n'
            f"**[{title(script)}]({script.stem}.md)**\n\n{' '.join(first.split())}\n\n</div>"
        )
    return '<div class="cards" markdown>\n\n' + "\n\n".join(found) + "\n\n</div>"
