"""Files of scores: complete or not there, and clear errors on a full disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apart import run_apart
from disks import small_disk
from fairij.scale.streamed_scores import score_file


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 300) as folder:
        yield folder


WRITE = """
import sys
from pathlib import Path
import numpy as np
from fairij.scale.streamed_scores import score_file
for path in sys.argv[1:]:
    try:
        with score_file(Path(path), 96_000) as write:
            for part in np.random.default_rng(0).random((8, 12_000)):
                write(part)
    except OSError as error:
        print(error)
"""


def test_scores_on_a_full_disk(disk: Path) -> None:
    """In a process of its own, which a memory map would end."""
    paths = [str(disk / name) for name in ("s.npy", "s.parquet")]
    done = run_apart(WRITE, *paths)
    assert done.returncode == 0
    assert not done.stderr
    said = done.stdout.splitlines()
    assert len(said) == len(paths)
    for line in said:
        assert "The scores cannot be written: " in line
        assert "No space left on device. Free some space there" in line
    assert list(disk.iterdir()) == []


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_room_for_scores_is_taken_before_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", full)
    with (
        pytest.raises(OSError, match="The scores cannot be written: No space left") as caught,
        score_file(tmp_path / "s.npy", 100),
    ):
        raise AssertionError("scores were made")
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("problem", [None, errno.EOPNOTSUPP])
def test_scores_where_room_cannot_be_taken(
    tmp_path: Path, problem: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(*_: Any) -> None:
        assert problem is not None
        raise OSError(problem, os.strerror(problem))

    if problem is None:
        monkeypatch.delattr(os, "posix_fallocate")
    else:
        monkeypatch.setattr(os, "posix_fallocate", unable)
    values = np.arange(7.0)
    with score_file(tmp_path / "s.npy", 7) as write:
        write(values[:3])
        write(values[6:2:-1][::-1])
    np.testing.assert_array_equal(np.load(tmp_path / "s.npy"), values)
    assert np.load(tmp_path / "s.npy", mmap_mode="r").shape == (7,)


def test_a_folder_for_scores_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(OSError, match="give `out` in a folder that can be written"),
        score_file(tmp_path / "file" / "s.npy", 3),
    ):
        raise AssertionError("scores were made")


def test_a_file_that_is_not_finished_does_not_appear(tmp_path: Path) -> None:
    for suffix in (".npy", ".parquet"):
        with pytest.raises(ZeroDivisionError), score_file(tmp_path / f"s{suffix}", 4) as write:
            write(np.zeros(2) + 1 // 0)
    assert not list(tmp_path.iterdir())
