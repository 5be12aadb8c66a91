"""The record, by the test vectors for all languages, and its file, which other processes share."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
import unittest
from typing import Any

from device import ROOT
from shared_device._record import DeviceSession, OwedSession, Session, SessionRecord, account_from_json
from shared_device._store import SessionStore
from shared_device._values import Account, SharedDeviceError

VECTORS = ROOT / "Tests/SharedDevice/SharedDeviceTests/session-record.json"


class VectorTests(unittest.TestCase):
    def test_each_step_of_the_vectors_gives_the_expected_result_and_record(self) -> None:
        file = json.loads(VECTORS.read_text())
        accounts = {name: account_from_json(fields) for name, fields in file["accounts"].items()}
        self.assertGreaterEqual(len(file["cases"]), 70)
        for case in file["cases"]:
            record = SessionRecord()
            for number, step in enumerate(case["steps"], 1):
                with self.subTest(case["name"], step=number):
                    self.assertEqual(self.carry_out(step, record, accounts), step.get("gives"))
                    form = {
                        "mayHoldData": [[one.account.username, one.epoch] for one in record.may_hold_data],
                        "receiptsDue": [one.epoch for one in record.receipts_due],
                        "shared": sorted(record.shared),
                        "lastReported": record.last_reported and record.last_reported.username,
                    }
                    self.assertEqual(form, step["record"])

    @staticmethod
    def carry_out(step: dict[str, Any], record: SessionRecord, accounts: dict[str, Account]) -> list[Any] | None:
        def sessions(key: str) -> list[Session]:
            return [Session(accounts[name], epoch) for name, epoch in step.get(key, [])]

        match step["do"]:
            case "enter":
                device = DeviceSession(accounts.get(step["session"][0]), step["session"][1])
                return [one.epoch for one in record.enter(device, sessions("held"), sessions("known"))]
            case "reconcile":
                owed = [
                    OwedSession(
                        one["epoch"], accounts.get(one.get("account")), one.get("mark", 0), one.get("shared", False)
                    )
                    for one in step["owed"]
                ]
                return record.reconcile(owed)
            case "cleaned":
                marks = {one["epoch"]: one["mark"] for one in step.get("owed", [])}
                return [one.epoch for one in record.cleaned(sessions("sessions"), step.get("detail"), marks)]
            case "reopen":
                return record.reopen(sessions("sessions"))
            case "receipts":
                return [one.epoch for one in record.receipts(sessions("held"))]
        before = record.report(DeviceSession(accounts.get(step["session"][0]), step["session"][1]))
        return [before.username] if before else []


class FileTests(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.ada = DeviceSession(Account("1.t", "ada", "Ada"), 7)

    def test_the_file_is_what_the_swift_library_writes(self) -> None:
        store = SessionStore(str(self.folder / "deep/er"))
        store.update(lambda record: (record.enter(self.ada), record.report(self.ada)))
        expected = {
            "lastReported": {"identifier": "1.t", "username": "ada", "displayName": "Ada"},
            "mayHoldData": [{"account": {"identifier": "1.t", "username": "ada", "displayName": "Ada"}, "epoch": 7}],
            "receiptsDue": [],
            "shared": [],
        }
        self.assertEqual(json.loads(pathlib.Path(store.path).read_text()), expected)
        self.assertEqual(store.load().to_json(), expected)
        self.assertEqual(os.stat(store.path).st_mode & 0o777, 0o600)

    def test_a_file_that_cannot_be_read_is_an_error_and_not_an_empty_record(self) -> None:
        store = SessionStore(str(self.folder))
        for content in ["{ not json", "[]", "{}", '{"mayHoldData": [{"epoch": -1}]}', "[" * 100_000, '{"mayHoldData": 3}',
                        '{"mayHoldData": [], "receiptsDue": [{"epoch": 1, "detail": 5}]}']:
            pathlib.Path(store.path).write_text(content)
            with self.subTest(content[:40]), self.assertRaises(SharedDeviceError) as raised:
                store.update(lambda record: record.enter(self.ada))
            self.assertEqual(raised.exception.code, "record_unusable")
            self.assertIn(store.path, str(raised.exception))
            self.assertEqual(pathlib.Path(store.path).read_text(), content)

    def test_a_record_that_cannot_be_written_is_an_error_and_stays(self) -> None:
        store = SessionStore(str(self.folder))
        content = '{"mayHoldData": [{"account": {"identifier": "1.t", "username": "\\ud800"}, "epoch": 3}]}'
        pathlib.Path(store.path).write_text(content)
        with self.assertRaises(SharedDeviceError) as raised:
            store.update(lambda record: record.enter(self.ada))
        self.assertEqual(raised.exception.code, "record_unusable")
        self.assertEqual(pathlib.Path(store.path).read_text(), content)

    def test_a_record_without_news_is_not_written(self) -> None:
        store = SessionStore(str(self.folder))
        store.update(lambda record: record.enter(self.ada))
        store.update(lambda record: record.cleaned(record.may_hold_data))
        before = pathlib.Path(store.path).stat().st_ino
        store.update(lambda record: record.reconcile([]))
        self.assertEqual(pathlib.Path(store.path).stat().st_ino, before)

    def test_an_account_has_the_folder_that_the_swift_library_gives_it(self) -> None:
        for identifier, folder in [("1a-b.t", "1a-b.t"), ("../x", "_2e._2fx"), ("", "_"), ("Ä", "_c3_84"), (".A", "_2e_41")]:
            self.assertEqual(Account(identifier, "x").folder, folder)
        with self.assertRaises(ValueError):
            _ = Account("x" * 256, "x").folder


if __name__ == "__main__":
    unittest.main()
