"""Processes that meet at the start, and say for whom they wait.

A wait that lasts is told to the log `fairij`, and it ends: with an error that names the processes
that did not come.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from fairij.errors import InvalidInputError, ProcessError

MEET_SECONDS = 300.0  # until all processes have come
PATIENCE = 1800.0  # for one exchange: the others may be busy with a pass over their rows
SAY_SECONDS = 30.0  # waits that last longer are told
BEAT_SECONDS = 5.0  # between two signs of life
NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
log = logging.getLogger("fairij")


@dataclass(frozen=True)
class Place:
    """Where the processes meet, and which of them this one is."""

    rank: int
    size: int
    host: str
    port: int

    @classmethod
    def of_environment(cls) -> Place:
        """As `torchrun` tells it in the environment."""
        given = {name: os.environ.get(name, "") for name in NEEDED}
        if absent := [name for name, text in given.items() if not text]:
            raise _not_started(f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not")
        for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"):
            if not (given[name].isascii() and given[name].isdigit()):
                raise _not_started(f"{name} is {given[name]!r}, which is no whole number")
        place = cls(
            int(given["RANK"]), int(given["WORLD_SIZE"]), given["MASTER_ADDR"],
            int(given["MASTER_PORT"]),
        )  # fmt: skip
        if place.rank >= place.size or not 0 < place.port < 2**16:
            raise _not_started(
                f"process {place.rank} of {place.size} at port {place.port} cannot be"
            )
        return place

    @property
    def others(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.rank]


def _not_started(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"RANK is set in the environment, as `torchrun` does for several processes, but {what}. "
        "Start the processes with `torchrun`, or unset RANK to run one process."
    )


def meet(seconds: float) -> tuple[Any, Place]:
    """The store that all processes share, once all have come to it; or an error that says who not.

    The store of `torchrun` keeps addresses of ended processes after a restart, so each attempt has
    a prefix. Several machines count their restarts separately, so they have none.
    """
    place, given, until = Place.of_environment(), os.environ, time.monotonic() + seconds
    launched = given.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = _opened(place, launched, seconds, until)
    if launched and given.get("GROUP_WORLD_SIZE") == "1":
        stores: Any = dist  # torch does not declare them for type checkers
        attempt = given.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = stores.PrefixStore(f"attempt-{attempt}", store)
    _wait_for_all(store, place, seconds, until)
    store.set_timeout(timedelta(seconds=max(seconds, 1.0)))
    return store, place


def _opened(place: Place, launched: bool, seconds: float, until: float) -> Any:
    """The store: made by process 0, or by `torchrun`."""
    stores: Any = dist
    makes, told = place.rank == 0 and not launched, False
    while True:
        left = max(until - time.monotonic(), 0.1)
        try:  # in short attempts, so that Ctrl-C is heard
            return stores.TCPStore(
                place.host,
                place.port,
                place.size,
                makes,
                timeout=timedelta(seconds=min(left, 2.0)),
                wait_for_workers=False,
            )
        except RuntimeError as error:
            if makes:
                raise ProcessError(
                    f"Process 0 cannot open the place where processes meet, {place.host}:"
                    f"{place.port} (MASTER_ADDR and MASTER_PORT): {_first_line(error)}. Give a "
                    "port that is free."
                ) from None
            if time.monotonic() >= until:
                raise _nobody([0], place, seconds) from None
            told = told or _tell([0], place, seconds, until)


def _wait_for_all(store: Any, place: Place, seconds: float, until: float) -> None:
    store.set(f"fairij/came/{place.rank}", "1")
    absent, told = place.others, False
    while absent := [rank for rank in absent if not store.check([f"fairij/came/{rank}"])]:
        if time.monotonic() >= until:
            raise _nobody(absent, place, seconds)
        told = told or _tell(absent, place, seconds, until)
        time.sleep(0.02)


def _tell(absent: list[int], place: Place, seconds: float, until: float) -> bool:
    """Say once, after a while, for whom this process waits."""
    waited = seconds - (until - time.monotonic())
    if waited < SAY_SECONDS:
        return False
    log.warning(
        "Process %d has waited %.0f s for %s to come to %s:%d; it gives up after %.0f s.",
        *(place.rank, waited, named(absent), place.host, place.port, seconds),
    )
    return True


def _nobody(absent: list[int], place: Place, seconds: float) -> ProcessError:
    return ProcessError(
        f"Process {place.rank} of {place.size} waited {seconds:.0f} s for {named(absent)} at "
        f"{place.host}:{place.port} (MASTER_ADDR and MASTER_PORT), and gave up. Start all of them, "
        "as with `torchrun`, or unset RANK to run one process."
    )


def named(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:5])) + (", ..." if len(ranks) > 5 else "")
    return f"process{'' if len(ranks) == 1 else 'es'} {shown}"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")


@dataclass
class Watch:
    """Shows the other processes that this one lives, and says when it waits long for them."""

    store: Any
    place: Place
    patience: float
    exchanges: int = 0
    since: float | None = None  # when the exchange began that this process is in
    _seen: dict[int, tuple[bytes, float]] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        threading.Thread(target=self._run, name="fairij-watch", daemon=True).start()

    def end(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        beat, told = 0, -1
        while not self._ended.wait(BEAT_SECONDS):
            beat, since, number = beat + 1, self.since, self.exchanges
            try:
                self.store.set(f"fairij/alive/{self.place.rank}", f"{number} {beat}")
                waited = 0.0 if since is None else time.monotonic() - since
                if waited > SAY_SECONDS / 2:
                    self._look()  # twice at least before it is told, to see who has stopped
                if waited > SAY_SECONDS and told != number:
                    told = number
                    text = "Process %d has waited %.0f s for %s; it gives up after %.0f s."
                    log.warning(text, self.place.rank, waited, self.late(), self.patience)
            except RuntimeError:
                return  # the process that keeps the store has ended

    def _look(self) -> None:
        for rank in self.place.others:
            if self.store.check([name := f"fairij/alive/{rank}"]):
                found = bytes(self.store.get(name))
                if rank not in self._seen or self._seen[rank][0] != found:
                    self._seen[rank] = (found, time.monotonic())

    def late(self) -> str:
        """The processes that have not come to this exchange, and when they were last heard of."""
        said = []
        for rank, (found, moment) in sorted(self._seen.items()):
            silent = time.monotonic() - moment
            if int(found.split()[0]) < self.exchanges:
                heard = f"not heard of for {silent:.0f} s" if silent > 3 * BEAT_SECONDS else "busy"
                said.append(f"process {rank} ({heard})")
        return ", ".join(said[:5]) or "the other processes"


_watch: Watch | None = None


def watch(store: Any, place: Place, patience: float) -> None:
    """Begin to watch the exchanges of this process."""
    global _watch
    _watch = Watch(store, place, patience)
    _watch.begin()


def end_watch() -> None:
    if _watch is not None:
        _watch.end()


@contextmanager
def exchanging() -> Iterator[None]:
    """One exchange with the other processes; an error of it says who did not come."""
    began = time.monotonic()
    if _watch is not None:
        _watch.exchanges, _watch.since = _watch.exchanges + 1, began
    try:
        yield
    except RuntimeError as error:
        waited = time.monotonic() - began
        if "timed out" in str(error).lower():
            late = "the other processes" if _watch is None else _watch.late()
            raise ProcessError(
                f"This process waited {waited:.0f} s for {late} to come to an exchange, and gave "
                "up. A process that is frozen or has ended shows it in its output. If it was only "
                "busy, allow more: `start(patience=...)`, in seconds."
            ) from error
        raise ProcessError(
            "The exchange with the other processes broke off, most likely because one of them has "
            f"ended: see their output. The error here was: {error}"
        ) from error
    finally:
        if _watch is not None:
            _watch.since = None
