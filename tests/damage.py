"""Damage a file's content, to test that damaged files are refused."""

from __future__ import annotations

import numpy as np


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut, flip a bit, lengthen, or overwrite a part."""
    kind, place = int(rng.integers(4)), int(rng.integers(len(content)))
    if kind == 0:
        return content[:place]
    if kind == 1:
        flipped = bytes([content[place] ^ (1 << rng.integers(8))])
        return content[:place] + flipped + content[place + 1 :]
    if kind == 2:
        return content + rng.bytes(int(rng.integers(1, 40)))
    length = int(rng.integers(1, 30))
    return content[:place] + rng.bytes(length) + content[place + length :]
