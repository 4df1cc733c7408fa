"""Outputs appear whole or not at all, and nothing is overwritten unless asked."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fairij.cli.contents import Holds, check_own, write_contents
from fairij.cli.staging import place, settle_dead_runs, staged, swap
from fairij.errors import InvalidInputError

MARK = "settings.toml"  # the settings in a folder of `mitigate`
PAGE = "report.html"


def check_folder(target: Path, command: str, *, force: bool) -> Path:
    """Raise unless this command may write its folder here; return the path without links.

    Called before the work. When the work is done, the last rename checks again by itself.
    """
    found = target.resolve()
    if not found.name or found == Path.cwd() or found in Path.cwd().parents:
        raise FileExistsError(
            f"--out must be a new folder, but {target} is the working folder or holds it. Name a "
            "folder in it."
        )
    if os.path.ismount(found):
        raise FileExistsError(f"{target} is a disk, which is not replaced; name a folder on it.")
    _check_parent(found)
    if found.exists() and not found.is_dir():
        raise FileExistsError(f"{target} is a file already; name another --out.")
    if found.is_dir() and any(found.iterdir()):
        if not force:
            raise FileExistsError(
                f"{target} exists already and is not empty; name a new folder by --out, or pass "
                "--force to replace it, if fairij wrote it."
            )
        check_own(found, command)
    return found


def check_file(target: Path, *, force: bool) -> None:
    """Raise unless a file, or a new folder of a model, may be written here."""
    if target.is_symlink():
        raise FileExistsError(f"{target} is a link; name a new file, or the one that it leads to.")
    if target.is_dir() or not target.name:
        raise FileExistsError(f"{target} is a folder already; name another --out.")
    if target.exists() and not target.is_file():
        raise FileExistsError(f"{target} is a device or a pipe; name another --out.")
    if target.exists() and not force:
        raise FileExistsError(f"{target} exists already; pass --force to replace it.")
    _check_parent(target.resolve())


def check_inputs_apart(out: Path, inputs: Mapping[str, Path | None], option: str = "out") -> None:
    """Raise if the output would take the place of a file that the run reads."""
    found = out.resolve()
    for name, path in inputs.items():
        if path is not None and path.resolve().is_relative_to(found):
            raise InvalidInputError(
                f"--{option} must not be, or hold, what the run reads, but --{name} is {path}: "
                f"name another --{option}.",
                parameter=option,
            )


@contextmanager
def whole_folder(
    target: Path, command: str, holds: Mapping[str, Holds], *, force: bool = False
) -> Iterator[Path]:
    """A new folder; with a list of its files it takes the target's place if all goes well."""
    found = check_folder(target, command, force=force)
    with staged(found) as staging:
        staging.new.mkdir()
        yield staging.new
        write_contents(staging.new, command, holds)
        if force:
            swap(staging, command)
        else:
            place(staging.new, found)


@contextmanager
def whole_file(target: Path, *, force: bool = False) -> Iterator[Path]:
    """A path to write to; what is there takes the target's place if all goes well."""
    check_file(target, force=force)
    found = target.resolve()
    with staged(found) as staging:
        staging.new.mkdir()
        written = staging.new / found.name
        yield written
        if force and not written.is_dir():
            os.replace(written, found)
        else:
            place(written, found)


def _check_parent(target: Path) -> None:
    """Settle what dead runs left, and fail now, not after the work, if nothing can be written."""
    parent = next(folder for folder in target.parents if folder.is_dir())
    settle_dead_runs(parent)
    with tempfile.TemporaryFile(dir=parent):
        pass
