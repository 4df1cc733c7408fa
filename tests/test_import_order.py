"""Eight layers: a room imports only from its own layer and from those above (docs/design.md)."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "fairij"
LAYERS = [
    {"fairness"},
    {"data"},
    {"models"},
    {"method", "solvers"},
    {"storage"},
    {"scale"},
    {"mitigator", "black_box", "baselines", "datasets", "language"},
    {"report", "cli", "mlflow"},
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
EVERYWHERE = {"_version", "__version__", "errors", "load_later"}
TOP = {"__init__", "__main__", "_version", "errors", "mitigator", "black_box"}
# drawing is loaded on demand, by a fitted model or an audit that is asked to show itself
ALLOWED = {("mitigator", "report"), ("fairness", "report")}


def imports(path: Path) -> set[str]:
    """The rooms that a file imports from."""
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
    return found - EVERYWHERE


def test_every_room_imports_only_from_above() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)} imports fairij.{other}"
        for path in sorted(SOURCE.rglob("*.py"))
        if (room := path.relative_to(SOURCE).parts[0].removesuffix(".py")) in LEVEL
        for other in sorted(imports(path))
        if (room, other) not in ALLOWED and LEVEL[other] > LEVEL[room]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_top_holds_the_face_and_rooms_only() -> None:
    assert {path.stem for path in SOURCE.glob("*.py")} == TOP
    rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert rooms == set(LEVEL) - TOP
