"""The app's side of the connection to the broker: calls, and the broker's broadcasts."""

from __future__ import annotations

import asyncio
from typing import Any

from notify_center._body import Body
from notify_center._connection import DAEMON, BusError, Connection, Signal, Variant

from ._values import SharedDeviceError, sendable

NAME = "org.notifycenter.SharedDevice1"
PATH = "/org/notifycenter/SharedDevice"
ERRORS = NAME + ".Error."
BROADCAST = "org.notifycenter.Darwin1.SHARED_MODE_CURRENT_ACCOUNT_CHANGED"

# Any other code, which a newer broker may send, counts as `broker_failed`.
KNOWN_CODES = frozenset(
    "cleanup_required cleanup_pending no_current_account current_account_mismatch account_already_signed_in "
    "authentication_failed too_many_attempts not_shared_device brt_tenant_mismatch user_not_allowed "
    "workplace_join_required "
    "not_eligible_to_use_broker interaction_required login_expired user_canceled provider_unavailable "
    "provider_misconfigured declined_scope_error not_permitted invalid_request broker_failed".split()
)


class Broker:
    """Calls the broker, and signals when to ask it again. Counts and ignores broadcasts of other processes."""

    def __init__(self, bus: str | None, bus_name: str | None) -> None:
        self.changed = asyncio.Event()
        """Set when the broker's response may have changed: at a broadcast, and when the broker or the bus comes or goes."""
        self.listeners: set[asyncio.Event] = set()
        """Further events that are set together with `changed`. Each has one waiter, which clears it."""
        self.heard = 0
        """Counts these events. If it grows during a request, the response may be outdated."""
        self.ignored_broadcasts = 0
        self.bus_name_problem: str | None = None
        self._connection = Connection(bus)
        self._bus_name = bus_name
        self._owner: str | None = None
        self._is_watching = False
        self._starting = asyncio.Lock()

    async def watch(self) -> None:
        """Subscribes to the broadcasts at the first call. Takes effect before it returns.

        Raises `broker_unavailable` if there is no bus.
        """
        async with self._starting:
            if self._is_watching:
                return
            connection = self._connection
            try:
                await connection.open()
                if self._receive not in connection.on_signal:
                    if self._bus_name is not None:
                        await self._take_name(self._bus_name)
                    connection.on_signal.append(self._receive)
                    connection.on_change.append(self._bus_changed)
                    await connection.add_match(
                        f"type='signal',sender='{DAEMON}',interface='{DAEMON}',member='NameOwnerChanged',arg0='{NAME}'"
                    )
                    await connection.add_match(f"type='signal',path='/org/notifycenter',interface='{BROADCAST}'")
                before = self.heard
                owner = await connection.owner(NAME)
                if before == self.heard:
                    self._owner = owner
                self._is_watching = True
            except BusError as error:
                if not self._is_watching and self._receive in connection.on_signal:
                    connection.on_signal.remove(self._receive)
                    connection.on_change.remove(self._bus_changed)
                raise _unavailable("listen for account changes", error) from error

    async def call(self, method: str, request: dict[str, Variant] | None, attempted: str, timeout: float = 25) -> dict[str, Any]:
        """Calls a method. Raises `SharedDeviceError`: the broker's refusal, or `broker_unavailable`."""
        for name, field in (request or {}).items():
            texts = {"s": [field.value], "as": field.value}.get(field.signature, [])
            # The bus disconnects a program that sends U+0000. The value may be a password, so it is not shown.
            if not all(isinstance(text, str) and text == sendable(text) for text in texts):
                raise SharedDeviceError("invalid_request", attempted, f"“{name}” has to be UTF-8 without U+0000")
        await self.watch()
        try:
            signature, body = ("", []) if request is None else ("a{sv}", [request])
            answer = await self._connection.call(NAME, PATH, NAME, method, signature, body, timeout)
        except BusError as error:
            if not error.name.startswith(ERRORS):
                raise _unavailable(attempted, error) from error
            code = error.name.removeprefix(ERRORS)
            if code not in KNOWN_CODES:
                raise SharedDeviceError("broker_failed", attempted, f"{error.message} [{code}]") from error
            raise SharedDeviceError(code, attempted, error.message) from error
        if not answer or not isinstance(answer[0], dict):
            raise SharedDeviceError("broker_failed", attempted, "the broker's response is not a dictionary")
        return answer[0]

    def tell(self, method: str, request: dict[str, Variant]) -> None:
        """Calls a method without waiting, so that the cancellation of a task cannot prevent it.

        The call arrives after all earlier calls.
        """
        self._connection.tell(NAME, PATH, NAME, method, "a{sv}", [request])

    async def close(self) -> None:
        await self._connection.close()

    async def _take_name(self, name: str) -> None:
        try:
            await self._connection.request_name(name)
        except BusError as error:
            # Continues without the name: an app that the bus cannot start depends even more on the broadcasts.
            self.bus_name_problem = str(error)

    def _receive(self, message: Signal) -> None:
        if message.member == "NameOwnerChanged" and message.sender == DAEMON:
            body = Body(message.body or b"", message.order)
            name, _, owner = (body.text(body.length()) for _ in range(3))
            if name == NAME:
                self._owner = owner or None
                self._nudge()
        elif message.interface == BROADCAST and message.member == "Posted":
            if message.sender is not None and message.sender == self._owner:
                self._nudge()
            else:
                self.ignored_broadcasts += 1

    def _bus_changed(self, is_there: bool) -> None:
        self._owner = None
        # Makes the next request look up the owner again.
        self._is_watching = False
        self._nudge()

    def _nudge(self) -> None:
        self.heard += 1
        for event in (self.changed, *self.listeners):
            event.set()


def _unavailable(attempted: str, error: BusError) -> SharedDeviceError:
    return SharedDeviceError(
        "broker_unavailable",
        attempted,
        f"the shared-device broker does not respond ({error}); see that shared-device-broker runs on this bus",
    )
