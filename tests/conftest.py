from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests share `reference`
# before a library is loaded: threads that wait for one another take the time of the other worker
os.environ.setdefault("OMP_NUM_THREADS", "1")

from cases import CASES

gc.disable()  # until all tests are known: what is loaded stays

if TYPE_CHECKING:  # heavy libraries are left to the processes that run tests
    from reference import Case


def pytest_collection_finish() -> None:
    """Look for garbage among what tests make only, and not again and again among all modules."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _charts_are_checked_as_a_whole() -> None:
    """Once, when a chart becomes JSON, and not part by part while it is made."""
    from altair.utils import schemapi

    schemapi.disable_debug_mode()


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    from reference import make_case

    return make_case(request.param)
