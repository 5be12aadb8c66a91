"""Finds out which names are reserved. Observers of notify(3) accept a post of a reserved name only from notifyd."""

from __future__ import annotations

import errno
import os
import stat
from functools import cache

STANDARD_FILE = "/etc/notify.conf"
FILE_IN_SANDBOX = "/run/host/etc/notify.conf"
LARGEST_FILE = 1 << 20
LARGEST_LINE = 1023
HIDDEN_ROOT = 65_534
"""The user that stands for root in a sandbox's user namespace without root."""


def is_reserved(name: str) -> bool:
    """Whether the name is reserved, so that not every user may post it.

    Raises `OSError` if the machine's file cannot be read or trusted: it may reserve any name.
    """
    if name.startswith("user.uid."):
        return True
    if name.startswith("self."):
        return False
    path = os.environ.get("NOTIFY_CENTER_CONFIGURATION") or STANDARD_FILE
    text = name.encode("utf-8", "surrogatepass")
    matching = [prefix for prefix in _reservations(path) if text.startswith(prefix)]
    return bool(matching) and not _reservations(path)[max(matching, key=len)]


@cache
def _reservations(path: str) -> dict[bytes, bool]:
    """The prefixes of the file, and for each whether every user may post names that begin with it."""
    try:
        return parse(_read(path))
    except FileNotFoundError:
        return _reservations(FILE_IN_SANDBOX) if path == STANDARD_FILE else {}


def _read(path: str) -> bytes:
    """The bytes of a file that only root or this user can have written."""
    try:
        # Non-blocking, because the file may be a pipe without a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except NotADirectoryError as error:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", path) from error
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        owners = {0, os.geteuid()} | ({HIDDEN_ROOT} if path in (STANDARD_FILE, FILE_IN_SANDBOX) and _hides_root() else set())
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError(errno.EPERM, "it is not a regular file", path)
        if status.st_uid not in owners or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(errno.EPERM, "a user other than root and this one may have written it", path)
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise OSError(errno.EFBIG, f"it has more than {LARGEST_FILE} bytes", path)
    return content


def _hides_root() -> bool:
    with open("/proc/self/uid_map", "rb") as file:
        return all(line.split()[0] != b"0" for line in file)


def parse(content: bytes) -> dict[bytes, bool]:
    """The lines `reserve PREFIX [UID [GID [ACCESS]]]` of notify.conf(5). Lines with an error have no effect."""
    found: dict[bytes, bool] = {}
    for line in content.split(b"\n"):
        words = line.replace(b"\r", b" ").replace(b"\t", b" ").split(b" ")
        words = [word for word in words if word]
        if len(line) > LARGEST_LINE or b"\0" in line or not words or not _is_text(line):
            continue
        keyword = words[0].lower()
        if keyword == b"quit" and len(words) == 1:
            break
        if keyword != b"reserve" or not 2 <= len(words) <= 5 or words[1].startswith((b"self.", b"user.uid.")):
            continue
        if not all(number.isdigit() and int(number) < 1 << 32 for number in words[2:4]):
            continue
        access = words[4] if len(words) == 5 else b"rwrwrw"
        if len(access) == 6 and all(letter in (wanted, ord("-")) for letter, wanted in zip(access, b"rwrwrw")):
            found[words[1]] = access.endswith(b"w")
    return found


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
