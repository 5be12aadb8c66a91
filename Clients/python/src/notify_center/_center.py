"""The two centers: Darwin names, and names with an object and a userInfo."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from types import TracebackType

from jeepney import DBusAddress, new_signal

from . import _wire
from ._access import is_reserved
from ._connection import DAEMON, BusError, Connection, Signal, address


NOTIFYD = "org.notifycenter.Notifyd1"


@dataclass(frozen=True)
class Notification:
    """A notification as an observer receives it."""

    name: str
    object: str | None = None
    """The object that the notification is about; only in the distributed center."""
    user_info: _wire.UserInfo | None = None
    sender: str | None = None
    """The bus name of the process that posted it. The bus guarantees it."""


class Center:
    """Posts and observes. Use `darwin()` or `distributed()`.

    All centers of an event loop and a bus share one connection. It ends with the event loop of `asyncio.run`, or
    earlier with the last block of `async with`:

        async with darwin() as center:
            await center.post("com.example.hello")
    """

    def __init__(self, prefix: str, bus: str | None = None) -> None:
        self._prefix = prefix
        self._address = address(bus)

    @property
    def connection(self) -> Connection:
        """The running event loop's connection."""
        return Connection.shared(self._address)

    async def __aenter__(self) -> Center:
        self.connection.users += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.users -= 1
        await self.close()

    async def post(
        self,
        name: str,
        *,
        object: str | None = None,
        user_info: _wire.UserInfo | None = None,
        deliver_immediately: bool = False,
    ) -> None:
        """Posts to all processes of the bus. The Darwin center has names only.

        For a reserved name of the Darwin center (notify.conf(5)), notifyd sends the post if this process may post it.

        Raises `BusError` if there is no bus, or if notifyd is needed and refuses or is not there: the post is lost.
        Raises `ValueError` for values that receivers reject.
        """
        if self._prefix == _wire.DARWIN and (object is not None or user_info is not None or deliver_immediately):
            raise ValueError("a Darwin notification is a name and nothing else; use distributed()")
        signature, arguments = _wire.encode(name, object, user_info, deliver_immediately)
        if self._prefix == _wire.DARWIN and _is_reserved(name):
            await self.connection.call(NOTIFYD, "/org/notifycenter/Notifyd", NOTIFYD, "Post", "s", [name])
            return
        emitter = DBusAddress(_wire.PATH, interface=_wire.interface_name(name, self._prefix))
        await self.connection.send(new_signal(emitter, _wire.MEMBER, signature, tuple(arguments)))

    def observe(self, name: str, *, object: str | None = None, limit: int = 1000) -> Observation:
        """Observes a name; with `object`, only the notifications about it.

        :param limit: the maximum number of waiting notifications, at least 1. Beyond it, the oldest are dropped and
            counted.
        """
        if object is not None:
            _wire.utf8(object, "the object of a notification")
        if limit < 1:
            raise ValueError(f"the limit of an observation is at least 1, not {limit}")
        return Observation(self, name, object, limit)

    async def close(self) -> None:
        """Ends the shared connection, unless an observation or a block of `async with` uses it.

        The next use makes another.
        """
        await self.connection.close_unless_used()


class Observation:
    """Notifications of one name, in the order of the bus.

    Takes effect inside `async with`, and is restored after an outage of the bus.
    """

    def __init__(self, center: Center, name: str, object: str | None, limit: int) -> None:
        self.dropped = 0
        """The number of notifications that were dropped because too many waited."""
        self.malformed = 0
        """The number of signals of this name that were not a notification or exceeded a bound."""
        self._center, self._name, self._object, self._limit = center, name, object, limit
        self._interface = _wire.interface_name(name, center._prefix)
        self._rule = f"type='signal',path='{_wire.PATH}',interface='{self._interface}'"
        self._waiting: deque[Notification] = deque()
        self._arrived = asyncio.Event()

    async def __aenter__(self) -> Observation:
        connection = self._connection = self._center.connection
        connection.on_signal.append(self._receive)
        try:
            await connection.add_match(self._rule)
        except BaseException:
            connection.on_signal.remove(self._receive)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.on_signal.remove(self._receive)
        self._connection.remove_match(self._rule)

    def __aiter__(self) -> Observation:
        return self

    async def __anext__(self) -> Notification:
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting.popleft()

    def _receive(self, message: Signal) -> None:
        if message.interface != self._interface or message.path != _wire.PATH or message.member != _wire.MEMBER:
            return
        try:
            if message.body is None:
                raise ValueError("the notification is too large")
            name, object_, info = _wire.decode(
                message.body, message.signature, message.order, has_name_only=self._center._prefix == _wire.DARWIN
            )
        except (ValueError, RecursionError):
            self.malformed += 1
            return
        # Two names may share an interface if it is a digest.
        if name != self._name or (self._object is not None and object_ != self._object):
            return
        if len(self._waiting) >= self._limit:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(Notification(name, object_, info, message.sender))
        self._arrived.set()


def _is_reserved(name: str) -> bool:
    try:
        return is_reserved(name)
    except OSError as error:
        # An unusable file might reserve any name, so no name may be posted.
        raise BusError(f"{DAEMON}.Error.AccessDenied", f"the list of reserved names is unusable: {error}") from error


def darwin(bus: str | None = None) -> Center:
    """Returns the center of Darwin names.

    :param bus: `session`, `system` or an address; otherwise $NOTIFY_CENTER_BUS, else the session bus.
    """
    return Center(_wire.DARWIN, bus)


def distributed(bus: str | None = None) -> Center:
    """Returns the center whose notifications have an object and a userInfo. For the bus see `darwin()`."""
    return Center(_wire.DISTRIBUTED, bus)
