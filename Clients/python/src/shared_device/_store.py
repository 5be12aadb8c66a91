"""Keeps the record as a file, which all processes of the app share, in any of the libraries' languages."""

from __future__ import annotations

import copy
import fcntl
import json
import os
from collections.abc import Callable
from typing import TypeVar

from ._record import SessionRecord
from ._values import SharedDeviceError

Value = TypeVar("Value")


def default_directory(identifier: str) -> str:
    """The folder of the identifier in $XDG_STATE_HOME. A relative path there is ignored."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return os.path.join(base if base.startswith("/") else os.path.expanduser("~/.local/state"), identifier)


class SessionStore:
    """Reads and changes the record. All functions block, so call them in a thread."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, "shared-device-sessions.json")

    def load(self) -> SessionRecord:
        """Reads the record. Raises `record_unusable`.

        An unreadable record does not count as empty, because that would forget whose data the app holds.
        """
        try:
            with open(self.path, "rb") as file:
                return SessionRecord.from_json(json.load(file))
        except FileNotFoundError:
            return SessionRecord()
        except (OSError, ValueError, RecursionError) as error:
            raise self._unusable("read", error) from error

    def update(self, body: Callable[[SessionRecord], Value]) -> Value:
        """Changes the record. When it returns, the change is on the disk. May run `body` twice. Raises `record_unusable`."""
        before = self.load()
        record = copy.deepcopy(before)
        value = body(record)
        if not record.has_news(before):
            return value
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            lock = os.open(self.path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                # Another process may have changed the record since it was loaded.
                latest = self.load()
                record = copy.deepcopy(latest)
                value = body(record)
                if record.has_news(latest):
                    self._write(json.dumps(record.to_json(), ensure_ascii=False).encode())
                return value
            finally:
                os.close(lock)
        except (OSError, UnicodeEncodeError) as error:
            raise self._unusable("write", error) from error

    def _write(self, data: bytes) -> None:
        """Replaces the file in one step: a crash or a power cut leaves either the old content or the new."""
        file = os.open(self.path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
            os.fsync(file)
        finally:
            os.close(file)
        os.rename(self.path + ".new", self.path)
        folder = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _unusable(self, deed: str, error: Exception) -> SharedDeviceError:
        return SharedDeviceError(
            "record_unusable",
            f"{deed} the record of the sessions whose data this app holds, {self.path}",
            f"{error}. Make it readable and writable; or, to start over, remove all user data of the app, then the file",
        )
