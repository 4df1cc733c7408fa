"""Outputs appear whole or not at all, and nothing is overwritten unless asked."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MARK = "settings.toml"  # a folder with this file was written by `mitigate`
PAGE = "report.html"


def check_target(target: Path, *, force: bool, folder: bool = False) -> None:
    """Raise unless this may be written. Called before the work, and again before writing."""
    if target.exists() or target.is_symlink():
        if folder != target.is_dir():
            kind = "a folder" if target.is_dir() else "a file"
            raise FileExistsError(f"{target} is {kind} already; name another --out.")
        if not (folder and not any(target.iterdir())):
            if folder and not (target / MARK).is_file():
                also = ", so --force will not replace it" if force else ""
                raise FileExistsError(
                    f"{target} was not written by this command{also}; name a new folder."
                )
            if not force:
                raise FileExistsError(f"{target} exists already; pass --force to replace it.")
    parent = _existing_parent(target.resolve())
    with tempfile.TemporaryDirectory(dir=parent, prefix=f".{target.name}."):
        pass  # fail now, not after the work, if no folder can be made there


@contextmanager
def whole_folder(target: Path, *, force: bool = False) -> Iterator[Path]:
    """A new folder next to the target; it takes the target's place if all goes well."""
    check_target(target.resolve(), force=force, folder=True)
    with replacing(target) as folder:
        yield folder


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """As `whole_folder`, without its checks."""
    with _staged(target.resolve()) as staging:
        yield staging
        staging.chmod(0o755)
        _take_place(staging, target.resolve())


@contextmanager
def whole_file(target: Path, *, force: bool = False) -> Iterator[Path]:
    """A path to write to; what is there takes the target's place if all goes well."""
    target = target.resolve()
    if target.is_dir() and force:
        raise FileExistsError(f"{target} is a folder; --force replaces files only.")
    check_target(target, force=force, folder=False)
    with _staged(target) as staging:
        written = staging / target.name
        yield written
        _take_place(written, target)
        staging.rmdir()


@contextmanager
def _staged(target: Path) -> Iterator[Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        yield staging
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _take_place(new: Path, target: Path) -> None:
    if not target.is_dir():
        os.replace(new, target)
        return
    aside = new.with_name(f"{new.name}.old")
    try:
        os.replace(target, aside)
        os.replace(new, target)
    finally:  # also if Ctrl-C comes between the two
        if not target.exists():
            os.replace(aside, target)
        shutil.rmtree(aside, ignore_errors=True)


def _existing_parent(target: Path) -> Path:
    return next(folder for folder in target.parents if folder.is_dir())
