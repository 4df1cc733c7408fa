"""How the house stands: what the package weighs, and what one fit runs through.

``python -m benchmarks.house`` prints each count with its bound, and exits with 1 if one is broken.
The package had 22,420 lines, and a fit ran through 33 files, before budgets, checks of what models
seem to be, predicted refits, the constrained search and hardened files came in.
"""

from __future__ import annotations

import ast
import os
import re
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fairij"
REPEATS = 5


def main() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    method = [f for f in files if f.relative_to(SOURCE).parts[0] in ("method", "solvers")]
    long = [f"{f.name}:{name}" for f in files for name, size in functions(f) if size > 60]
    rows: list[tuple[str, Any, Any]] = [
        ("modules at the top", len(list(SOURCE.glob("*.py"))), 5),
        ("layers", layers(), 8),
        ("lines of the package", lines(files), 31_000),
        ("lines of method and solvers", lines(method), 5_200),
        ("lines of the mitigator", lines([SOURCE / "mitigator.py"]), 260),
        ("functions over 60 lines", len(long), 0),
        ("words in the README", len(re.findall(r"\w+", (ROOT / "README.md").read_text())), 700),
    ]
    for kind, fit in (("torch", torch_fit), ("LightGBM", lightgbm_fit)):
        entered, called = traced(fit())
        rows += [
            (f"files that a {kind} fit runs through", len(entered), 50),
            (f"of them in scale ({kind})", sum("scale" in f.parts for f in entered), 0),
            (f"lines in them ({kind})", lines(sorted(entered)), None),
            (f"functions called ({kind})", called, None),
        ]
        if "--files" in sys.argv:
            print(*(f"  {file.relative_to(SOURCE)}" for file in sorted(entered)), sep="\n")
    rows.append(("CPU time of `fairij --help` over `import torch`", help_ratio(), 0.25))
    broken = [name for name, value, bound in rows if bound is not None and value > bound]
    for name, value, bound in rows:
        limit = "" if bound is None else f"  (at most {bound:,})"
        print(f"{name:<50} {value:>9,}{limit}{'  <-- broken' if name in broken else ''}")
    print(*long, sep="\n")
    sys.exit(bool(broken))


def lines(files: list[Path]) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


def functions(file: Path) -> Iterator[tuple[str, int]]:
    """Each function with the number of lines of its body, without its docstring."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if body:
                yield node.name, (body[-1].end_lineno or 0) - body[0].lineno + 1


def layers() -> int:
    """The length of the list that the test of the import order checks."""
    tree = ast.parse((ROOT / "tests" / "test_import_order.py").read_text())
    found = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    return len(ast.literal_eval(found["LAYERS"]))


def traced(work: Callable[[], Any]) -> tuple[set[Path], int]:
    """The files of the package whose functions the work calls, and how many functions."""
    entered: set[Path] = set()
    called: set[tuple[str, int]] = set()
    root = str(SOURCE) + os.sep

    def look(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        # what runs while a module is imported is not part of the fit
        if event == "call" and code.co_filename.startswith(root) and code.co_name != "<module>":
            entered.add(Path(code.co_filename))
            called.add((code.co_filename, code.co_firstlineno))

    work()  # once before, so that everything is imported
    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return entered, len(called)


def torch_fit() -> Callable[[], Any]:
    from benchmarks.digests import fitted, network

    network()
    return lambda: fitted(network(), search="grid")


def lightgbm_fit() -> Callable[[], Any]:
    import lightgbm

    from benchmarks.digests import fitted, rows

    data = rows()
    model = lightgbm.LGBMClassifier(n_estimators=20, num_leaves=6, n_jobs=1, verbose=-1)
    model.fit(data["X"].astype(float), data["y"])
    given = {name: data[name].astype(float) for name in ("X", "X_val")}
    return lambda: fitted(model, weight_decay=0.0, search="grid", given=given)


def help_ratio() -> float:
    fairij = [sys.executable, "-m", "fairij", "--help"]
    torch = [sys.executable, "-c", "import torch"]
    shown, imported = ([cpu_seconds(c) for _ in range(REPEATS)] for c in (fairij, torch))
    return round(min(shown) / min(imported), 3)


def cpu_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
