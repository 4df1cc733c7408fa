"""Safetensors files with a hash of all their bytes in the header; nothing is unpickled."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from safetensors import SafetensorError
from safetensors.torch import load as from_safetensors
from safetensors.torch import save as to_safetensors
from torch import Tensor

from fairij.data.memory import check_size

UNSEALED = "0" * 64
# errors that reading a damaged file, or one of another kind, can raise
UNREADABLE = (SafetensorError, ValueError, TypeError, KeyError, RecursionError, OSError)
LARGEST_HEADER = 2**26
CHUNK = 2**20


def write_sealed(target: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    """Write tensors with a header of text. The same content gives the same bytes."""
    content = to_safetensors(dict(tensors), {**header, "sha256": UNSEALED})
    start = 8 + int.from_bytes(content[:8], "little")  # the rest may be large, so it is not copied
    first, rest = _in_order(content[8:start]), memoryview(content)[start:]
    digest = hashlib.sha256(first)
    digest.update(rest)
    write_whole(target, first.replace(_seal(UNSEALED), _seal(digest.hexdigest()), 1), rest)


def _in_order(header: bytes) -> bytes:
    """The length and the header, sorted by name: safetensors orders it by chance."""
    table = json.loads(header)
    ordered = json.dumps(table, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    padded = ordered.ljust(-(-len(ordered) // 8) * 8)  # tensors begin at a multiple of 8 bytes
    return len(padded).to_bytes(8, "little") + padded


def read_sealed(path: Path, form: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Header and tensors; raises one of ``UNREADABLE`` if the file is not whole.

    The file is read once in parts, for its seal, before any of it is kept in memory.
    """
    require_plain(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        length = file.read(8)
        if int.from_bytes(length, "little") > min(LARGEST_HEADER, size):
            raise ValueError("its header is longer than the file or than is allowed")
        start = file.read(int.from_bytes(length, "little"))
        header = _checked_header(start, size - 8 - len(start), form)
        check_size(path, size)
        seal = header["sha256"]
        digest = hashlib.sha256(length + start.replace(_seal(seal), _seal(UNSEALED), 1))
        while part := file.read(CHUNK):
            digest.update(part)
        if digest.hexdigest() != seal:
            raise ValueError("its bytes have changed since it was saved")
        file.seek(0)
        return header, from_safetensors(file.read(size))


def _checked_header(start: bytes, rest: int, form: str) -> dict[str, str]:
    """The header of text. Its tensors must take all the rest of the file."""
    table = json.loads(start)
    header = table["__metadata__"]
    if not isinstance(header, dict):
        raise ValueError("its header is not a table")
    if header["format"] != form:
        raise ValueError(f"its format is {header['format']!r}, not {form!r}")
    ends = [one["data_offsets"][1] for name, one in table.items() if name != "__metadata__"]
    if max(ends, default=0) != rest:
        raise ValueError(f"its tensors take {max(ends, default=0)} bytes, not the {rest} there")
    return header


def require_plain(path: Path) -> None:
    """Raise unless there is a file that ends: reading a pipe or a device may not."""
    if not path.is_file():
        raise ValueError("it is no plain file")


def write_whole(target: Path, *content: bytes | memoryview) -> None:
    """Write to a temporary file next to the target, then rename it: never half a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            for part in content:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _seal(digest: str) -> bytes:
    return f'"sha256":"{digest}"'.encode()
