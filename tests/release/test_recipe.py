"""The recipe for conda asks for what the package asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

from fairij import __version__

ROOT = Path(__file__).parents[2]
OTHER_NAMES = {"torch": "pytorch"}


def test_the_recipe_has_the_dependencies_of_the_package() -> None:
    text = (ROOT / "conda" / "meta.yaml").read_text(encoding="utf-8")
    assert f'{{% set version = "{__version__}" %}}' in text
    plain = re.sub(r"\{%.*?%\}", "", text).replace("{{ version }}", __version__)
    recipe = yaml.safe_load(plain.replace("{{ PYTHON }}", "python"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {f"python {project['requires-python']}"}
    for bound in project["dependencies"]:
        name, sign, version = re.fullmatch(r"([\w-]+)(>=)([\d.]+)", bound).groups()  # type: ignore[union-attr]
        wanted.add(f"{OTHER_NAMES.get(name, name)} {sign}{version}")
    assert set(recipe["requirements"]["run"]) == wanted
    (command,) = project["scripts"].items()
    assert recipe["build"]["entry_points"] == [" = ".join(command)]
