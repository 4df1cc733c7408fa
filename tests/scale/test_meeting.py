"""Processes without peers, and with frozen ones, say for whom they wait, and give up."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import torch
import torch.distributed as dist

from fairij.errors import InvalidInputError, ProcessError
from fairij.scale import meeting, sharding
from fairij.scale.collectives import summed, values_of_all


@pytest.fixture
def port() -> str:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("TORCHELASTIC") or name in meeting.NEEDED:
            monkeypatch.delenv(name)
    monkeypatch.setattr(meeting, "SAY_SECONDS", 0.2)
    monkeypatch.setattr(meeting, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(sharding, "MEET_SECONDS", 0.5)


def set_place(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    for name, value in zip(meeting.NEEDED, values, strict=False):
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["0"], "WORLD_SIZE and MASTER_ADDR and MASTER_PORT are not"),
        (["1", "2", "localhost"], "MASTER_PORT is not"),
        (["one", "2", "localhost", "1"], "RANK is 'one', which is no whole number"),
        (["0", "-2", "localhost", "1"], "WORLD_SIZE is '-2'"),
        (["2", "2", "localhost", "1"], "process 2 of 2 at port 1 cannot be"),
        (["0", "2", "localhost", "99999"], "port 99999 cannot be"),
        (["٣", "4", "localhost", "1"], "which is no whole number"),
    ],
)
def test_a_rank_without_torchrun(
    monkeypatch: pytest.MonkeyPatch, values: list[str], said: str
) -> None:
    set_place(monkeypatch, *values)
    with pytest.raises(InvalidInputError, match="RANK is set in the environment") as caught:
        sharding.start()
    assert said in str(caught.value)
    assert "Start the processes with `torchrun`, or unset RANK" in str(caught.value)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_without_peers(
    monkeypatch: pytest.MonkeyPatch, port: str, rank: int, caplog: pytest.LogCaptureFixture
) -> None:
    set_place(monkeypatch, str(rank), "2", "127.0.0.1", port)
    said = f"Process {rank} of 2 waited 0 s for process {1 - rank} at 127.0.0.1:{port}"
    with caplog.at_level(logging.WARNING), pytest.raises(ProcessError, match=said):
        sharding.start()
    if rank == 0:  # the other is in one attempt to connect for all of the time
        assert f"0 s for process 1 to come to 127.0.0.1:{port}; it gives up after" in caplog.text


def test_a_port_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        set_place(monkeypatch, "0", "2", "127.0.0.1", str(taken.getsockname()[1]))
        with pytest.raises(ProcessError, match=r"Process 0 cannot open .* Give a port that is"):
            sharding.start()


def in_fork(work: Callable[[], object]) -> tuple[int, int]:
    """Run in a forked child; its number, and where to read what it says."""
    reads, writes = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the watching threads of others
        child = os.fork()
    if child == 0:
        try:
            os.close(reads)
            try:
                said = work()
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
            os.write(writes, str(said).encode())
        finally:
            os._exit(0)
    os.close(writes)
    return child, reads


@pytest.fixture
def children() -> Iterator[list[int]]:
    begun: list[int] = []
    yield begun
    for child in begun:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def process(rank: int, port: str, then: Callable[[], object]) -> Callable[[], object]:
    def work() -> object:
        os.environ.update(zip(meeting.NEEDED, (str(rank), "2", "127.0.0.1", port), strict=True))
        sharding.MEET_SECONDS = 60.0
        assert sharding.start(patience=1.0) == rank
        assert values_of_all(rank) == [0, 1]
        return then()

    return work


@pytest.mark.skipif(not hasattr(os, "fork"), reason="has no fork")
def test_a_frozen_process(port: str, children: list[int]) -> None:
    def waits() -> str:
        kept: list[logging.LogRecord] = []
        meeting.log.addFilter(lambda record: not kept.append(record))  # type: ignore[func-returns-value]
        try:
            summed(lambda: torch.ones(1))
        except ProcessError as error:
            return f"{error} LOG {[record.getMessage() for record in kept]}"
        return "nothing was missed"

    def freezes() -> None:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGSTOP)

    child, reads = in_fork(process(0, port, waits))
    frozen, _ = in_fork(process(1, port, freezes))
    children += [child, frozen]
    said = os.read(reads, 10_000).decode()
    assert said.startswith("This process waited 1 s for process 1 (not heard of for "), said
    assert "start(patience=...)" in said
    assert "Process 0 has waited 0 s for process 1" in said
    assert "it gives up after 1 s." in said


def test_the_patience_is_checked() -> None:
    with pytest.raises(InvalidInputError, match="`patience` must be a number, above 0"):
        sharding.start(patience=0)
    assert not dist.is_initialized()
