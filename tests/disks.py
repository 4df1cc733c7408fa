"""Disks that are full, and folders that may only be read."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A disk of this size, at a folder that is made for it."""
    folder.mkdir()
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs"):
        yield folder


@contextmanager
def read_only(folder: Path) -> Iterator[str]:
    """The folder may only be read meanwhile; what the system says of writing there."""
    if os.geteuid() != 0:
        folder.chmod(0o500)
        yield "Permission denied"
        folder.chmod(0o700)
        return
    with _mounted(folder, "--bind", str(folder)):  # the superuser may write everywhere else
        subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
        yield "Read-only file system"


@contextmanager
def _mounted(folder: Path, *how: str) -> Iterator[None]:
    command = ["mount", *how, str(folder)]
    allowed = os.geteuid() == 0 and shutil.which("mount") is not None
    if not allowed or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)
