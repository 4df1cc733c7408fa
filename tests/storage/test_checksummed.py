"""Files that are damaged in hundreds of ways are refused with a clear error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from biased import fair, problem
from damage import damaged
from fairij import Edit
from fairij.data.arrow_source import ArrowSource
from fairij.data.memory import TooLargeError, reading_at_most
from fairij.errors import CorruptEditError, InvalidInputError
from fairij.storage.checksummed import read_sealed, write_sealed


def test_damaged_edits(tmp_path: Path) -> None:
    edit = problem().fit(fair()).edit_
    path = edit.save(tmp_path / "edit")
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(400):
        bad = damaged(whole, rng)
        path.write_bytes(bad)
        if bad != whole:
            with pytest.raises(CorruptEditError, match="does not hold a valid edit"):
                Edit.load(path)
            refused += 1
    assert refused > 350
    path.write_bytes(whole)
    assert torch.equal(Edit.load(path).delta, edit.delta)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_damaged_tables(tmp_path: Path, kind: str) -> None:
    """Data pages have no hash, so damage may pass; but no other kind of error is raised."""
    table = pd.DataFrame(np.arange(300.0).reshape(100, 3), columns=list("abc"))
    path = tmp_path / f"rows.{kind}"
    table.to_parquet(path) if kind == "parquet" else table.to_feather(path)
    whole, rng, refused = path.read_bytes(), np.random.default_rng(1), 0
    for _ in range(250):
        path.write_bytes(damaged(whole, rng))
        try:
            source = ArrowSource(path, list("abc"))
            for part in source.chunks(40):
                assert part.shape[1] == 3
            source.column("a")
        except InvalidInputError:
            refused += 1
    assert refused > 30


def test_sizes_are_checked_before_anything_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_sealed(path, {"value": torch.ones(5)}, {"format": "f"})
    header, tensors = read_sealed(path, "f")
    assert header["format"] == "f"
    assert torch.equal(tensors["value"], torch.ones(5))
    with pytest.raises(ValueError, match="its format is 'f', not 'g'"):
        read_sealed(path, "g")
    with reading_at_most(100), pytest.raises(TooLargeError, match="more than the 100 bytes that"):
        read_sealed(path, "f")
    path.write_bytes(path.read_bytes() + b"0")
    with pytest.raises(ValueError, match="its tensors take 20 bytes, not the 21 there"):
        read_sealed(path, "f")
    path.write_bytes((2**62).to_bytes(8, "little") + b"{}")
    with pytest.raises(ValueError, match="header is longer than"):
        read_sealed(path, "f")
