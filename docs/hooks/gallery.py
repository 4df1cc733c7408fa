"""The gallery: the build runs every script, and its page shows what it printed and drew.

Figures (.svg) that a script leaves in its folder are shown, and pages (.html) are linked. A run is
kept under build/gallery until the script or the package changes.
"""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "docs" / "gallery").glob("*.py"))
KEPT = ROOT / "build" / "gallery"
PRINTED = "printed.txt"
# a torchvision built for another torch would stop the import of transformers
START = """
import runpy, sys
from fairij.models.text.library import load_transformers
load_transformers()
runpy.run_path(sys.argv[1], run_name="__main__")
"""


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
        files.append(
            File.generated(config, f"gallery/{script.stem}.md", content=_page(script, folder))
        )
        for made in sorted(folder.iterdir()):
            if made.suffix in (".svg", ".html"):
                uri = f"gallery/{script.stem}-{made.name}"
                files.append(File.generated(config, uri, abs_src_path=str(made)))
    return files


def title(script: Path) -> str:
    """The first line of the script's docstring."""
    about = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    return about.splitlines()[0].removesuffix(".")


def run(script: Path) -> Path:
    """The folder with what the script printed and made; the script is run if there is none."""
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
        done = subprocess.run(
            [sys.executable, "-c", START, str(script)],
            cwd=folder,
            env={**os.environ, "COLUMNS": "100", "PYTHONWARNINGS": "ignore"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise PluginError(f"docs/gallery/{script.name} failed:\n{done.stderr}")
        (folder / PRINTED).write_text(done.stdout, encoding="utf-8")
        folder.rename(kept)
    return kept


def _page(script: Path, folder: Path) -> str:
    """A script as a page: docstring, code, output, figures, links."""
    text = script.read_text(encoding="utf-8")
    tree = ast.parse(text)
    about = (ast.get_docstring(tree) or "").partition("\n")[2].strip()
    code = "".join(text.splitlines(keepends=True)[tree.body[0].end_lineno :]).strip()
    parts = [f"# {title(script)}", about, "```python", code, "```", "## What it prints"]
    parts += ["```text", (folder / PRINTED).read_text(encoding="utf-8").rstrip(), "```"]
    made = sorted(folder.iterdir())
    figures = [path.name for path in made if path.suffix == ".svg"]
    pages = [path.name for path in made if path.suffix == ".html"]
    if figures or pages:
        parts.append("## What it makes")
    for name in figures:
        caption = name.removesuffix(".svg").replace("-", " ")
        parts += [f"*{caption.capitalize()}*", f"![{caption}]({script.stem}-{name})"]
    for name in pages:
        parts.append(f'[Open `{name}`]({script.stem}-{name}){{ .md-button target="_blank" }}')
    return _joined(parts)


def _joined(parts: list[str]) -> str:
    """The parts, with a blank line between paragraphs and none inside a fence."""
    text, fenced = "", False
    for part in parts:
        if part.startswith("```"):
            fenced = not fenced
        text += part + ("\n" if fenced else "\n\n")
    return text
