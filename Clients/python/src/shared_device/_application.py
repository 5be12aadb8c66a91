"""An app on a shared device."""

from __future__ import annotations

import asyncio
import contextvars
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, Union

from notify_center._connection import Variant

from ._broker import Broker
from ._keeper import Answer, Change, Keeper
from ._record import account_from_json
from ._store import SessionStore, default_directory
from ._values import Account, Cleanup, EndingSoon, Hidden, Nobody, Open, Reason, SharedDeviceError, State, sendable

Step = Callable[[Cleanup], Union[object, Awaitable[object]]]
AnyStep = TypeVar("AnyStep", bound=Step)

ATTEMPTS = 3
PAUSE = 0.1
LONGEST_WAIT = 60.0
ACTIVITY_INTERVAL = 10.0
TIMEOUT = 25.0
"""The time for the broker's response, in seconds."""


@dataclass(frozen=True)
class Token:
    """A token for a server of the organisation, and the account for which it was issued."""

    value: str
    scopes: list[str]
    expires_at: float
    """Seconds since 1970."""
    account: Account


class Application:
    """Follows the account of the device, deletes the data of users who signed out, and reports the deletion.

        application = Application("org.example.notes")

        @application.cleanup("notes")
        def delete(cleanup):
            for account in cleanup.accounts:
                delete_folder(notes / account.folder)

        async for state in application.follow():
            ...

    All calls must come from one event loop.
    """

    def __init__(
        self,
        identifier: str,
        *,
        bus: str | None = None,
        bus_name: str | None = None,
        state_directory: str | None = None,
    ) -> None:
        """
        :param identifier: the app's identifier, in reverse DNS.
        :param bus: `session`, `system` or an address; otherwise $NOTIFY_CENTER_BUS, else the session bus.
        :param bus_name: the bus name in the app's manifest, by which the bus can start the app to clean up.
        :param state_directory: the folder of the record; otherwise the identifier in $XDG_STATE_HOME. It must outlast
            the user data.
        """
        self.identifier = identifier
        self._broker = Broker(bus, bus_name)
        self._keeper = Keeper(identifier, self._broker, SessionStore(state_directory or default_directory(identifier)))
        self._steps: dict[str, Step] = {}
        self._cleaning = asyncio.Lock()
        self._noted_at: float | None = None

    # The cleanup.

    def cleanup(self, name: str) -> Callable[[AnyStep], AnyStep]:
        """Registers a step that removes the data of `Cleanup.accounts`.

        When the step returns, the data must be gone from the disk.

        A function runs in a thread, a coroutine function on the event loop. Steps run one after the other, in the order
        of registration. A step that raises is tried again, three times in all, and later with the whole cleanup, so each
        step must be idempotent. The administrator reads its return value, which must contain amounts and no names.

        A thread cannot be interrupted. If `follow` is cancelled while a function runs, `follow` ends after that function,
        and so before a later `follow` shows the next user. A cancelled coroutine must not leave a deletion running
        either.
        """
        if not name or name in self._steps:
            raise ValueError(f"a step needs a name that no other step has, not {name!r}")

        def register(step: AnyStep) -> AnyStep:
            self._steps[name] = step
            return step

        return register

    # The account.

    async def follow(self) -> AsyncIterator[State]:
        """Yields what the app may show, until the caller stops. Run only one such loop at a time.

        The first state is `Hidden`. Each state waits for the loop's body to end. When the body of `Hidden` has ended,
        the user's data must be off the screen and the app must no longer write any; then the cleanup begins. While a
        cleanup fails or the broker does not respond, the state stays `Hidden`, and both are retried.
        """
        told: State = Hidden(Reason.STARTING, "asking who is signed in")
        yield told
        wants_state, wait = True, 1.0
        while True:
            self._broker.changed.clear()
            try:
                await self._broker.watch()
                change = await self._keeper.change(wants_state)
            except SharedDeviceError as error:
                wants_state = True
                hidden = Hidden(Reason.UNKNOWN, f"it is not known who is signed in: {error}")
                if told != hidden:
                    told = hidden
                    yield told
                await self._pause(1)
                continue
            wants_state = False
            if change is None:
                await self._broker.changed.wait()
            elif change.stale:
                if not (isinstance(told, Hidden) and told.reason is Reason.CLEANUP_FAILED):
                    told = Hidden(Reason.CHANGING, "the user is changing")
                    yield told
                async with self._cleaning:
                    problem = await self._clean(change)
                wants_state = True
                if problem is None:
                    wait = 1.0
                    continue
                failed = Hidden(Reason.CLEANUP_FAILED, f"the previous user's data is not removed yet: {problem}")
                if told != failed:
                    told = failed
                    yield told
                await asyncio.sleep(wait)
                wait = min(wait * 2, LONGEST_WAIT)
            else:
                state: State = Nobody() if change.current is None else Open(change.current)
                if told != state:
                    if isinstance(told, Open):
                        yield Hidden(Reason.CHANGING, "the user is changing")
                    told = state
                    yield told

    async def warnings(self) -> AsyncIterator[EndingSoon | None]:
        """Yields `EndingSoon` before the session ends by itself, and None when the warning is over.

        It ends when the caller stops. The first value comes at once. While the broker does not respond, there is no
        warning. Run it beside `follow`, in a task of its own. A person who wants to stay is active: call
        `note_activity`, which moves the end after inactivity and no other.
        """
        changed = asyncio.Event()
        self._broker.listeners.add(changed)
        try:
            is_first = True
            told: EndingSoon | None = None
            while True:
                changed.clear()
                pause: float | None = None
                try:
                    answer = await self._broker.call("GetDeviceInformation", None, "ask when the session ends")
                    warning = _warning(answer)
                except SharedDeviceError:
                    warning, pause = None, 1
                if is_first or warning != told:
                    is_first, told = False, warning
                    yield warning
                try:
                    await asyncio.wait_for(changed.wait(), pause)
                except TimeoutError:
                    pass
        finally:
            self._broker.listeners.discard(changed)

    async def sign_in(
        self, username: str, password: str, scopes: list[str] | None = None, patience: float = 0
    ) -> Token:
        """Signs a user in for the whole device.

        Raises `SharedDeviceError`. After an error, or if the task is cancelled, the user is not signed in.

        :param patience: how long to wait, in seconds, for the cleanup of the last session before the sign-in.
        """
        await self._wait_until_clean(patience)
        number = str(uuid.uuid4())
        request = {
            "username": Variant("s", username),
            "password": Variant("s", password),
            "wait": Variant("d", patience),
            "request": Variant("s", number),
        }
        try:
            return await self._token("SignIn", request, scopes, "sign in", TIMEOUT + patience)
        except BaseException:
            # The response was late, the record cannot be written or the task was cancelled. The user may have left the
            # device, so a sign-in that failed here must not succeed at the broker.
            self._broker.tell("CancelSignIn", self._fields({"request": Variant("s", number)}))
            raise

    async def token(self, account: Account, scopes: list[str] | None = None) -> Token:
        """Returns a token for the current account, without a prompt.

        Raises `SharedDeviceError`: `current_account_mismatch` if the session that this app knows is over, even if the
        same user has signed in again; `cleanup_required` if the policy is strict and the app has not cleaned up after
        an earlier session.
        """
        attempted = "get a token"
        session = await self._keeper.require_clean(account, attempted)
        return await self._token("AcquireTokenSilently", _of(account, session), scopes, attempted, TIMEOUT)

    async def sign_out(self, account: Account) -> None:
        """Signs the account out for the whole device: all apps delete its data.

        Raises `SharedDeviceError`: `current_account_mismatch` as for `token`.
        """
        # The request names the session, so that a late one does not end another session.
        fields = self._fields(_of(account, await self._keeper.session_of(account)))
        await self._broker.call("SignOut", fields, "sign out")
        # `follow` asks the broker now, before the broadcast arrives.
        self._broker.changed.set()

    def note_activity(self) -> None:
        """Reports that the user is using this app: call it at a key, a touch, a scan.

        Restarts the inactivity timeout after which the device signs the user out.

        Returns at once and may be called often: it sends at most one report every ten seconds. A sign-in has the same
        effect; a request for a token does not.
        """
        now = time.monotonic()
        if self._noted_at is None or now - self._noted_at >= ACTIVITY_INTERVAL:
            self._noted_at = now
            self._broker.tell("ReportActivity", self._fields({}))

    async def close(self) -> None:
        """Ends the connection to the bus. Owed cleanups stay owed."""
        await self._broker.close()

    @property
    def ignored_broadcasts(self) -> int:
        """The number of broadcasts of an account change that did not come from the broker."""
        return self._broker.ignored_broadcasts

    @property
    def bus_name_problem(self) -> str | None:
        """The reason why the bus refused this app its name; None if it did not refuse."""
        return self._broker.bus_name_problem

    def _fields(self, fields: dict[str, Variant]) -> dict[str, Variant]:
        return {"application": Variant("s", self.identifier), **fields}

    async def _token(
        self, method: str, request: dict[str, Variant], scopes: list[str] | None, attempted: str, timeout: float
    ) -> Token:
        await self._broker.watch()
        heard = self._broker.heard
        fields = self._fields({**request, "scopes": Variant("as", scopes or [])})
        answer = await self._broker.call(method, fields, attempted, timeout)
        session = Answer.of(answer, attempted).session
        try:
            token: dict[str, Any] = answer["token"]
            account = account_from_json(answer["account"])
            result = Token(str(token["value"]), list(token["scopes"]), float(token["expiresAt"]), account)
        except (KeyError, TypeError, ValueError) as error:
            raise SharedDeviceError("broker_failed", attempted, f"malformed broker response: {error!r}") from error
        # The record is written first, because the app may store data for the account at once.
        await self._keeper.enter(session, attempted, self._broker.heard != heard)
        return result

    async def _wait_until_clean(self, patience: float) -> None:
        """Waits until the app owes no cleanup: its own cleanup may be in progress in `follow`."""
        deadline = time.monotonic() + patience
        while True:
            try:
                await self._keeper.require_clean(None, "sign in")
                return
            except SharedDeviceError as error:
                if error.code != "cleanup_required" or time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(0.05)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._broker.changed.wait(), seconds)
        except TimeoutError:
            pass

    async def _clean(self, change: Change) -> str | None:
        """Runs the steps and reports. Returns the reason why data may be left, or None if all data is gone."""
        await self._tell(change, "begun")
        results, problems = [], []
        for name, step in list(self._steps.items()):
            try:
                result = await self._run(step, Cleanup(change.accounts))
                results.append(name if result is None else f"{name} ({str(result)[:200]})")
            except Exception as error:
                problems.append(f"“{name}” failed: {type(error).__name__}: {_text(error)[:500]}")
        if problems:
            problem = sendable("; ".join(problems))
            await self._tell(change, "failed", problem)
            return problem
        steps = f"{len(results)} {'step' if len(results) == 1 else 'steps'}"
        try:
            detail = f"{steps}: {', '.join(results)}" if results else steps
            await self._keeper.cleaned(change, sendable(detail))
            return None
        except SharedDeviceError as error:
            return f"all steps are done, but {error}"

    @staticmethod
    async def _run(step: Step, cleanup: Cleanup) -> object:
        attempt = 1
        while True:
            try:
                if asyncio.iscoroutinefunction(step):
                    return await step(cleanup)
                result = await _in_thread(step, cleanup)
                return await result if asyncio.iscoroutine(result) else result
            except Exception:
                if attempt == ATTEMPTS:
                    raise
            attempt += 1
            await asyncio.sleep(PAUSE)

    async def _tell(self, change: Change, progress: str, detail: str | None = None) -> None:
        try:
            await self._keeper.tell(change, progress, detail)
        except SharedDeviceError:
            # The report only informs people who wait; the owed cleanup does not depend on it.
            pass


async def _in_thread(step: Step, cleanup: Cleanup) -> object:
    """Runs a step in a thread. Waits for its end even if the caller is cancelled, because it may still be deleting."""
    # Not a task, because the end of `asyncio.run` cancels all tasks.
    running = asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run, step, cleanup)
    cancellation = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is None:
        return running.result()
    # Marks the error of the step as seen.
    running.exception()
    raise cancellation


def _warning(answer: dict[str, Any]) -> EndingSoon | None:
    reason, at = answer.get("endReason"), answer.get("endsAt")
    if answer.get("endingSoon") is not True or not isinstance(reason, str) or not isinstance(at, float):
        return None
    return EndingSoon(reason, at, answer.get("endLocks") is True)


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:
        return "an error without a text"


def _of(account: Account, session: int | None) -> dict[str, Variant]:
    """The fields of a request about an account's session."""
    fields = {"accountIdentifier": Variant("s", account.identifier)}
    return fields if session is None else {**fields, "session": Variant("t", session)}
