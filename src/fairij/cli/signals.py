"""SIGTERM and SIGHUP end a command as Ctrl-C does: it cleans up, and says so."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
PATIENCE = 5.0  # seconds in which further signals do not disturb the cleaning up
UNIX_OFFSET = 128  # what shells add to the number of a signal


class Ended(KeyboardInterrupt):
    """The process was asked to end by a signal."""

    def __init__(self, number: int) -> None:
        self.name = signal.Signals(number).name
        self.code = UNIX_OFFSET + number
        super().__init__(self.name)


@contextmanager
def ending_cleanly() -> Iterator[None]:
    """Raise `Ended` in the block if such a signal comes.

    Signals that are ignored (by ``nohup``) or handled by somebody else are left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    process, first = os.getpid(), [-PATIENCE]

    def end(number: int, frame: Any) -> None:
        if os.getpid() != process:  # a child that was forked has nothing to clean up
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if time.monotonic() - first[0] >= PATIENCE:
            first[0] = time.monotonic()
            raise Ended(number)

    taken = [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
