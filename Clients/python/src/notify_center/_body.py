"""Reads the body of a message, value by value, so that the reader can stop before a large one. Pure."""

from __future__ import annotations

import struct
from typing import Literal

_WIDTHS = {"y": 1, "b": 4, "n": 2, "q": 2, "i": 4, "u": 4, "x": 8, "t": 8, "d": 8}
_CODES = {"y": "B", "b": "I", "n": "h", "q": "H", "i": "i", "u": "I", "x": "q", "t": "Q", "d": "d"}
_ALIGNMENTS = {**_WIDTHS, "s": 4, "o": 4, "a": 4, "(": 8, "{": 8, "g": 1, "v": 1}


class Body:
    """A position in the body of a message. All functions raise `ValueError` for bytes that are not of the type."""

    def __init__(self, data: bytes, order: Literal["<", ">"]) -> None:
        self._data, self._order = data, order
        self.at = 0

    def align(self, type: str) -> None:
        """Moves to the beginning of the next value of the type."""
        if type[:1] not in _ALIGNMENTS:
            raise ValueError(f"a value of type “{type}” cannot be read")
        self.at += -self.at % _ALIGNMENTS[type[0]]

    def number(self, type: str) -> int | float | bool:
        """Reads a value of one of the types `ybnqiuxtd`."""
        self.align(type)
        found: int | float = struct.unpack(self._order + _CODES[type], self.take(_WIDTHS[type]))[0]
        return bool(found) if type == "b" else found

    def length(self) -> int:
        """Reads the length in bytes in front of a text or an array."""
        return int(self.number("u"))

    def text(self, length: int) -> str:
        """Reads a text of this length and the zero byte at its end."""
        found = self.take(length).decode()
        self.take(1)
        return found

    def signature(self) -> str:
        """Reads the signature in front of the value of a variant."""
        return self.text(self.take(1)[0])

    def take(self, length: int) -> bytes:
        """Reads the next `length` bytes."""
        found = self._data[self.at : self.at + length]
        if len(found) != length:
            raise ValueError("the body of the message ends too early")
        self.at += length
        return found


def is_number(type: str) -> bool:
    """Whether `Body.number` reads values of the type."""
    return type in _WIDTHS


def types(signature: str) -> list[str]:
    """The complete types of a signature, one for each value. Raises `ValueError` if it ends within a type."""
    found, start = [], 0
    while start < len(signature):
        end = start
        while signature[end : end + 1] == "a":
            end += 1
        depth = 0
        while True:
            if end == len(signature):
                raise ValueError("the signature ends within a type")
            depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(signature[end], 0)
            end += 1
            if depth <= 0:
                break
        found.append(signature[start:end])
        start = end
    return found
