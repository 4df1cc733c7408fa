"""Pages of the studies, made from the README files and figures in `studies`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fairij_studies import STUDIES
from mkdocs.structure.files import File

FOLDER = Path(__file__).parents[2] / "studies"
MARK = "<!-- studies -->"
LINK = re.compile(r"\[([^\]]*)\]\(\.\./studies/([\w-]+)/README\.md(#[\w-]*)?\)")
FIGURE = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")
OVERVIEW = "reproducing.md"


def on_config(config: Any) -> Any:
    pages = [{_title(name): _page(name)} for name in recorded()]
    for entry in config.nav:
        if "Studies" in entry:
            entry["Studies"] = [{"Reproducing the paper": OVERVIEW}, *pages]
    return config


def on_files(files: Any, config: Any, **_: Any) -> Any:
    for name in recorded():
        text = (FOLDER / name / "README.md").read_text(encoding="utf-8")
        files.append(File.generated(config, _page(name), content=text))
        for figure in sorted((FOLDER / name).rglob("*")):
            if figure.suffix in (".svg", ".png"):
                uri = f"studies/{name}/{figure.relative_to(FOLDER / name).as_posix()}"
                files.append(File.generated(config, uri, abs_src_path=str(figure)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    markdown = LINK.sub(_link, markdown)
    return markdown.replace(MARK, _overview()) if page.file.src_uri == OVERVIEW else markdown


def recorded() -> list[str]:
    """Return the studies that have a page, in the order of their table."""
    names = [*STUDIES, *sorted(path.name for path in FOLDER.glob("*"))]
    return [name for name in dict.fromkeys(names) if (FOLDER / name / "README.md").is_file()]


def _page(name: str) -> str:
    return f"studies/{name}/study.md"


def _title(name: str) -> str:
    lines = (FOLDER / name / "README.md").read_text(encoding="utf-8").splitlines()
    heading = next((line[2:] for line in lines if line.startswith("# ")), name)
    return heading.split(":")[0].strip()


def _link(found: re.Match[str]) -> str:
    text, name, anchor = found[1], found[2], found[3] or ""
    if name in recorded():
        return f"[{text}]({_page(name)}{anchor})"
    return f"{text} (`fairij reproduce {name}`)"


def _overview() -> str:
    parts = []
    for name in recorded():
        parts.append(f"### [{_title(name)}]({_page(name)})\n")
        figure = FIGURE.search((FOLDER / name / "README.md").read_text(encoding="utf-8"))
        if figure:
            shown = f"![{figure[1]}](studies/{name}/{figure[2]})"
            parts.append(f"[{shown}]({_page(name)})\n")
    known = {name.replace("_", "-") for name in recorded()}
    missing = [name for name in STUDIES if name not in known]
    if missing:
        commands = ", ".join(f"`fairij reproduce {name}`" for name in missing)
        parts.append(f"No records are kept here yet of: {commands}.\n")
    return "\n".join(parts)
