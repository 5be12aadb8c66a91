"""A connection to a message bus that survives the loss of the bus."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus
from dbus_fast.errors import DBusFastError

DAEMON = "org.freedesktop.DBus"


class BusError(Exception):
    """The bus is away, or somebody has answered with an error."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{message} [{name}]")
        self.name = name
        """The D-Bus name of the error."""
        self.message = message
        """The reason, for people."""


def address(bus: str | None = None) -> str:
    """The address of a bus: `session`, `system`, or an address; otherwise $NOTIFY_CENTER_BUS, else the session bus."""
    name = bus or os.environ.get("NOTIFY_CENTER_BUS") or "session"
    if name == "system":
        return os.environ.get("DBUS_SYSTEM_BUS_ADDRESS") or "unix:path=/run/dbus/system_bus_socket"
    if name != "session":
        return name
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return os.environ.get("DBUS_SESSION_BUS_ADDRESS") or f"unix:path={runtime}/bus"


def plain(value: Any) -> Any:
    """A value without D-Bus's variants."""
    if isinstance(value, Variant):
        return plain(value.value)
    if isinstance(value, dict):
        return {key: plain(element) for key, element in value.items()}
    if isinstance(value, list):
        return [plain(element) for element in value]
    return value


class Connection:
    """Connects with the first call, and again after an outage. All of it runs on one event loop."""

    def __init__(self, bus: str | None = None) -> None:
        self.address = address(bus)
        self.on_signal: list[Callable[[Message], None]] = []
        """Called with each signal that arrives, in the bus's order."""
        self.on_change: list[Callable[[bool], None]] = []
        """Called when the bus is lost (False), and when it is back and all match rules are in force (True)."""
        self._bus: MessageBus | None = None
        self._rules: Counter[str] = Counter()
        self._names: list[str] = []
        self._connecting = asyncio.Lock()
        self._watcher: asyncio.Task[None] | None = None

    async def open(self) -> MessageBus:
        """The connection, made anew if there is none. Raises `BusError`."""
        async with self._connecting:
            if self._bus is None:
                self._bus = await self._connect()
                if self._watcher is None or self._watcher.done():
                    self._watcher = asyncio.create_task(self._watch())
            return self._bus

    async def close(self) -> None:
        """Ends the connection. The next call makes another."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        bus, self._bus = self._bus, None
        if bus is not None:
            bus.disconnect()

    async def call(
        self,
        destination: str,
        path: str,
        interface: str,
        member: str,
        signature: str = "",
        body: list[Any] | None = None,
        timeout: float = 25,
    ) -> list[Any]:
        """Calls a method, and returns its answer without variants. Raises `BusError`."""
        return await self._call(await self.open(), _call(destination, path, interface, member, signature, body), timeout)

    async def send(self, message: Message) -> None:
        """Sends a message that nobody answers. Raises `BusError`."""
        bus = await self.open()
        try:
            await asyncio.wait_for(_sent(bus, message), 25)
        except (DBusFastError, OSError, EOFError, TimeoutError) as error:
            raise BusError(f"{DAEMON}.Error.Disconnected", f"the bus takes nothing: {error}") from error

    async def add_match(self, rule: str) -> None:
        """Has the bus send what fits the rule, now and after each outage. In force on return."""
        self._rules[rule] += 1
        try:
            await self._daemon("AddMatch", "s", [rule])
        except BaseException:
            self._rules[rule] -= 1
            raise

    async def remove_match(self, rule: str) -> None:
        """Undoes one `add_match`. A bus that is away needs to know nothing."""
        self._rules[rule] -= 1
        self._rules += Counter()
        if self._bus is not None:
            try:
                await self._daemon("RemoveMatch", "s", [rule])
            except BusError:
                pass

    async def request_name(self, name: str) -> None:
        """Owns a name on the bus, now and after each outage. Another process that has it keeps it."""
        self._names.append(name)
        await self._daemon("RequestName", "su", [name, 4])

    async def owner(self, name: str) -> str | None:
        """The connection that owns a name; None if nobody does."""
        try:
            return str((await self._daemon("GetNameOwner", "s", [name]))[0])
        except BusError as error:
            if error.name == f"{DAEMON}.Error.NameHasNoOwner":
                return None
            raise

    async def _daemon(self, member: str, signature: str, body: list[Any]) -> list[Any]:
        return await self.call(DAEMON, "/org/freedesktop/DBus", DAEMON, member, signature, body)

    @staticmethod
    async def _call(bus: MessageBus, message: Message, timeout: float) -> list[Any]:
        try:
            answer = await asyncio.wait_for(bus.call(message), timeout)
        except TimeoutError:
            raise BusError(f"{DAEMON}.Error.NoReply", f"{message.member} was not answered within {timeout} s") from None
        except (DBusFastError, OSError, EOFError) as error:
            raise BusError(f"{DAEMON}.Error.Disconnected", f"the bus is gone: {error}") from error
        if answer is None:
            raise BusError(f"{DAEMON}.Error.Disconnected", "the bus is gone")
        if answer.message_type is MessageType.ERROR:
            text = answer.body[0] if answer.body and isinstance(answer.body[0], str) else ""
            raise BusError(answer.error_name or "", text)
        return [plain(value) for value in answer.body]

    async def _connect(self) -> MessageBus:
        bus: MessageBus | None = None
        try:
            bus = MessageBus(bus_address=self.address)
            await asyncio.wait_for(bus.connect(), 25)
            bus.add_message_handler(self._receive)
            for rule in self._rules:
                await self._call(bus, _call(DAEMON, "/org/freedesktop/DBus", DAEMON, "AddMatch", "s", [rule]), 25)
            for name in self._names:
                await self._call(bus, _call(DAEMON, "/org/freedesktop/DBus", DAEMON, "RequestName", "su", [name, 4]), 25)
            return bus
        except BaseException as error:
            if bus is not None:
                bus.disconnect()
            if isinstance(error, (BusError, asyncio.CancelledError)) or not isinstance(error, Exception):
                raise
            # dbus-fast reports an address that is wrong, or a bus that refuses, by many exceptions.
            raise BusError(f"{DAEMON}.Error.NoServer", f"no bus at {self.address}: {error}") from error

    def _receive(self, message: Message) -> None:
        if message.message_type is MessageType.SIGNAL:
            for listener in list(self.on_signal):
                listener(message)

    async def _watch(self) -> None:
        while (bus := self._bus) is not None:
            await asyncio.gather(bus.wait_for_disconnect(), return_exceptions=True)
            self._bus = None
            for listener in list(self.on_change):
                listener(False)
            pause = 0.05
            while True:
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1)
                try:
                    async with self._connecting:
                        if self._bus is None:
                            self._bus = await self._connect()
                    break
                except BusError:
                    continue
            for listener in list(self.on_change):
                listener(True)


def _call(destination: str, path: str, interface: str, member: str, signature: str, body: list[Any] | None) -> Message:
    return Message(
        destination=destination, path=path, interface=interface, member=member, signature=signature, body=body or []
    )


async def _sent(bus: MessageBus, message: Message) -> None:
    await bus.send(message)
