"""Data flows down: a room imports only from rooms above it (docs/design.md)."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "fairij"
ROOMS = [
    {"_version", "errors", "sealed"},
    {"losses"},
    {"fairness"},
    {"models"},
    {"unison"},
    {"agreement"},
    {"distributed"},
    {"fingerprints"},
    {"objective"},
    {"curvature"},
    {"solvers"},
    {"influence"},
    {"scene"},
    {"soft"},
    {"edits", "selection", "search", "checkpoints"},
    {"judging"},
    {"progress", "display"},
    {"task"},
    {"diagnostics"},
    {"mitigation"},
    {"inputs", "labels"},
    {"prepared", "results"},
    {"mitigator"},
    {"scores"},
    {"datasets"},
    {"baselines"},
    {"training"},
    {"language"},
    {"tables"},
    {"model_files"},
    {"report"},
    {"studies"},
    {"demo"},
    {"cli", "__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
ALLOWED_UP = {("progress", "report"), ("display", "report")}  # drawing is loaded on demand


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "fairij":
                names = [f"fairij.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("fairij.")}
    return found


def test_every_room_imports_only_from_above() -> None:
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for other in imports(path) - {room}:
            known = {"__version__": "_version"}.get(other, other)
            if (room, known) not in ALLOWED_UP and LEVEL[known] > LEVEL[room]:
                wrong.append(f"{path.relative_to(SOURCE)} imports fairij.{other}")
    assert not wrong, "\n".join(wrong)
