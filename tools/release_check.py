"""Everything that must hold before a release; `make release-check` runs it.

Builds wheel and sdist, looks into them, validates the metadata, and installs the wheel into fresh
environments: each supported Python that this machine has, with the oldest and with the newest
dependencies. In each of them the README's example and `fairij demo` are run.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = str(Path(sys.executable).with_name("uv"))
NEEDED = ("fairij/py.typed", "fairij/report/templates/page.html", "fairij/report/assets/report.css")
IN_SDIST = ("src/fairij/__init__.py", "tests/conftest.py", "docs/index.md", "LICENSE", "README.md")
RESOLUTIONS = ("lowest-direct", "highest")
EXTRAS = "lightgbm,tables"


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        run(UV, "build", "--quiet", "--out-dir", str(folder / "dist"), str(ROOT))
        (wheel,) = (folder / "dist").glob("*.whl")
        (sdist,) = (folder / "dist").glob("*.tar.gz")
        check_contents(wheel, sdist, folder)
        check_metadata(wheel, sdist)
        for python in pythons():
            for resolution in RESOLUTIONS:
                check_installed(wheel, python, resolution, folder / f"{python}-{resolution}")
    say("All is ready for a release.")


def say(text: str) -> None:
    print(text, flush=True)


def run(*command: str, cwd: Path = ROOT) -> str:
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=plain, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def require(holds: bool, what: str) -> None:
    if not holds:
        sys.exit(f"Not ready: {what}.")


def check_contents(wheel: Path, sdist: Path, folder: Path) -> None:
    """The wheel holds the package and nothing else, and a wheel made from the sdist is the same."""
    files = contents(wheel)
    others = [n for n in files if not n.startswith("fairij/") and ".dist-info/" not in n]
    require(not others, f"the wheel holds {others[:3]}")
    require(not (missing := [n for n in NEEDED if n not in files]), f"the wheel lacks {missing}")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    require(not (missing := [n for n in IN_SDIST if n not in names]), f"the sdist lacks {missing}")
    run(UV, "build", "--quiet", "--wheel", "--out-dir", str(folder / "again"), str(sdist))
    (again,) = (folder / "again").glob("*.whl")
    require(contents(again) == files, "the wheel of the sdist is another one")
    say(f"{wheel.name}: {len(files)} files; {sdist.name}: {len(names)}, and gives the same wheel")


def contents(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        return {n: hashlib.sha256(archive.read(n)).hexdigest() for n in archive.namelist()}


def check_metadata(wheel: Path, sdist: Path) -> None:
    """The index would take it, and every file that names a version names the same one."""
    version = wheel.name.split("-")[1]
    say(run(UV, "tool", "run", "twine", "check", "--strict", str(wheel), str(sdist)).strip())
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    recipe = re.search(r'version = "(.+?)"', (ROOT / "conda" / "meta.yaml").read_text())
    found = {
        "CITATION.cff": cited and cited[1],
        "conda/meta.yaml": recipe and recipe[1],
        "CHANGELOG.md": version if f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text() else "",
    }
    wrong = {name: value for name, value in found.items() if value != version}
    require(not wrong, f"the version is {version}, but in {wrong}")
    say(f"version {version} in {', '.join(found)}")


def pythons() -> list[str]:
    """The supported Pythons that are here; those that are not are named."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name = "Programming Language :: Python :: 3."
    minors = [c.removeprefix(name) for c in project["classifiers"] if c.startswith(name)]
    supported = [f"3.{minor}" for minor in minors]
    here = [version for version in supported if shutil.which(f"python{version}")]
    if absent := sorted(set(supported) - set(here)):
        say(f"NOT CHECKED, as they are not on this machine: Python {', '.join(absent)}")
    require(bool(here), "no supported Python was found")
    return here


def check_installed(wheel: Path, python: str, resolution: str, place: Path) -> None:
    """The README's example and the demo run with the wheel in a fresh environment."""
    run(UV, "venv", "--quiet", "--python", f"python{python}", str(place))
    torch = next(
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line.startswith("torch==")
    )
    inside = ("--python", str(place / "bin" / "python"))
    wanted = (f"{wheel}[{EXTRAS}]", torch)
    run(UV, "pip", "install", "--quiet", *inside, "--resolution", resolution, *wanted)
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    folder = place / "work"
    folder.mkdir()
    run(str(place / "bin" / "python"), "-W", "ignore", "-c", code, cwd=folder)
    run(str(place / "bin" / "fairij"), "demo", "--out", "demo", cwd=folder)
    require((folder / "demo" / "report.html").stat().st_size > 10_000, "the demo wrote no page")
    say(f"Python {python}, {resolution} dependencies: the README's example and the demo ran")


if __name__ == "__main__":
    main()
