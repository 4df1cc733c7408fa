"""Wall time and CPU time of a piece of work."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Stopwatch:
    """``with Stopwatch() as watch: ...`` fills ``watch.reading``, which is zero before."""

    reading: dict[str, float] = field(default_factory=lambda: {"seconds": 0.0, "cpu_seconds": 0.0})

    def __enter__(self) -> Stopwatch:
        self._start = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *exception: Any) -> None:
        wall, processor = self._start
        self.reading = {
            "seconds": time.perf_counter() - wall,
            "cpu_seconds": time.process_time() - processor,
        }
