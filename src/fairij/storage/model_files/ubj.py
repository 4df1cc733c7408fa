"""Universal Binary JSON: a reader that never reads past the end, and a writer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairij.storage.reading import distinct, require

# markers of numbers (big-endian), and of values without content
NUMBERS = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
MARKERS = {np.dtype(kind).newbyteorder(">"): marker for marker, kind in NUMBERS.items()}
CONSTANTS = {"Z": None, "T": True, "F": False}
DEEPEST = 50  # parts inside parts; XGBoost's files have about ten


class Ubj:
    """The value in some content. Each name is in a table once."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at, self._depth = content, 0, 0

    def whole(self) -> Any:
        value, rest = self._value(), len(self._content) - self._at
        require(rest == 0, f"it has {rest} bytes after its end")
        return value

    def _value(self) -> Any:
        marker = self._marker()
        if marker in ("{", "["):
            self._depth += 1
            require(self._depth <= DEEPEST, "its parts lie too deep inside each other")
            value = self._table() if marker == "{" else self._list()
            self._depth -= 1
            return value
        if marker in NUMBERS:
            return self._numbers(marker, 1)[0].item()
        if marker in CONSTANTS:
            return CONSTANTS[marker]
        require(marker in ("S", "C"), f"byte {self._at - 1} is no marker of a value")
        return self._text() if marker == "S" else self._bytes(1).decode()

    def _table(self) -> dict[str, Any]:
        pairs: list[tuple[str, Any]] = []
        while not self._skips(b"}"):
            name = self._text()
            pairs.append((name, self._value()))
        return distinct(pairs)

    def _list(self) -> Any:
        if self._skips(b"$"):
            marker = self._marker()
            require(marker in NUMBERS, f"byte {self._at - 1} is no marker of a kind of number")
            require(self._skips(b"#"), f"byte {self._at} must begin the length of a list")
            return self._numbers(marker, self._length())
        if self._skips(b"#"):
            return [self._value() for _ in range(self._length())]
        values = []
        while not self._skips(b"]"):
            values.append(self._value())
        return values

    def _text(self) -> str:
        return self._bytes(self._length()).decode("utf-8")

    def _length(self) -> int:
        """A length. XGBoost writes it in eight bytes."""
        require(self._skips(b"L"), f"byte {self._at} must begin a length")
        return int.from_bytes(self._bytes(8), "big", signed=True)

    def _numbers(self, marker: str, count: int) -> NDArray[Any]:
        kind = np.dtype(NUMBERS[marker])
        return np.frombuffer(self._bytes(count * kind.itemsize), kind)

    def _marker(self) -> str:
        return self._bytes(1).decode("latin-1")

    def _skips(self, marker: bytes) -> bool:
        """Whether this marker is next; if so, skip it."""
        found = self._content.startswith(marker, self._at)
        self._at += found
        return found

    def _bytes(self, count: int) -> bytes:
        if not 0 <= count <= len(self._content) - self._at:
            raise ValueError("it was cut short or changed: a part is longer than what is there")
        self._at += count
        return self._content[self._at - count : self._at]


def to_ubj(value: Any) -> bytes:
    """A value of tables, lists, arrays, text and whole numbers; bytes are written already."""
    return b"".join(_parts(value))


def array_bytes(values: bytes, kind: np.dtype[Any]) -> bytes:
    """An array, from the bytes of its big-endian numbers."""
    return f"[${MARKERS[kind]}#".encode() + _size(len(values) // kind.itemsize) + values


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, dict):
        yield b"{"
        for name, one in value.items():
            yield _named(name)
            yield from _parts(one)
        yield b"}"
    elif isinstance(value, list):
        yield b"[#" + _size(len(value))
        for one in value:
            yield from _parts(one)
    elif isinstance(value, np.ndarray):
        yield array_bytes(value.tobytes(), value.dtype.newbyteorder(">"))
    elif isinstance(value, str):
        yield b"S" + _named(value)
    elif isinstance(value, float):
        yield b"d" + np.array(value, ">f4").tobytes()
    else:
        yield _size(int(value))


def _named(text: str) -> bytes:
    encoded = text.encode("utf-8")
    return _size(len(encoded)) + encoded


def _size(number: int) -> bytes:
    return b"L" + number.to_bytes(8, "big", signed=True)
