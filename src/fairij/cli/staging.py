"""Hidden folders next to an output, in which it is made before it takes its place.

`.NAME.fairij-XXXXXXXX` holds a ``lock``, ``new`` (what is being written) and, while --force
replaces a folder, ``old`` (what was there). The process that works there keeps the lock. If it was
killed, the lock is free: the next run that writes nearby settles what it left.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fairij.cli.contents import check_own, remove_own
from fairij.errors import FairIJWarning

FORMAT = "fairij.staging/1"
MARK, LOCK, NEW, OLD = ".fairij-", "lock", "new", "old"
LONGEST = 150  # bytes of the target's name in the name of the hidden folder
LARGEST_LOCK = 2**16
TAKEN = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR}


@dataclass(frozen=True)
class Staging:
    """A hidden folder, and what it is for."""

    place: Path
    target: Path

    @property
    def new(self) -> Path:
        return self.place / NEW

    @property
    def old(self) -> Path:
        return self.place / OLD

    def settle(self) -> str | None:
        """Put an old folder back, or remove it if its place is taken; then remove the rest.

        Returns what the user should know, if an old folder is involved.
        """
        said = None
        if _is_folder(self.old):
            is_free, is_done = not os.path.lexists(self.target), not os.path.lexists(self.new)
            if not is_free and not is_done:
                return f"{self.target} was taken meanwhile; what was there before is {self.old}."
            if is_free:
                os.rename(self.old, self.target)
                said = f"{self.target} is back as it was: the run that was to replace it ended."
            else:
                remove_own(self.old)
        if _is_folder(self.new):
            shutil.rmtree(self.new, ignore_errors=True)
        (self.place / LOCK).unlink(missing_ok=True)
        with suppress(OSError):
            self.place.rmdir()
        return said


@contextmanager
def staged(target: Path) -> Iterator[Staging]:
    """A new hidden folder next to the target; settled at the end, however that comes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shown = target.name.encode(errors="surrogateescape")[:LONGEST].decode(errors="ignore")
    place = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{shown}{MARK}"))
    staging = Staging(place, target)
    with ExitStack() as ending:
        ending.callback(_settle_and_say, staging)
        lock = os.open(place / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        ending.callback(os.close, lock)
        ending.callback(_settle_and_say, staging)  # before the lock is free
        if _lock(lock):
            os.write(lock, json.dumps({"format": FORMAT, "target": target.name}).encode())
        yield staging


def _settle_and_say(staging: Staging) -> None:
    said = staging.settle()
    if said:
        warnings.warn(said, FairIJWarning, stacklevel=2)


def settle_dead_runs(parent: Path) -> None:
    """Settle the hidden folders of this user whose process is gone; say so."""
    with suppress(PermissionError), os.scandir(parent) as entries:
        found = [Path(e) for e in entries if e.name.startswith(".") and MARK in e.name]
        for place in sorted(found):
            with suppress(OSError):
                _settle_if_dead(place)


def _settle_if_dead(place: Path) -> None:
    """Only real folders of this user, with a lock that fairij wrote and that nobody keeps."""
    if not _is_folder(place) or {path.name for path in place.iterdir()} - {LOCK, NEW, OLD}:
        return
    handle = os.open(place / LOCK, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode) or not _lock(handle):
            return
        name = _target_name(os.read(handle, LARGEST_LOCK))
        if name is None:
            return
        said = Staging(place, place.parent / name).settle()
        text = said or f"{place} was removed: a run that was killed had left it half-written."
        warnings.warn(text, FairIJWarning, stacklevel=4)
    finally:
        os.close(handle)


def _target_name(content: bytes) -> str | None:
    """The name in a lock that fairij wrote; it is in the same folder as the hidden one."""
    try:
        found = json.loads(content)
        name = found["target"]
        is_name = isinstance(name, str) and Path(name).name == name and name not in ("", "..")
        return name if found["format"] == FORMAT and is_name and "\0" not in name else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _is_folder(path: Path) -> bool:
    """Whether this is a real folder of this user, not a link."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    is_mine = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    return stat.S_ISDIR(found.st_mode) and is_mine


def _lock(handle: int) -> bool:
    """Take the lock if it is free. Without file locks nothing is ever taken for dead."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def alone_in(parent: Path) -> Iterator[None]:
    """Wait until no other run of fairij is renaming in this folder, where there are file locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network disks have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def swap(staging: Staging, command: str) -> None:
    """Let the new folder take the place of an own one. `Staging.settle` ends what is not done."""
    with alone_in(staging.target.parent):
        if os.path.lexists(staging.target) and any(staging.target.iterdir()):
            os.rename(staging.target, staging.old)
            # again, as something may have come into it meanwhile
            check_own(staging.old, command, called=staging.target)
        place(staging.new, staging.target)


def place(new: Path, target: Path) -> None:
    """Let a file or folder take its place, unless something is there, also if it came just now."""
    try:
        if new.is_dir():
            os.rename(new, target)  # fails if there is a file, or a folder that is not empty
        else:
            _place_file(new, target)
    except OSError as error:
        if error.errno not in TAKEN:
            raise
        raise FileExistsError(
            f"{target} exists already: it was written meanwhile, and nothing of it was replaced. "
            "Name another --out."
        ) from None


def _place_file(new: Path, target: Path) -> None:
    try:
        os.link(new, target)  # unlike a rename, it never replaces
    except OSError as error:
        if error.errno in TAKEN:
            raise
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))  # a disk without links
        os.replace(new, target)
