"""The values that an app receives."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Union


def sendable(text: str) -> str:
    """Returns the text without U+0000 and without bytes of file names that are not UTF-8: the bus accepts neither."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


class SharedDeviceError(Exception):
    """A failed request. `code` is a code of the page Interface.md, or `broker_unavailable` or `record_unusable`."""

    def __init__(self, code: str, attempted: str, message: str) -> None:
        super().__init__(f"could not {attempted}: {message} [{code}]")
        self.code = code
        self.attempted = attempted
        self.message = message


@dataclass(frozen=True)
class Account:
    """A user's account. Two accounts are equal if their identifiers are."""

    identifier: str
    username: str = field(compare=False)
    display_name: str | None = field(default=None, compare=False)

    @property
    def folder(self) -> str:
        """A name for the account's folder. Different accounts have different names. A name never leads out of its parent.

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
    """The reason why the app may not show data."""

    STARTING = "starting"
    CHANGING = "changing"
    CLEANUP_FAILED = "cleanup-failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Hidden:
    """The app may not show any user's data: clear the screen, stop running work and wait for its end, close files."""

    reason: Reason
    message: str
    """One line for people."""


@dataclass(frozen=True)
class Nobody:
    """No user is signed in, and the app holds no user's data."""


@dataclass(frozen=True)
class Open:
    """The app may show and store data of this account only."""

    account: Account


State = Union[Hidden, Nobody, Open]


@dataclass(frozen=True)
class EndingSoon:
    """The session is about to end by itself."""

    reason: str
    """`inactivity`, which activity moves, `shiftEnd`, `longestSession` or `lock`. Later versions may add reasons."""
    at: float
    """When, in seconds since 1970, by the device's clock."""
    locks: bool = False
    """Whether the screen is locked at this time instead, and the session goes on."""


@dataclass(frozen=True)
class Cleanup:
    """The argument of a cleanup step."""

    accounts: list[Account]
    """The accounts whose data has to be deleted. The current account can be among them, for an earlier session."""
