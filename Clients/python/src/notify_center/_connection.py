"""A connection to a message bus that survives the loss of the bus."""

from __future__ import annotations

import asyncio
import os
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

from jeepney import (
    DBusAddress,
    HeaderFields,
    Message,
    MessageFlag,
    MessageType,
    new_error,
    new_method_call,
    new_method_return,
)
from jeepney.auth import BEGIN, Authenticator
from jeepney.io.asyncio import DBusConnection
from jeepney.low_level import Header

DAEMON = "org.freedesktop.DBus"

LARGEST_HEADER = 1 << 16
LARGEST_BODY = (1 << 20) + (1 << 16)
"""The limit for a signal, large enough for any notification. A response that this program requested may be larger."""

Value = TypeVar("Value")


class BusError(Exception):
    """There is no bus, or the response is an error."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{message} [{name}]")
        self.name = name
        """The D-Bus name of the error."""
        self.message = message
        """The reason, for people."""


class Variant(NamedTuple):
    """A value with its D-Bus type, for sending. Received values have plain pairs instead."""

    signature: str
    value: Any


class Signal(NamedTuple):
    """A received signal. Its body is read only on demand, because any process may have sent it."""

    sender: str | None
    path: str
    interface: str
    member: str
    signature: str
    order: Literal["<", ">"]
    """The byte order of the body, as the module `struct` writes it."""
    body: bytes | None
    """None for a body of over `LARGEST_BODY` bytes, which is skipped."""


def address(bus: str | None = None) -> str:
    """Returns the address of a bus.

    :param bus: `session`, `system` or an address; otherwise $NOTIFY_CENTER_BUS, else the session bus.
    """
    name = bus or os.environ.get("NOTIFY_CENTER_BUS") or "session"
    if name == "system":
        return os.environ.get("DBUS_SYSTEM_BUS_ADDRESS") or "unix:path=/run/dbus/system_bus_socket"
    if name != "session":
        return name
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return os.environ.get("DBUS_SESSION_BUS_ADDRESS") or f"unix:path={runtime}/bus"


def plain(signature: str, value: Any) -> Any:
    """Returns a value of this type without its variants."""
    if signature == "v":
        return plain(*value)
    if signature.startswith("a{"):
        return {key: plain(signature[3:-1], element) for key, element in value.items()}
    if signature.startswith("a") and signature != "ay":
        return [plain(signature[1:], element) for element in value]
    return value


def sockets(address: str) -> list[str]:
    """Returns the sockets that an address names, in the order in which to try them.

    Raises `ValueError` if there is none.
    """
    found = []
    for alternative in address.split(";"):
        transport, _, rest = alternative.partition(":")
        options = {key: unquote_to_bytes(value) for key, _, value in (pair.partition("=") for pair in rest.split(","))}
        if transport == "unix" and options.get("path"):
            found.append(options["path"])
        elif transport == "unix" and options.get("abstract"):
            found.append(b"\0" + options["abstract"])
    if not found:
        raise ValueError("an address is needed that begins with “unix:path=” or “unix:abstract=”")
    return [os.fsdecode(socket) for socket in found]


async def _open(address: str) -> DBusConnection:
    """Connects to the first bus of the address that responds. Does not send `Hello` yet."""
    problems = []
    for socket in sockets(address):
        try:
            return await _open_socket(socket)
        except Exception as error:
            # jeepney raises many kinds of exceptions if the bus refuses the connection.
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    raise OSError("; ".join(str(problem) for problem in problems))


async def _open_socket(socket: str) -> DBusConnection:
    """Connects to one socket. Does not send `Hello` yet.

    jeepney's own function sends it, and fails if the message after the response is unreadable.
    """
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        authenticator = Authenticator()
        for line in authenticator:
            writer.write(line)
            await writer.drain()
            answer = await reader.read(1024)
            if not answer:
                raise EOFError("it has hung up")
            authenticator.feed(answer)
        writer.write(BEGIN)
        await writer.drain()
    except BaseException:
        writer.close()
        raise
    return DBusConnection(reader, writer)


class _Link:
    """One connection, from its `Hello` to its loss. A task reads it."""

    def __init__(self, connection: DBusConnection, on_signal: Callable[[Signal], None]) -> None:
        self._connection = connection
        self._on_signal = on_signal
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self.rules: set[str] = set()
        """The match rules that this connection has added to the bus."""
        self.reading = asyncio.create_task(self._read())

    async def call(self, message: Message, timeout: float) -> list[Any]:
        serial = next(self._connection.outgoing_serial)
        answer = self._waiting[serial] = asyncio.get_running_loop().create_future()
        member = message.header.fields[HeaderFields.member]
        try:
            async with asyncio.timeout(timeout):
                await self._send(message, serial)
                reply = await answer
        except TimeoutError:
            raise BusError(f"{DAEMON}.Error.NoReply", f"there was no response to {member} within {timeout} s") from None
        finally:
            self._waiting.pop(serial, None)
            answer.cancel()
        fields = reply.header.fields
        if reply.header.message_type is MessageType.error:
            text = reply.body[0] if reply.body and isinstance(reply.body[0], str) else ""
            raise BusError(fields[HeaderFields.error_name], text)
        if len(reply.body) == 1:
            return [plain(fields[HeaderFields.signature], reply.body[0])]
        return list(reply.body)

    async def send(self, message: Message) -> None:
        await self._send(message, None)

    async def add_match(self, rule: str) -> None:
        """Adds a rule to the bus unless the bus has it. The bus would keep each copy of a rule."""
        if rule in self.rules:
            return
        try:
            await self.call(_daemon_call("AddMatch", "s", [rule]), 25)
        except BaseException:
            # The bus may have added the rule, or may still add it.
            self.remove_match(rule)
            raise
        self.rules.add(rule)

    def remove_match(self, rule: str) -> None:
        """Removes a rule from the bus.

        Does not wait, so that the cancellation of a task cannot leave the rule in force.
        """
        self.rules.discard(rule)
        message = _daemon_call("RemoveMatch", "s", [rule])
        message.header.flags |= MessageFlag.no_reply_expected
        self.tell(message)

    def tell(self, message: Message) -> None:
        """Sends a message without waiting. A response is ignored."""
        if not self.reading.done():
            self._connection.writer.write(message.serialise(next(self._connection.outgoing_serial)))

    async def _send(self, message: Message, serial: int | None) -> None:
        try:
            if self.reading.done():
                raise EOFError("it has hung up")
            await self._connection.send(message, serial=serial)
        except (OSError, EOFError) as error:
            raise _gone(error) from error

    async def _refuse(self, header: Header) -> None:
        """Responds to a call: to `Ping` with success, to every other call with an error.

        A service sends `Ping` to learn whether its responses are read.
        """
        if header.flags & MessageFlag.no_reply_expected:
            return
        call, fields = Message(header, ()), header.fields
        if fields.get(HeaderFields.interface) == f"{DAEMON}.Peer" and fields[HeaderFields.member] == "Ping":
            await self._connection.send(new_method_return(call))
        else:
            await self._connection.send(new_error(call, f"{DAEMON}.Error.UnknownMethod", "s", ("nothing is served here",)))

    async def close(self) -> None:
        self.reading.cancel()
        await asyncio.gather(self.reading, return_exceptions=True)

    async def _receive(self) -> None:
        """Reads one message and passes it on.

        Any process may send a hostile message: with a descriptor's number but without the descriptor, so that jeepney
        cannot read it, or with a body that takes jeepney seconds to read. Such a message is skipped.
        """
        reader = self._connection.reader
        start = await reader.readexactly(16)
        order: Literal["<", ">"] = "<" if start[:1] == b"l" else ">"
        kind = start[1]
        body_size, _, fields_size = struct.unpack(f"{order}4xIII", start)
        padded_size = -(-fields_size // 8) * 8
        is_reply = kind in (MessageType.method_return.value, MessageType.error.value)
        if padded_size > LARGEST_HEADER:
            await self._skip(padded_size + body_size)
            return
        head = start + await reader.readexactly(padded_size)
        if body_size > LARGEST_BODY and not is_reply:
            await self._skip(body_size)
            body = None
        else:
            body = await reader.readexactly(body_size)
        try:
            header, _ = Header.from_buffer(head)
            fields = header.fields
            if kind == MessageType.signal.value:
                signal = Signal(
                    fields.get(HeaderFields.sender),
                    fields[HeaderFields.path],
                    fields[HeaderFields.interface],
                    fields[HeaderFields.member],
                    fields.get(HeaderFields.signature, ""),
                    order,
                    body,
                )
            elif is_reply and body is not None:
                answer = self._waiting.get(fields.get(HeaderFields.reply_serial, 0))
                if answer is not None and not answer.done():
                    answer.set_result(Message.from_buffer(head + body))
                return
        except Exception:
            return
        if kind == MessageType.signal.value:
            self._on_signal(signal)
        elif kind == MessageType.method_call.value:
            await self._refuse(header)

    async def _skip(self, size: int) -> None:
        while size:
            size -= len(await self._connection.reader.readexactly(min(size, 1 << 16)))

    async def _read(self) -> None:
        reason: BaseException = EOFError("it has hung up")
        try:
            while True:
                await self._receive()
        except asyncio.IncompleteReadError:
            pass
        except Exception as error:
            # The connection has ended, or the bytes do not show where the next message begins.
            reason = error
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(_gone(reason))
            self._connection.writer.close()


def _is_refusal(error: BusError) -> bool:
    """Whether the bus has responded with a refusal."""
    return error.name not in {f"{DAEMON}.Error.{name}" for name in ("Disconnected", "NoReply", "NoServer")}


def _gone(reason: BaseException) -> BusError:
    return BusError(f"{DAEMON}.Error.Disconnected", f"the bus is gone: {reason}")


class Connection:
    """Connects at the first call, and again after an outage. For one event loop."""

    _shared: ClassVar[dict[tuple[asyncio.AbstractEventLoop, str], Connection]] = {}

    @classmethod
    def shared(cls, address: str) -> Connection:
        """The connection of the running event loop to this address."""
        for key in list(cls._shared):
            if key[0].is_closed():
                cls._shared.pop(key, None)
        return cls._shared.setdefault((asyncio.get_running_loop(), address), Connection(address))

    def __init__(self, bus: str | None = None) -> None:
        self.address = address(bus)
        self.on_signal: list[Callable[[Signal], None]] = []
        """Called with each received signal, in the order of the bus."""
        self.on_change: list[Callable[[bool], None]] = []
        """Called when the bus is lost (False), and when it is back and all match rules are added again (True)."""
        self.users = 0
        """The number of `async with` blocks that use the connection."""
        self._link: _Link | None = None
        self._rules: Counter[str] = Counter()
        self._names: list[str] = []
        self._connecting = asyncio.Lock()
        self._watcher: asyncio.Task[None] | None = None

    async def open(self) -> _Link:
        """Returns the current connection, or connects if there is none. Raises `BusError`."""
        async with self._connecting:
            return await self._open()

    async def _open(self) -> _Link:
        """As `open`, for a caller that holds the lock."""
        if self._link is None:
            self._link = await self._connect()
            if self._watcher is None or self._watcher.done():
                self._watcher = asyncio.create_task(self._watch())
        return self._link

    async def close_unless_used(self) -> None:
        """Ends the connection if neither a block of `async with` nor an observation uses it."""
        if self.users == 0 and not self._rules:
            await self.close()

    async def close(self) -> None:
        """Ends the connection. The next call connects again."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        link, self._link = self._link, None
        if link is not None:
            await link.close()

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
        """Calls a method and returns its response without variants. Raises `BusError`."""
        link = await self.open()
        return await link.call(_call(destination, path, interface, member, signature, body), timeout)

    def tell(
        self, destination: str, path: str, interface: str, member: str, signature: str, body: list[Any]
    ) -> None:
        """Calls a method without waiting for the response, which is ignored.

        If there is no connection, nothing is sent.
        """
        if self._link is not None:
            self._link.tell(_call(destination, path, interface, member, signature, body))

    async def send(self, message: Message) -> None:
        """Sends a message that has no response. Raises `BusError`."""
        link = await self.open()
        await link.send(message)

    async def add_match(self, rule: str) -> None:
        """Subscribes to the messages that match the rule, now and after each outage. Takes effect before it returns."""
        async with self._connecting:
            await (await self._open()).add_match(rule)
            self._rules[rule] += 1

    def remove_match(self, rule: str) -> None:
        """Undoes one `add_match`. The last call for a rule removes the rule from the bus."""
        self._rules[rule] -= 1
        self._rules += Counter()
        if rule not in self._rules and self._link is not None:
            self._link.remove_match(rule)

    async def request_name(self, name: str) -> None:
        """Requests a name on the bus, now and after each outage.

        Does not replace another owner. If the bus refuses the name, it is not requested again.
        """
        self._names.append(name)
        try:
            await self._daemon("RequestName", "su", [name, 4])
        except BusError as error:
            if _is_refusal(error):
                self._names.remove(name)
            raise

    async def owner(self, name: str) -> str | None:
        """The unique name of the connection that owns a name; None if there is no owner."""
        try:
            return str((await self._daemon("GetNameOwner", "s", [name]))[0])
        except BusError as error:
            if error.name == f"{DAEMON}.Error.NameHasNoOwner":
                return None
            raise

    async def _daemon(self, member: str, signature: str, body: list[Any]) -> list[Any]:
        return await (await self.open()).call(_daemon_call(member, signature, body), 25)

    async def _connect(self) -> _Link:
        try:
            link = _Link(await asyncio.wait_for(_open(self.address), 25), self._receive)
        except Exception as error:
            # jeepney raises many kinds of exceptions for a wrong address or a bus that refuses.
            raise self._no_bus(error) from error
        try:
            try:
                await link.call(_daemon_call("Hello", "", []), 25)
            except BusError as error:
                raise self._no_bus(error) from error
            for rule in list(self._rules):
                await link.add_match(rule)
            for name in list(self._names):
                try:
                    await link.call(_daemon_call("RequestName", "su", [name, 4]), 25)
                except BusError as error:
                    # Without the name the bus cannot start this program, but everything else works.
                    if not _is_refusal(error):
                        raise
            # Removes the rules of observations that ended while the connection was being made.
            for rule in link.rules - self._rules.keys():
                link.remove_match(rule)
            return link
        except BaseException:
            await link.close()
            raise

    def _no_bus(self, reason: Exception) -> BusError:
        return BusError(f"{DAEMON}.Error.NoServer", f"no bus at {self.address}: {reason}")

    def _receive(self, signal: Signal) -> None:
        _tell(self.on_signal, signal)

    async def _watch(self) -> None:
        while (link := self._link) is not None:
            await asyncio.wait([link.reading])
            self._link = None
            _tell(self.on_change, False)
            pause = 0.05
            while True:
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1)
                try:
                    async with self._connecting:
                        if self._link is None:
                            self._link = await self._connect()
                    break
                except BusError:
                    continue
            _tell(self.on_change, True)


def _tell(listeners: list[Callable[[Value], None]], value: Value) -> None:
    """Calls each listener. The exception of a listener is reported; the connection and other listeners go on."""
    for listener in list(listeners):
        try:
            listener(value)
        except Exception as error:
            report = {"message": f"a listener of the bus failed: {listener!r}", "exception": error}
            asyncio.get_running_loop().call_exception_handler(report)


def _daemon_call(member: str, signature: str, body: list[Any]) -> Message:
    return _call(DAEMON, "/org/freedesktop/DBus", DAEMON, member, signature, body)


def _call(destination: str, path: str, interface: str, member: str, signature: str, body: list[Any] | None) -> Message:
    place = DBusAddress(path, bus_name=destination, interface=interface)
    return new_method_call(place, member, signature or None, tuple(body or ()))
