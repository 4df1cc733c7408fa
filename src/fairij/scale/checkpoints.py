"""Checkpoints: a journal of every pass over the rows, from which a stopped run resumes.

Every few seconds the results are written, in order, to one file with a checksum. A run that starts
again makes the same passes in the same order, so it reads those that were done.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairij._version import __version__
from fairij.data.hashing import tensor_fingerprint, without_addresses
from fairij.data.memory import TooLargeError
from fairij.data.paths import path_of
from fairij.data.row_vectors import lies_in_file, new_rows
from fairij.data.rows import processes, rank
from fairij.errors import CheckpointError
from fairij.models.base import Editable
from fairij.scale.collectives import values_of_all
from fairij.storage.checksummed import (
    UNREADABLE,
    read_sealed,
    require_plain,
    write_sealed,
    write_whole,
)

FORMAT = "fairij.checkpoint/1"
RECORD = re.compile(r"^(\d{8})-(\d{8})\.safetensors$")
EVERY_SECONDS = 5.0
LARGEST_FACTS = 2**20


def facts_of(model: Editable, settings: Mapping[str, Any]) -> dict[str, str]:
    """What every run depends on, by name, besides its rows; checkpoints keep these texts."""
    return {
        "model": model.frame_fingerprint()[:16],
        "parameters": tensor_fingerprint(model.theta),
        "settings": without_addresses(dict(settings)),
        "processes": str(processes()),
        "device": str(model.theta.device),
        "versions": f"fairij {__version__}, torch {torch.__version__}",
    }


class Journal:
    """A run's passes so far, in a folder of this process; files are named by first and last."""

    def __init__(
        self, folder: Path, facts: dict[str, str], records: list[tuple[int, int, Path]], done: int
    ) -> None:
        self._folder, self._facts, self._records, self._done = folder, facts, records, done
        self._next = 0
        self._pending: list[tuple[int, str, Tensor]] = []  # made, not yet written
        self._written = time.monotonic()
        self._opened: tuple[Path, dict[str, str], dict[str, Tensor]] | None = None

    @classmethod
    def open(cls, folder: Any, facts: Mapping[str, str], *, alone: bool = False) -> Journal:
        """Begin a journal, or resume one with the same facts; ``alone`` if passes are its own."""
        example = "give that of a folder, as in checkpoint='run-1', or None to keep nothing"
        place = path_of("checkpoint", folder, example) / f"process-{rank()}"
        with _explained(place, "read"):
            known = _read_facts(place)
            found = sorted(place.iterdir()) if place.exists() else []
        records = [(int(m[1]), int(m[2]), p) for p in found if (m := RECORD.match(p.name))]
        if known is None:
            for _, _, record in records:
                _check_facts(record, _opened(record)[0], facts, required=True)
            content = json.dumps({"format": FORMAT, "facts": dict(facts)}, indent=1).encode()
            with _explained(place, "written"):
                write_whole(place / "run.json", content)
        elif known != dict(facts):
            raise CheckpointError(_another_run(f"The checkpoint in {folder}", known, facts))
        done = 0
        for first, last, _ in records:  # in order of their first passes
            done = max(done, last + 1) if first <= done else done
        return cls(place, dict(facts), records, done if alone else min(values_of_all(done)))

    def recalled(self, name: str, given: Tensor | None, make: Callable[[], Tensor]) -> Tensor:
        """The next pass, which ``name`` and ``given`` identify: read, or made and recorded."""
        number = self._next
        key = name if given is None else f"{name} {tensor_fingerprint(given, digits=64)}"
        if number < self._done:
            self._next = number + 1
            return self._read(number, key)
        value = make()
        like = value.detach().cpu()  # the copy lies in a file if the value does
        kept = new_rows(like, len(like), in_file=lies_in_file(value)).copy_(like)
        self._pending.append((number, key, kept))  # with its number: a signal may come any time
        self._next = number + 1
        if time.monotonic() - self._written >= EVERY_SECONDS:
            self.write()
        return value

    def write(self) -> None:
        """Write the results since the last time to one file."""
        if not self._pending:
            return
        path = self._folder / f"{self._pending[0][0]:08}-{self._pending[-1][0]:08}.safetensors"
        keys = {f"given {number}": key for number, key, _ in self._pending}
        values = {str(number): value for number, _, value in self._pending}
        about = {"format": FORMAT, "facts": json.dumps(self._facts, sort_keys=True)}
        with _explained(path, "written"):
            write_sealed(path, values, {**about, **keys})
        self._pending, self._written = [], time.monotonic()

    def _read(self, number: int, key: str) -> Tensor:
        path = next(
            path for first, last, path in reversed(self._records) if first <= number <= last
        )
        if self._opened is None or self._opened[0] != path:
            header, tensors = _opened(path)
            _check_facts(path, header, self._facts)
            self._opened = (path, header, tensors)
        _, header, tensors = self._opened
        if str(number) not in tensors or f"given {number}" not in header:
            raise _unusable(path, f"its name says that it holds pass {number}, but it does not")
        value, given = tensors[str(number)], header[f"given {number}"]
        if given != key:
            raise CheckpointError(
                f"The checkpoint's record {path} is of another computation than this run makes "
                "here: the code, the machine or a setting has changed. Delete the folder to start "
                "over."
            )
        return value


def _opened(record: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The header and the results of a record."""
    try:
        return read_sealed(record, FORMAT)
    except TooLargeError:
        raise
    except UNREADABLE as error:
        raise _unusable(record, error) from None


def _unusable(record: Path, why: object) -> CheckpointError:
    return CheckpointError(
        f"The checkpoint's record {record} cannot be used: {why}. Delete it and those after it to "
        "resume from there, or delete the folder to start over."
    )


def _check_facts(
    record: Path, header: Mapping[str, str], facts: Mapping[str, str], *, required: bool = False
) -> None:
    """Raise unless a record is of the run with these facts.

    Records of 0.1.0 have none, so they need a description of the run next to them.
    """
    if "facts" not in header:
        if required:
            raise _unusable(
                record, "it does not say of which run it is, and run.json is not next to it"
            )
        return
    try:
        known = _table_of_text(json.loads(header["facts"]))
    except UNREADABLE as error:
        raise _unusable(record, error) from None
    if known != dict(facts):
        raise CheckpointError(_another_run(f"The checkpoint's record {record}", known, facts))


def _read_facts(place: Path) -> dict[str, str] | None:
    path = place / "run.json"
    if not path.exists():
        return None
    try:
        require_plain(path)
        if path.stat().st_size > LARGEST_FACTS:
            raise ValueError("it is too large")
        content = json.loads(path.read_bytes())
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}, not {FORMAT!r}")
        return _table_of_text(content["facts"])
    except UNREADABLE as error:
        raise CheckpointError(
            f"{path} does not describe a checkpoint: {error}. Delete the folder to start over."
        ) from None


def _table_of_text(facts: Any) -> dict[str, str]:
    if not isinstance(facts, dict) or not all(isinstance(text, str) for text in facts.values()):
        raise ValueError("its facts are not a table of text")
    return facts


def _another_run(what: str, known: Mapping[str, str], facts: Mapping[str, str]) -> str:
    changed = sorted(n for n in known.keys() | facts.keys() if known.get(n) != facts.get(n))
    there, now = (
        text if len(text) <= 80 else text[:77] + "..."
        for text in (found.get(changed[0], "none") for found in (known, facts))
    )
    return (
        f"{what} is of another run: its {', '.join(changed)} "
        f"{'differs' if len(changed) == 1 else 'differ'} ({changed[0]}: there {there}, now "
        f"{now}). Give another folder, or delete this one to start over."
    )


CURES = {
    "read": "Give a folder that may be read",
    "written": "What was written before is whole: free some space or give a folder that may be "
    "written",
}


@contextmanager
def _explained(path: Path, done: str) -> Iterator[None]:
    """Errors of reading and writing say what to do."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"The checkpoint {path} cannot be {done}: {error.strerror or error}. {CURES[done]}, "
            "and run again."
        ) from error
