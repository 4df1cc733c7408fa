"""Pages that are followed word for word in an empty folder, and print what they show."""

from __future__ import annotations

from pathlib import Path

import pytest
from blocks import blocks, check_output


@pytest.mark.parametrize("page", ["audit.md", "gate.md"])
def test_every_block_prints_what_the_page_shows(page: str, tmp_path: Path) -> None:
    found = blocks(page)
    assert sum(block.output is not None for block in found) >= 2
    for block in found:
        check_output(block, block.run_here(tmp_path))
