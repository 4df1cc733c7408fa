"""Which code made a record."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("fairij", "fairij_studies")


@cache
def code_hash() -> str:
    """Return the first 12 digits of a SHA-256 over the source of fairij and of the studies.

    The result is kept, so later changes to the files do not count.
    """
    return source_hash([package_folder(name) for name in PACKAGES])


def source_hash(folders: list[Path]) -> str:
    """Return the first 12 digits of a SHA-256 over the names and texts of all Python files."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def package_folder(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise ImportError(f"The package {name} must be installed, but it was not found.")
    return Path(spec.origin).parent
