"""The list of files in a result folder. By it, a folder is known as fairij's own.

The list names every file, its hash, what it holds, and whether it holds something of single rows.
It is sealed by a hash of its own. The seal finds damage. It does not prove who wrote a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fairij._version import __version__
from fairij.cli.config import file_hash

CONTENTS = "contents.json"
FORMAT = "fairij.folder/1"
SEALED = ("format", "command", "version", "files")
LARGEST = 2**24  # bytes of a list


@dataclass(frozen=True)
class Holds:
    """What a file holds, in words, and whether that is information on single training rows."""

    text: str
    per_row: bool = False


class NotOwnError(FileExistsError):
    """A folder holds something that fairij did not write."""


def write_contents(folder: Path, command: str, holds: Mapping[str, Holds]) -> None:
    """List and seal the files of a folder that ``holds`` names; a folder inside counts as one."""
    files = {}
    for path in sorted(_entries(folder)):
        name = path.relative_to(folder).as_posix()
        about = holds.get(name.split("/")[0])
        if about is not None and path.is_file():
            files[name] = _line(path, about)
    (folder / CONTENTS).write_text(_text(command, files), encoding="utf-8")


def add_to_contents(folder: Path, path: Path, about: Holds) -> None:
    """List a file that was written into an own folder later; no other folder is touched."""
    from fairij.storage.checksummed import write_whole

    place = folder.resolve()
    target = path.resolve()
    if target.parent != place or not (place / CONTENTS).is_file():
        return
    listed = _read(place)
    listed["files"][target.name] = _line(target, about)
    write_whole(place / CONTENTS, _text(listed["command"], listed["files"]).encode())


def check_own(folder: Path, command: str | None = None, called: Path | None = None) -> list[Path]:
    """The files of a folder, all written by this command and unchanged; else `NotOwnError`.

    ``called`` is what the user calls the folder, if it has been moved.
    """
    for name, why in differences(folder, command):
        raise NotOwnError(
            f"{called or folder} holds {name!r}, which {why}, so the folder is not replaced and "
            "nothing was changed: move it away, or name a new folder."
        )
    return [path for path in _entries(folder) if stat.S_ISREG(path.lstat().st_mode)]


def differences(folder: Path, command: str | None = None) -> Iterator[tuple[str, str]]:
    """What is in a folder beyond its list, or is not as listed, with the reason."""
    files = _read(folder, command)["files"]
    known = {part for name in files for part in map(str, PurePosixPath(name).parents)}
    for path in _entries(folder):
        name, mode = path.relative_to(folder).as_posix(), path.lstat().st_mode
        if not (stat.S_ISREG(mode) and (name == CONTENTS or name in files)):
            if not (stat.S_ISDIR(mode) and name in known):
                yield name, "fairij did not write there"
        elif name != CONTENTS and file_hash(path) != files[name]["sha256"]:
            yield name, "has changed since fairij wrote it"


def is_listed_and_changed(folder: Path, path: Path) -> bool:
    """Whether a folder lists this file, but with other bytes."""
    if not (folder / CONTENTS).is_file():
        return False
    listed = _read(folder)["files"].get(path.name)
    return listed is not None and listed["sha256"] != file_hash(path)


def remove_own(folder: Path) -> None:
    """Remove the listed files of a folder and what is empty then; the list goes last."""
    files = check_own(folder)
    inside = sorted({parent for path in files for parent in path.parents}, reverse=True)
    for path in sorted(files, key=lambda path: path.name == CONTENTS):
        path.unlink()
    for parent in inside:
        if parent.is_relative_to(folder):
            with suppress(OSError):  # something has come into it meanwhile: it stays
                parent.rmdir()


def _line(path: Path, about: Holds) -> dict[str, Any]:
    return {"holds": about.text, "per_row": about.per_row, "sha256": file_hash(path)}


def _entries(folder: Path) -> Iterator[Path]:
    """Everything in a folder, however deep. Links are not followed."""
    for place, folders, files in os.walk(folder, onerror=_raise):
        yield from (Path(place) / name for name in (*folders, *files))


def _raise(error: OSError) -> None:
    raise error


def _read(folder: Path, command: str | None = None) -> dict[str, Any]:
    """The list of a folder, or `NotOwnError` if it has none that is whole."""
    try:
        return _checked(folder / CONTENTS, command)
    except FileNotFoundError:
        why = f"it has no {CONTENTS}, the list of what fairij wrote (version 0.1.0 made none)"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"its {CONTENTS} cannot be relied on: {error}"
    raise NotOwnError(
        f"{folder} was not written by this command, so --force will not replace it: {why}. Name a "
        "new folder, or move this one away yourself."
    )


def _checked(path: Path, command: str | None) -> dict[str, Any]:
    """What a list says; raises one of many errors if it is not whole."""
    if not stat.S_ISREG(path.lstat().st_mode) or path.lstat().st_size > LARGEST:
        raise ValueError("it is not a file, or too large")
    found = json.loads(path.read_bytes())
    content = {key: found[key] for key in SEALED}
    if content["format"] != FORMAT or found["seal"] != _seal(content):
        raise ValueError("it has changed")
    if not all(_is_inside(name) and file["sha256"] for name, file in content["files"].items()):
        raise ValueError("it lists what cannot be in a folder")
    if command is not None and content["command"] != command:
        raise ValueError(f"it is of `fairij {content['command']}`")
    return content


def _is_inside(name: str) -> bool:
    parts = PurePosixPath(name)
    return not parts.is_absolute() and ".." not in parts.parts and str(parts) == name


def _text(command: str, files: Mapping[str, Any]) -> str:
    content = {
        "about": "The files that fairij wrote here. Those with per_row true tell something of "
        "single training rows: keep them as carefully as the training table.",
        "format": FORMAT,
        "command": command,
        "version": __version__,
        "files": dict(files),
    }
    seal = _seal({key: content[key] for key in SEALED})
    return json.dumps({**content, "seal": seal}, indent=2) + "\n"


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
