"""What an app is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Union


def sendable(text: str) -> str:
    """The text without U+0000 and without the bytes of a file name that are not UTF-8: no bus takes them."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


class SharedDeviceError(Exception):
    """Why a request failed. `code` is one of the page Interface.md, or `broker_unavailable`, `record_unusable`."""

    def __init__(self, code: str, attempted: str, message: str) -> None:
        super().__init__(f"could not {attempted}: {message} [{code}]")
        self.code = code
        self.attempted = attempted
        self.message = message


@dataclass(frozen=True)
class Account:
    """A person's account. Two are the same if their identifiers are."""

    identifier: str
    username: str = field(compare=False)
    display_name: str | None = field(default=None, compare=False)

    @property
    def folder(self) -> str:
        """The account as the name of a folder. Different accounts have different names; none leads out of its folder.

        Raises `ValueError` if the identifier is too long for a file name.
        """
        name = ""
        for byte in self.identifier.encode():
            character = chr(byte)
            is_plain = character in "abcdefghijklmnopqrstuvwxyz0123456789-" or (character == "." and name)
            name += character if is_plain else f"_{byte:02x}"
        if len(name) > 255:
            raise ValueError("the account's identifier is too long for a file name")
        return name or "_"


class Reason(Enum):
    """Why nothing may be shown."""

    STARTING = "starting"
    CHANGING = "changing"
    CLEANUP_FAILED = "cleanup-failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Hidden:
    """Nobody's data may be shown: clear the screen, stop work under way and wait for its end, close files."""

    reason: Reason
    message: str
    """One line for people."""


@dataclass(frozen=True)
class Nobody:
    """Nobody is signed in, and no user's data is left."""


@dataclass(frozen=True)
class Open:
    """This account's data may be shown and stored, and no other's."""

    account: Account


State = Union[Hidden, Nobody, Open]


@dataclass(frozen=True)
class Cleanup:
    """What a cleanup step is told."""

    accounts: list[Account]
    """Whose data has to go. The current account can be among them, for an earlier session of the same person."""
