"""Encodes and decodes notifications, as the project's page WireProtocol.md describes. Pure."""

from __future__ import annotations

import math
import reprlib
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, Union

from ._body import Body, is_number, types
from ._connection import Variant

PATH = "/org/notifycenter"
MEMBER = "Posted"
DARWIN = "org.notifycenter.Darwin1"
DISTRIBUTED = "org.notifycenter.Distributed1"

IMMEDIATELY, HAS_OBJECT, HAS_USER_INFO, ESCAPES_NUL = 1 << 0, 1 << 8, 1 << 9, 1 << 10

MAXIMUM_SIZE = 1 << 20
MAXIMUM_DEPTH = 20

PropertyList = Union[str, int, float, bool, datetime, bytes, list["PropertyList"], dict[str, "PropertyList"]]
"""The values that a userInfo may contain.

A `datetime` without a zone is local time; a received `datetime` is in UTC. A date before the year 1 or after 9999, such as
Foundation's `Date.distantPast`, arrives as the first or the last date in Python's range.
"""

UserInfo = dict[str, PropertyList]

_EPOCH = datetime(2001, 1, 1, tzinfo=timezone.utc)
_ALPHANUMERIC = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_DIGITS = frozenset(b"0123456789")


def interface_name(name: str, prefix: str) -> str:
    """The D-Bus interface that stands for a notification's name in a signal."""
    data = utf8(name, "the name of a notification")
    if len(data) <= 255:
        full = f"{prefix}.{_escaped(data)}"
        if len(full) <= 255:
            return full
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{prefix}.__h{digest:016x}"


def _escaped(data: bytes) -> str:
    if not data:
        return "__"
    output, starts = [], True
    for index, byte in enumerate(data):
        following = data[index + 1] if index + 1 < len(data) else None
        if byte == ord("."):
            is_plain = not starts and following is not None
        elif byte == ord("_"):
            is_plain = following is None or following in _ALPHANUMERIC
        else:
            is_plain = byte in _ALPHANUMERIC and not (byte in _DIGITS and starts)
        output.append(chr(byte) if is_plain else f"__{byte:02x}")
        starts = is_plain and byte == ord(".")
    return "".join(output)


def utf8(value: object, role: str) -> bytes:
    """Returns the UTF-8 of a text. Raises `ValueError`, which names the value by its role, for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{role} is a text, not {_shown(value)}")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{role} has half of a surrogate pair, which has no UTF-8: {_shown(value)}") from None


def _shown(value: object) -> str:
    return f"the {type(value).__name__} {reprlib.repr(value)}"


class _Size:
    """Counts the size as every receiver does: 64 bytes for each part, and the bytes of texts and data."""

    def __init__(self) -> None:
        self.bytes = 64

    def add(self, length: int) -> None:
        self.bytes += length
        if self.bytes > MAXIMUM_SIZE:
            raise ValueError(f"the notification is over {MAXIMUM_SIZE} bytes; put the data in a file and send its name")

    def part(self, length: int = 0) -> None:
        self.add(64 + length)


def encode(name: str, object: str | None, user_info: UserInfo | None, immediately: bool) -> tuple[str, list[Any]]:
    """Returns signature and arguments of a post. Raises `ValueError` for values that receivers reject."""
    utf8(name, "the name of a notification")
    if object is not None:
        utf8(object, "the object of a notification")
    if user_info is not None and not isinstance(user_info, dict):
        raise ValueError(f"a userInfo is a dictionary, not {_shown(user_info)}")
    flags = (IMMEDIATELY if immediately else 0) | (HAS_OBJECT if object is not None else 0)
    flags |= HAS_USER_INFO if user_info is not None else 0
    texts = [name, object or ""]
    if any("\0" in text for text in texts):
        flags |= ESCAPES_NUL
        texts = [text.replace("\\", "\\\\").replace("\0", "\\0") for text in texts]
    size = _Size()
    for text in texts:
        size.add(len(text.encode()))
    if flags == 0:
        return "s", [texts[0]]
    signature, arguments = "ssu", [*texts, flags]
    if user_info is not None:
        variant = _variant(user_info, 0, size)
        signature, arguments = signature + variant.signature, [*arguments, variant.value]
    return signature, arguments


def _variant(value: PropertyList, depth: int, size: _Size) -> Variant:
    if isinstance(value, (list, dict)) and depth >= MAXIMUM_DEPTH:
        raise ValueError(f"the userInfo is nested more than {MAXIMUM_DEPTH} arrays and dictionaries deep")
    if isinstance(value, dict):
        size.part()
        entries = []
        for key in value:
            size.part(len(utf8(key, "a key of a userInfo")))
        for key in sorted(value):
            entries.append((key, _variant(value[key], depth + 1, size)))
        if any("\0" in key for key in value):
            return Variant("a(ayv)", [(key.encode(), element) for key, element in entries])
        return Variant("a{sv}", dict(entries))
    if isinstance(value, list):
        size.part()
        return Variant("av", [_variant(element, depth + 1, size) for element in value])
    if isinstance(value, str):
        data = utf8(value, "a text of a userInfo")
        size.part(len(data))
        return Variant("(ay)", (data,)) if "\0" in value else Variant("s", value)
    if isinstance(value, bytes):
        size.part(len(value))
        return Variant("ay", value)
    size.part()
    if isinstance(value, bool):
        return Variant("b", value)
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 64:
            raise ValueError(f"a number of a userInfo has up to 64 bits: {_shown(value)}")
        return Variant("x" if value < 1 << 63 else "t", value)
    if isinstance(value, float):
        return Variant("d", value)
    if isinstance(value, datetime):
        try:
            when = value if value.utcoffset() is not None else value.astimezone()
        except OverflowError:
            raise ValueError(f"a date of a userInfo needs a time zone: {_shown(value)}") from None
        return Variant("(d)", ((when - _EPOCH).total_seconds(),))
    raise ValueError(f"a userInfo takes no such value: {_shown(value)}")


def decode(
    body: bytes, signature: str, order: Literal["<", ">"], *, has_name_only: bool = False
) -> tuple[str, str | None, UserInfo | None]:
    """Returns name, object and userInfo of a signal.

    Raises `ValueError` if the signal is not a notification or exceeds a bound.

    :param has_name_only: whether it is a Darwin notification, of which only the name and its flags are read.
    """
    reader, size, found = Body(body, order), _Size(), types(signature)
    if found[:1] != ["s"]:
        raise ValueError("a notification begins with its name")
    name, object_, flags = _text(reader, size), "", 0
    info: UserInfo | None = None
    if found[:3] == ["s", "s", "u"]:
        object_, flags = _text(reader, size), int(reader.number("u"))
        if len(found) > 3 and not has_name_only:
            value = _value(reader, found[3], 0, size)
            if not isinstance(value, dict):
                raise ValueError("the userInfo is no dictionary")
            info = value
    elif not has_name_only:
        if signature not in ("s", "ss"):
            raise ValueError("a notification has the arguments ssua{sv}")
        if signature == "ss":
            object_ = _text(reader, size)
    if flags & ESCAPES_NUL:
        name, object_ = _unescaped(name), _unescaped(object_)
    if has_name_only:
        return name, None, None
    has_info = info is not None and (bool(info) or bool(flags & HAS_USER_INFO))
    return name, object_ if object_ or flags & HAS_OBJECT else None, info if has_info else None


def _unescaped(text: str) -> str:
    output, rest = [], iter(text)
    for character in rest:
        if character == "\\":
            character = {"0": "\0", "\\": "\\"}.get(next(rest, ""), "")
            if not character:
                raise ValueError("a backslash escapes nothing")
        output.append(character)
    return "".join(output)


def _text(reader: Body, size: _Size) -> str:
    """Reads a text. Its size counts before the text is copied."""
    length = reader.length()
    size.add(length)
    return reader.text(length)


def _data(reader: Body, size: _Size) -> bytes:
    length = reader.length()
    size.add(length)
    return reader.take(length)


def _value(reader: Body, type: str, depth: int, size: _Size) -> PropertyList:
    """Reads a value of a userInfo. Its size counts as in a post."""
    if type == "v":
        # D-Bus nests variants at most 64 deep.
        return _value(reader, reader.signature(), depth, size)
    size.part()
    reader.align(type)
    if is_number(type):
        return reader.number(type)
    if type in ("s", "o"):
        return _text(reader, size)
    if type == "g":
        return reader.signature()
    if type == "(d)":
        return _date(float(reader.number("d")))
    if type == "(ay)":
        return _data(reader, size).decode()
    if type == "ay":
        return _data(reader, size)
    is_dictionary = type.startswith("a{s") or type == "a(ayv)"
    if not type.startswith("a") or (type.startswith("a{") and not is_dictionary):
        raise ValueError(f"a userInfo takes no value of type “{type}”")
    if depth >= MAXIMUM_DEPTH:
        raise ValueError(f"the userInfo is nested more than {MAXIMUM_DEPTH} arrays and dictionaries deep")
    length, element = reader.length(), type[1:]
    reader.align(element)
    end = reader.at + length
    if is_dictionary:
        key_type, value_type = types(element[1:-1])
        entries: dict[str, PropertyList] = {}
        while reader.at < end:
            size.part()
            reader.align(element)
            key = _data(reader, size).decode() if key_type == "ay" else _text(reader, size)
            entries[key] = _value(reader, value_type, depth + 1, size)
        return entries
    elements: list[PropertyList] = []
    while reader.at < end:
        elements.append(_value(reader, element, depth + 1, size))
    return elements


def _date(seconds: float) -> datetime:
    """Returns the date, or the nearest date in Python's range: other languages have dates beyond the years 1 to 9999."""
    if math.isnan(seconds):
        raise ValueError("a date is not a number")
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return (datetime.max if seconds > 0 else datetime.min).replace(tzinfo=timezone.utc)
