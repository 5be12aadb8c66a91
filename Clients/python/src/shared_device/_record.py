"""The record of the sessions whose data an app may hold. Pure; `_store` keeps it on disk, in the Swift library's format.

A session enters the record before the app learns of it, and leaves it when its data is gone. So a crash at any instant
leaves an owed cleanup, never forgotten data. The rules and test vectors are those of the Swift library
(`SessionRecord.swift`, `session-record.json`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._values import Account


@dataclass(frozen=True)
class Session:
    """One session of an account on the device. The same account after a sign-out has another session."""

    account: Account
    epoch: int


@dataclass(frozen=True)
class Receipt:
    """A completed cleanup that the broker has not confirmed yet."""

    epoch: int
    detail: str | None = None
    mark: int = 0
    """The broker's mark when the cleanup began."""


@dataclass(frozen=True)
class DeviceSession:
    """The account that is signed in, and the epoch since when."""

    account: Account | None
    epoch: int


@dataclass(frozen=True)
class OwedSession:
    """A session whose data this app has to delete, according to the broker's ledger."""

    epoch: int
    account: Account | None
    mark: int = 0
    """The broker's mark; 0 if no process of the app has ended without a report.

    It changes when a process ends so, and then at each start of the broker. The receipt returns it: a cleanup that began
    under another mark does not count."""
    is_shared: bool = False
    """Whether the broker also waits for another process of the app, which may store data."""


@dataclass
class SessionRecord:
    """The record. Its functions only change it."""

    last_reported: Account | None = None
    may_hold_data: list[Session] = field(default_factory=list)
    receipts_due: list[Receipt] = field(default_factory=list)
    shared: set[int] = field(default_factory=set)
    """The sessions of which more than one process of this app may hold data."""

    def is_shared(self, sessions: Iterable[Session]) -> bool:
        """Whether another process of the app may store data of these sessions while this process deletes it."""
        return any(session.epoch in self.shared for session in sessions)

    def session_of(self, account: Account) -> int | None:
        """The session that the app considers the account's current one; None if it knows of none."""
        return next((one.epoch for one in reversed(self.may_hold_data) if one.account == account), None)

    def report(self, session: DeviceSession) -> Account | None:
        """Records that the app is told of `session`. Returns the account that it was told of before."""
        before, self.last_reported = self.last_reported, session.account
        return before

    def enter(
        self, session: DeviceSession, held: Sequence[Session] = (), known: Sequence[Session] = ()
    ) -> list[Session]:
        """Records the session that the app is about to be told of. Returns the sessions whose data it has to delete.

        :param held: the sessions that this process was told of and has not cleaned up.
        :param known: the sessions in the record before the request to the broker. A session is over if the response does
            not name it.
        """
        current = None if session.account is None else Session(session.account, session.epoch)
        forgotten = [one for one in held if one != current and one not in self.may_hold_data]
        if forgotten:
            self.may_hold_data = sorted(self.may_hold_data + forgotten, key=lambda one: one.epoch)
        self.shared.update(one.epoch for one in forgotten)
        stale = [one for one in self.may_hold_data if one != current and (one.epoch <= session.epoch or one in known)]
        if current is None:
            return stale
        if current not in self.may_hold_data:
            self.may_hold_data.append(current)
        elif current not in held:
            self.shared.add(current.epoch)
        return stale

    def reconcile(self, owed: Sequence[OwedSession]) -> None:
        """Merges the broker's ledger into the record: a cleanup is owed if either of them has it."""
        self.receipts_due = [
            receipt
            for receipt in self.receipts_due
            if any(one.epoch == receipt.epoch and one.mark == receipt.mark for one in owed)
            and not any(one.epoch == receipt.epoch for one in self.may_hold_data)
        ]
        for one in owed:
            if one.epoch in {other.epoch for other in self.may_hold_data} | {other.epoch for other in self.receipts_due}:
                continue
            if one.account is not None:
                self.may_hold_data.append(Session(one.account, one.epoch))
                self.shared.add(one.epoch)
            else:
                # Neither the broker nor this app still knows the account of this session.
                self.receipts_due.append(Receipt(one.epoch, "no data of this session", one.mark))
        self.may_hold_data.sort(key=lambda one: one.epoch)
        self.shared.update(one.epoch for one in owed if one.is_shared)
        self.shared &= {one.epoch for one in self.may_hold_data}

    def receipts(self, held: Sequence[Session]) -> list[Receipt]:
        """The receipts that this process may send: another process's cleanup does not cover its own data."""
        own = {one.epoch for one in held}
        return [receipt for receipt in self.receipts_due if receipt.epoch not in own]

    def cleaned(
        self, sessions: Sequence[Session], detail: str | None = None, marks: Mapping[int, int] | None = None
    ) -> list[Receipt]:
        """Records that the data of these sessions is gone, and forgets their accounts. Returns the receipts.

        :param marks: the broker's marks when the cleanup began.
        """
        receipts = [Receipt(one.epoch, detail, (marks or {}).get(one.epoch, 0)) for one in sessions]
        self.may_hold_data = [one for one in self.may_hold_data if one not in sessions]
        self.shared &= {one.epoch for one in self.may_hold_data}
        epochs = {one.epoch for one in sessions}
        self.receipts_due = [due for due in self.receipts_due if due.epoch not in epochs] + receipts
        accounts = [one.account for one in self.may_hold_data]
        if self.last_reported in [one.account for one in sessions] and self.last_reported not in accounts:
            self.last_reported = None
        return receipts

    def reopen(self, sessions: Sequence[Session]) -> None:
        """Puts these sessions back into the record, because the broker does not count their receipts.

        Another process of the app may have stored data after the cleanup.
        """
        self.shared.update(one.epoch for one in sessions)
        added = [one for one in sessions if one not in self.may_hold_data]
        self.may_hold_data = sorted(self.may_hold_data + added, key=lambda one: one.epoch)
        epochs = {one.epoch for one in sessions}
        self.receipts_due = [due for due in self.receipts_due if due.epoch not in epochs]

    def has_news(self, other: SessionRecord) -> bool:
        """Whether this record has facts that `other` lacks and that a crash must not lose."""
        return (
            (self.last_reported, self.may_hold_data, self.shared)
            != (other.last_reported, other.may_hold_data, other.shared)
        ) or not all(receipt in other.receipts_due for receipt in self.receipts_due)

    # The form in the file.

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "mayHoldData": [{"account": account_to_json(one.account), "epoch": one.epoch} for one in self.may_hold_data],
            "receiptsDue": [
                {"epoch": one.epoch}
                | ({} if one.detail is None else {"detail": one.detail})
                | ({"mark": one.mark} if one.mark else {})
                for one in self.receipts_due
            ],
            "shared": sorted(self.shared),
        }
        if self.last_reported is not None:
            fields["lastReported"] = account_to_json(self.last_reported)
        return fields

    @staticmethod
    def from_json(fields: Any) -> SessionRecord:
        """Reads a record. Raises `ValueError` if the fields are not a record."""
        try:
            reported = fields.get("lastReported")
            return SessionRecord(
                None if reported is None else account_from_json(reported),
                [Session(account_from_json(one["account"]), epoch(one["epoch"])) for one in fields["mayHoldData"]],
                [
                    Receipt(epoch(one["epoch"]), _detail(one.get("detail")), epoch(one.get("mark", 0)))
                    for one in fields.get("receiptsDue") or []
                ],
                {epoch(one) for one in fields.get("shared") or []},
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"it is no record: {error!r}") from error


def account_to_json(account: Account) -> dict[str, str]:
    fields = {"identifier": account.identifier, "username": account.username}
    return fields if account.display_name is None else fields | {"displayName": account.display_name}


def account_from_json(fields: Any) -> Account:
    """Reads an account, also in the broker's form. Raises `ValueError`, `KeyError` or `TypeError` for anything else."""
    identifier, username = fields["identifier"], fields["username"]
    if not isinstance(identifier, str) or not identifier or not isinstance(username, str):
        raise ValueError("it is no account")
    name = fields.get("displayName")
    return Account(identifier, username, name if isinstance(name, str) else None)


def epoch(value: Any) -> int:
    """Reads a session's number or a mark. Raises `ValueError` for anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
        raise ValueError("a session's number is a whole number of 64 bits")
    return value


def _detail(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError("a receipt's detail is a text")
    return value
