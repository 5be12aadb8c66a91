"""Asks the broker for the current account, and keeps the app's record of the sessions whose data it may hold.

Sends one request at a time, because overlapping requests would lose a change or report it twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from notify_center._connection import Variant

from ._broker import Broker
from ._record import DeviceSession, OwedSession, Receipt, Session, SessionRecord, account_from_json, epoch
from ._store import SessionStore
from ._values import Account, SharedDeviceError, sendable

Value = TypeVar("Value")

REPORTING = "report a cleanup to the broker"


@dataclass(frozen=True)
class Change:
    """The account that is signed in, and the sessions whose data the app has to delete."""

    stale: list[Session]
    current: Account | None
    is_held: bool
    """Whether this process may have stored some of the data."""
    is_shared: bool
    """Whether another process of the app may have stored some of the data."""
    marks: dict[int, int]
    """The broker's mark of each session at the time of the change."""

    @property
    def accounts(self) -> list[Account]:
        return list(dict.fromkeys(session.account for session in self.stale))


@dataclass(frozen=True)
class Answer:
    """The broker's response to a request for the current account."""

    session: DeviceSession
    owed: list[OwedSession]
    is_strict: bool

    @staticmethod
    def of(fields: dict[str, Any], attempted: str) -> Answer:
        try:
            account = fields.get("account")
            owed = [
                OwedSession(
                    epoch(one["epoch"]),
                    account_from_json(one["account"]) if "account" in one else None,
                    epoch(one.get("mark", 0)),
                    one.get("shared") is True,
                )
                for one in fields.get("owed", [])
            ]
            session = DeviceSession(account_from_json(account) if account else None, epoch(fields["epoch"]))
            return Answer(session, owed, fields.get("strict") is True)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise SharedDeviceError("broker_failed", attempted, f"malformed broker response: {error!r}") from error


class Keeper:
    """Keeps the sessions for which the app owes a cleanup, in this process and on the disk."""

    def __init__(self, application: str, broker: Broker, store: SessionStore) -> None:
        self._application = application
        self._broker = broker
        self._store = store
        self._turn = asyncio.Lock()
        self._told: DeviceSession | None = None
        self._is_told = False
        # The sessions that this process was told of, and the sessions of which it was told the end. None is cleaned up yet.
        self._held: list[Session] = []
        self._stale: list[Session] = []
        self._last_epoch = 0
        # Whether the device's policy is strict, by the broker's last response; None before the first.
        self._is_strict: bool | None = None

    async def change(self, wants_state: bool) -> Change | None:
        """Returns the change since the last call, or None if nothing has changed.

        :param wants_state: whether the app wants the current state even if nothing has changed.
        """
        async with self._turn:
            answer, known = await self._ask()
            held = list(self._held)

            def enter(record: SessionRecord) -> Change:
                record.reconcile(answer.owed)
                stale = record.enter(answer.session, held, known)
                marks = {one.epoch: one.mark for one in answer.owed}
                is_held = any(one in held for one in stale)
                return Change(stale, answer.session.account, is_held, record.is_shared(stale), marks)

            # Written before the app learns of the account, and so before it can store anything.
            change = await self._update(enter)
            self._hold(answer.session)
            self._stale = change.stale
            is_new = not self._is_told or self._told != answer.session
            self._told, self._is_told = answer.session, True
            return change if is_new or wants_state or change.stale else None

    async def enter(self, session: DeviceSession, attempted: str, is_doubtful: bool) -> None:
        """Records a session before the app receives its token.

        Raises `current_account_mismatch` if the session is over, and `cleanup_required` if the policy is strict and
        there may be data of another session.
        """
        async with self._turn:
            current = (await self._ask())[0].session.epoch if is_doubtful else max(session.epoch, self._last_epoch)
            if current != session.epoch or any(one.epoch == session.epoch for one in self._stale):
                message = "the account has been signed out; get the current account"
                raise SharedDeviceError("current_account_mismatch", attempted, message)
            held = list(self._held)
            stale = await self._update(lambda record: record.enter(session, held))
            self._hold(session)
            # The debt arose during the request. If an administrator has waived it, it is not in the ledger, and the
            # broker did not refuse the token.
            if stale and self._is_strict:
                raise _cleanup_required(attempted)

    async def require_clean(self, account: Account | None, attempted: str) -> int | None:
        """If the policy is strict, checks before a request for a token that the app holds no data of another session.

        Returns `session_of(account)`. Raises `cleanup_required`.

        The broker checks the same by its ledger, which lacks the debts that an administrator has waived.

        :param account: the account of the token; None for a user who is about to sign in.
        """
        async with self._turn:
            if self._is_strict is None:
                await self._ask()
            record = await asyncio.to_thread(self._store.load)
            session = None if account is None else record.session_of(account)
            # An earlier session of the same account is another session, too.
            if self._is_strict and any(one.account != account or one.epoch != session for one in record.may_hold_data):
                raise _cleanup_required(attempted)
            return session

    async def session_of(self, account: Account) -> int | None:
        """The session that this app considers the account's current one."""
        return (await asyncio.to_thread(self._store.load)).session_of(account)

    async def cleaned(self, change: Change, detail: str) -> None:
        """Forgets the sessions, whose data is gone, and then sends the receipts.

        The broker asks again for receipts that do not arrive. If the broker does not count a receipt, its session stays
        owed.
        """
        async with self._turn:
            receipts = await self._update(lambda record: record.cleaned(change.stale, detail, change.marks))
            self._held = [one for one in self._held if one not in change.stale]
            self._stale = [one for one in self._stale if one not in change.stale]
            try:
                refused = await self._send(receipts)
                again = [one for one in change.stale if one.epoch in refused]
                if again:
                    await self._update(lambda record: record.reopen(again))
                    self._stale += again
            except SharedDeviceError as error:
                if error.code != "broker_unavailable":
                    raise

    async def tell(self, change: Change, progress: str, detail: str | None = None) -> None:
        """Reports that the cleanup has begun or failed. The report only informs; it may get lost."""
        for session in change.stale:
            await self._report(progress, Receipt(session.epoch, detail))

    async def _ask(self) -> tuple[Answer, list[Session]]:
        attempted = "get the current account"
        while True:
            known = (await asyncio.to_thread(self._store.load)).may_hold_data
            request = {"application": Variant("s", self._application)}
            answer = Answer.of(await self._broker.call("GetCurrentAccount", request, attempted), attempted)
            self._last_epoch, self._is_strict = answer.session.epoch, answer.is_strict
            if not answer.owed:
                return answer, known
            held = list(self._held)

            def reconcile(record: SessionRecord) -> list[Receipt]:
                record.reconcile(answer.owed)
                return record.receipts(held)

            due = await self._update(reconcile)
            if not due:
                return answer, known
            # These cleanups are done, but the broker was not running or the app ended before the report.
            await self._send(due)

    async def _send(self, receipts: list[Receipt]) -> set[int]:
        """Sends the receipts. Returns the sessions whose cleanup does not count.

        A cleanup does not count if another process of the app ended without a report since the cleanup began.
        """
        answers = {receipt.epoch: await self._report("finished", receipt) for receipt in receipts}
        return {session for session, answer in answers.items() if answer.get("again") is True}

    async def _report(self, progress: str, receipt: Receipt) -> dict[str, Any]:
        request = {
            "application": Variant("s", self._application),
            "session": Variant("t", receipt.epoch),
            "mark": Variant("t", receipt.mark),
            "progress": Variant("s", progress),
        }
        if receipt.detail is not None:
            # Makes the text sendable, because a receipt that cannot be sent would block every request.
            request["detail"] = Variant("s", sendable(receipt.detail)[:2000])
        return await self._broker.call("ReportCleanup", request, REPORTING)

    def _hold(self, session: DeviceSession) -> None:
        if session.account is not None:
            current = Session(session.account, session.epoch)
            if current not in self._held:
                self._held.append(current)

    async def _update(self, body: Callable[[SessionRecord], Value]) -> Value:
        return await asyncio.to_thread(lambda: self._store.update(body))


def _cleanup_required(attempted: str) -> SharedDeviceError:
    message = "this app has not reported the cleanup after an earlier session; run the loop over follow()"
    return SharedDeviceError("cleanup_required", attempted, message)
