"""How a notification travels. The page WireProtocol.md of the project describes it. Pure."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Union

from ._connection import Variant

PATH = "/org/notifycenter"
MEMBER = "Posted"
DARWIN = "org.notifycenter.Darwin1"
DISTRIBUTED = "org.notifycenter.Distributed1"

IMMEDIATELY, HAS_OBJECT, HAS_USER_INFO, ESCAPES_NUL = 1 << 0, 1 << 8, 1 << 9, 1 << 10

MAXIMUM_SIZE = 1 << 20
MAXIMUM_DEPTH = 20

PropertyList = Union[str, int, float, bool, datetime, bytes, list["PropertyList"], dict[str, "PropertyList"]]
"""What a userInfo may contain. A `datetime` without a zone is local time; what arrives is in UTC."""

UserInfo = dict[str, PropertyList]

_EPOCH = datetime(2001, 1, 1, tzinfo=timezone.utc)
_ALPHANUMERIC = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_DIGITS = frozenset(b"0123456789")


def interface_name(name: str, prefix: str) -> str:
    """The D-Bus interface that a notification's name travels as."""
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
    """The UTF-8 of a text. Raises `ValueError`, which names the value, for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{role} is a text, not {_shown(value)}")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{role} has half of a surrogate pair, which has no UTF-8: {_shown(value)}") from None


def _shown(value: object) -> str:
    return f"the {type(value).__name__} {reprlib.repr(value)}"


class _Size:
    """Counts as every receiver does: 64 bytes for each part, and the bytes of texts and data."""

    def __init__(self) -> None:
        self.bytes = 64

    def add(self, length: int) -> None:
        self.bytes += length
        if self.bytes > MAXIMUM_SIZE:
            raise ValueError(f"the notification is over {MAXIMUM_SIZE} bytes; put the data in a file and send its name")

    def part(self, length: int = 0) -> None:
        self.add(64 + length)


def encode(name: str, object: str | None, user_info: UserInfo | None, immediately: bool) -> tuple[str, list[Any]]:
    """Signature and arguments of a post. Raises `ValueError` for what no receiver takes."""
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


def decode(arguments: Sequence[Any], signature: str) -> tuple[str, str | None, UserInfo | None]:
    """Name, object and userInfo of a signal. Raises `ValueError` if it is no notification."""
    if not arguments or not isinstance(arguments[0], str):
        raise ValueError("a notification begins with its name")
    name, object_, flags = arguments[0], "", 0
    info: UserInfo | None = None
    if signature.startswith("ssu"):
        object_, flags = arguments[1], arguments[2]
        if len(arguments) > 3:
            found = _value(signature[3:], arguments[3])
            if not isinstance(found, dict):
                raise ValueError("the userInfo is no dictionary")
            info = found
    elif signature not in ("s", "ss"):
        raise ValueError("a notification has the arguments ssua{sv}")
    elif signature == "ss":
        object_ = arguments[1]
    if flags & ESCAPES_NUL:
        name, object_ = _unescaped(name), _unescaped(object_)
    size = _Size()
    for text in (name, object_):
        size.add(len(text.encode()))
    if info is not None:
        _variant(info, 0, size)
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


def _value(signature: str, value: Any) -> PropertyList:
    if signature == "v":
        return _value(*value)
    if signature == "(d)":
        return _EPOCH + timedelta(seconds=value[0])
    if signature == "(ay)":
        return bytes(value[0]).decode()
    if signature == "ay":
        return bytes(value)
    if signature == "a(ayv)":
        return {bytes(key).decode(): _value(*element) for key, element in value}
    if signature in ("a{sv}", "a{ss}"):
        return {key: _value(signature[3:-1], element) for key, element in value.items()}
    if signature.startswith("a") and not signature.startswith("a{"):
        return [_value(signature[1:], element) for element in value]
    if signature in ("s", "o", "g", "y", "b", "n", "q", "i", "u", "x", "t", "d"):
        found: PropertyList = value
        return found
    raise ValueError(f"a userInfo takes no {signature}")
