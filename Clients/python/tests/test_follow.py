"""An app in Python and the real broker."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Awaitable
from typing import Any
from unittest.mock import patch

from device import Device, eventually, needs_programs
from notify_center import darwin
from shared_device import _application, _store
from shared_device import Account, Application, Cleanup, EndingSoon, Hidden, Nobody, Open, Reason, State
from shared_device import SharedDeviceError

APP = str(pathlib.Path(__file__).with_name("app.py"))


class Process:
    """The test app as a process; collects its lines."""

    def __init__(self, device: Device, point: str = "") -> None:
        self.device = device
        self.process = device.python(APP, str(device.folder), point)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    async def line(self, text: str) -> None:
        await eventually(f"“{text}” among {self.lines}", lambda: any(text in line for line in self.lines))

    async def end(self) -> int:
        await eventually("the app ends", lambda: self.process.poll() is not None)
        return self.process.returncode

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()


@needs_programs
class FollowTests(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        self.device = Device()
        self.addCleanup(self.device.close)

    def application(self, name: str = "control") -> Application:
        application = Application(
            f"org.example.{name}", bus=self.device.address, state_directory=str(self.device.folder / "records" / name)
        )
        self.addAsyncCleanup(application.close)
        return application

    def start(self, point: str = "") -> Process:
        process = Process(self.device, point)
        self.addCleanup(process.kill)
        return process

    async def sign_in(self, user: str) -> Account:
        return (await self.application().sign_in(user, f"correct horse {user}")).account

    async def round(self, name: str = "org.example.python") -> dict[str, Any]:
        answer = await self.application("asker")._broker.call("GetRound", {}, "ask for the round")
        apps: list[dict[str, Any]] = answer.get("round", {}).get("apps", [])
        return next((app for app in apps if app["identifier"].startswith(name)), {})

    async def reported(self, progress: str) -> dict[str, Any]:
        """Waits until the app has reported this progress. Returns the broker's entry of the app."""
        for _ in range(3000):
            if (app := await self.round()).get("progress") == progress:
                return app
            await asyncio.sleep(0.01)
        self.fail(f"the app has not reported “{progress}”: {await self.round()}")

    async def cleaned(self) -> dict[str, Any]:
        return await self.reported("finished")

    async def test_a_sign_out_reaches_the_app_and_the_receipt_comes_after_the_deletion(self) -> None:
        app = self.start()
        await app.line("Nobody()")
        account = await self.sign_in("ada")
        await app.line("stored for ada")
        await self.application().sign_out(account)
        report = await self.cleaned()
        self.assertEqual(report["detail"], "2 steps: first, secret (1 folder)")
        self.assertFalse((self.device.folder / "data" / account.folder).exists())
        # The broker has the receipt before the app has the response.
        await eventually("it shows no account", lambda: app.lines[-1] == "Nobody()")
        self.assertEqual([line.split("(")[0] for line in app.lines if "stored" not in line],
                         ["Hidden", "Nobody", "Open", "Hidden", "Nobody"])
        record = json.loads((self.device.folder / "record/shared-device-sessions.json").read_text())
        self.assertNotRegex(json.dumps(record), r"\bada\b")

    async def test_the_warning_before_the_end_of_a_shift_comes_and_goes_with_the_configuration(self) -> None:
        shared = {"sharedDeviceMode": True, "passwordSignIn": True}
        warnings = self.application().warnings()
        self.assertIsNone(await anext(warnings))
        await self.sign_in("ada")
        end = time.strftime("%H:%M", time.localtime(time.time() + 6 * 3600))
        self.device.configure({**shared, "shiftEnds": [end], "signOutWarning": 86400})
        warning = await asyncio.wait_for(anext(warnings), 60)
        assert warning is not None
        self.assertEqual(warning.reason, "shiftEnd")
        self.assertAlmostEqual(warning.at, time.time() + 6 * 3600, delta=3600)
        self.device.configure(shared)
        self.assertIsNone(await asyncio.wait_for(anext(warnings), 60))

    async def test_an_app_that_is_killed_at_any_point_cleans_up_before_it_shows_the_next_person(self) -> None:
        before_sign_out = ["before the record is written", "after the record is written", "stored"]
        points = before_sign_out + [
            "before the first step", "before the deletion", "after the deletion", "before the record is forgotten",
            "after the record is forgotten", "before the receipt", "after the receipt",
        ]
        for point in points:
            with self.subTest(point):
                device = self.device = Device()
                self.addCleanup(device.close)
                app = self.start(point)
                await app.line("Hidden")
                account = await self.sign_in("ada")
                secret = device.folder / "data" / account.folder / "secret"
                if point not in before_sign_out:
                    await app.line("stored for ada")
                    await self.application().sign_out(account)
                self.assertEqual(await app.end(), -9)
                if point in before_sign_out:
                    self.assertEqual(secret.exists(), point == "stored")
                    await self.application().sign_out(account)
                await self.sign_in("grace")
                again = self.start()
                await again.line("stored for grace")
                self.assertFalse(secret.exists())
                # As a word: an identifier in hexadecimal may contain the letters.
                self.assertFalse([line for line in again.lines if re.search(r"\bada\b", line)])
                await self.cleaned()
                record = (device.folder / "record/shared-device-sessions.json").read_text()
                self.assertNotIn(account.identifier, record)

    async def test_two_processes_of_one_app_share_the_record_and_each_reports(self) -> None:
        apps = [self.start(), self.start()]
        account = await self.sign_in("ada")
        for app in apps:
            await app.line("stored for ada")
        await self.application().sign_out(account)
        for app in apps:
            await eventually("it shows no account", lambda app=app: app.lines[-1] == "Nobody()")
        await self.cleaned()
        self.assertFalse((self.device.folder / "data" / account.folder).exists())

    async def test_a_step_that_fails_keeps_the_screen_hidden_and_the_debt(self) -> None:
        application, works, states = self.application("python"), [False], list[State]()

        @application.cleanup("data")
        async def delete(cleanup: Cleanup) -> None:
            if not works[0]:
                raise OSError(f"no way to delete {len(cleanup.accounts)}")

        following = asyncio.create_task(self.collect(application, states))
        account = await self.sign_in("ada")
        await eventually("ada is shown", lambda: states and isinstance(states[-1], Open))
        await self.application().sign_out(account)
        await eventually("it says so", lambda: isinstance(states[-1], Hidden) and states[-1].reason is Reason.CLEANUP_FAILED)
        report = await self.reported("failed")
        self.assertEqual(report["detail"], "“data” failed: OSError: no way to delete 1")
        works[0] = True
        await eventually("no account is shown", lambda: states[-1] == Nobody())
        await self.cleaned()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    async def test_follow_continues_after_a_file_name_that_is_not_utf_8(self) -> None:
        class Unprintable(Exception):
            def __str__(self) -> str:
                raise ValueError

        application, states = self.application("python"), list[State]()
        folder = os.fsencode(self.device.folder) + b"/\xff"
        may_go_on = asyncio.Event()

        @application.cleanup("data")
        async def delete(cleanup: Cleanup) -> str:
            if may_go_on.is_set():
                return f"1 folder: {os.fsdecode(folder)}"
            raise OSError(f"no way to delete {os.fsdecode(folder)}\0")

        @application.cleanup("unprintable")
        async def fail(cleanup: Cleanup) -> None:
            if not may_go_on.is_set():
                raise Unprintable

        following = asyncio.create_task(self.collect(application, states))
        account = await self.sign_in("ada")
        await eventually("ada is shown", lambda: states and isinstance(states[-1], Open))
        await self.application().sign_out(account)
        name = f"{self.device.folder}/?"
        self.assertEqual(
            (await self.reported("failed"))["detail"],
            f"“data” failed: OSError: no way to delete {name}; “unprintable” failed: Unprintable: an error without a text",
        )
        may_go_on.set()
        await eventually("no account is shown", lambda: states[-1] == Nobody())
        self.assertEqual((await self.cleaned())["detail"], f"2 steps: data (1 folder: {name}), unprintable")
        self.assertFalse(following.done())
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    async def test_a_follow_that_is_cancelled_during_a_deletion_ends_after_it(self) -> None:
        application, states, later = self.application("python"), list[State](), list[State]()
        begun, may_end, running = threading.Event(), threading.Event(), list[str]()
        self.addCleanup(may_end.set)

        @application.cleanup("data")
        def delete(cleanup: Cleanup) -> None:
            running.append("begins")
            begun.set()
            may_end.wait(60)
            running.append("ends")

        following = asyncio.create_task(self.collect(application, states))
        account = await self.sign_in("ada")
        await eventually("ada is shown", lambda: states and isinstance(states[-1], Open))
        await self.application().sign_out(account)
        await eventually("the deletion begins", begun.is_set)
        following.cancel()
        await self.sign_in("grace")
        again = asyncio.create_task(self.collect(application, later))
        await eventually("the next loop waits", lambda: later and later[-1] == Hidden(Reason.CHANGING, "the user is changing"))
        following.cancel()
        await asyncio.sleep(0)
        self.assertEqual((following.done(), running), (False, ["begins"]))
        may_end.set()
        await asyncio.wait([following])
        self.assertTrue(following.cancelled())
        await eventually("grace is shown", lambda: isinstance(later[-1], Open))
        self.assertEqual(running, ["begins", "ends"] * 2)
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)

    async def test_a_strict_device_gives_no_token_beside_data_whose_cleanup_was_waived(self) -> None:
        device = self.device = Device("strict")
        self.addCleanup(device.close)
        application, states = self.application("python"), list[State]()

        async def refused(asking: Awaitable[object]) -> None:
            with self.assertRaises(SharedDeviceError) as raised:
                await asking
            self.assertEqual(raised.exception.code, "cleanup_required")

        ada = (await application.sign_in("ada", "correct horse ada")).account
        await application.sign_out(ada)
        device.waive("org.example.python")
        await refused(application.sign_in("grace", "correct horse grace"))
        # The same account in another session.
        for user in ("grace", "ada"):
            other = self.application(f"other.{user}")
            account = (await other.sign_in(user, f"correct horse {user}")).account
            # The app learns of the session, as in `follow`, and does not clean up.
            await application._keeper.change(True)
            await refused(application.token(account))
            await other.sign_out(account)
            device.waive(other.identifier)
            device.waive(application.identifier)
        following = asyncio.create_task(self.collect(application, states))
        grace = (await application.sign_in("grace", "correct horse grace", patience=30)).account
        self.assertEqual((await application.token(grace)).account, grace)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    async def test_a_request_about_an_earlier_session_does_not_reach_the_present_one(self) -> None:
        application = self.application("python")
        account = (await application.sign_in("ada", "correct horse ada")).account
        self.device.sign_out()
        await self.sign_in("ada")
        for asking in (application.token(account), application.sign_out(account)):
            with self.assertRaises(SharedDeviceError) as raised:
                await asking
            self.assertEqual(raised.exception.code, "current_account_mismatch")

    async def test_a_sign_in_that_fails_at_the_app_signs_no_account_in(self) -> None:
        application, broker = self.application("python"), self.device.broker
        assert broker is not None

        def stop_broker() -> None:
            broker.send_signal(signal.SIGSTOP)
            # Waits until all threads of the broker have stopped: until then, one of them may still respond.
            os.waitid(os.P_PID, broker.pid, os.WSTOPPED)

        async def times_out() -> None:
            stop_broker()
            try:
                with patch.object(_application, "TIMEOUT", 0.2), self.assertRaises(SharedDeviceError) as raised:
                    await application.sign_in("ada", "correct horse ada")
                self.assertEqual(raised.exception.code, "broker_unavailable")
            finally:
                broker.send_signal(signal.SIGCONT)

        async def is_cancelled() -> None:
            stop_broker()
            try:
                task = asyncio.create_task(application.sign_in("ada", "correct horse ada"))
                link = await application._broker._connection.open()
                await eventually("the request is sent", lambda: link._waiting)
                task.cancel()
                await asyncio.wait([task])
                self.assertTrue(task.cancelled())
            finally:
                broker.send_signal(signal.SIGCONT)

        async def cannot_be_recorded() -> None:
            with patch.object(_store.SessionStore, "_write", side_effect=OSError("the disk is full")):
                with self.assertRaises(SharedDeviceError) as raised:
                    await application.sign_in("ada", "correct horse ada")
            self.assertEqual(raised.exception.code, "record_unusable")

        # The app learns the policy while the broker still responds.
        await application.sign_out(await self.sign_in("grace"))
        await application._keeper.require_clean(None, "sign in")
        for fails in (times_out, is_cancelled, cannot_be_recorded):
            with self.subTest(fails.__name__):
                await fails()
                # The bus delivers this request after the earlier ones. The broker refuses it while a user is signed in.
                account = (await self.application().sign_in("grace", "correct horse grace")).account
                await self.application().sign_out(account)

    @staticmethod
    async def collect(application: Application, states: list[State]) -> None:
        async for state in application.follow():
            states.append(state)

    async def test_while_broker_or_bus_are_away_nothing_is_shown(self) -> None:
        app = self.start()
        await self.sign_in("ada")
        await app.line("stored for ada")
        self.device.kill(self.device.broker)
        await eventually("it hides", lambda: "Reason.UNKNOWN" in app.lines[-1])
        self.device.start_broker()
        await eventually("ada again", lambda: app.lines[-1] == "stored for ada")
        self.device.kill(self.device.broker)
        self.device.kill(self.device.bus)
        await eventually("it hides", lambda: "Reason.UNKNOWN" in app.lines[-1])
        (self.device.folder / "bus").unlink(missing_ok=True)
        self.device.start_bus()
        self.device.start_broker()
        await eventually("ada again", lambda: app.lines[-1] == "stored for ada")
        # The app receives the broadcast on the new connection, too.
        self.device.sign_out()
        await eventually("no account", lambda: app.lines[-1] == "Nobody()")

    async def test_a_strangers_broadcast_is_counted_and_ignored(self) -> None:
        application, states = self.application("python"), list[State]()
        following = asyncio.create_task(self.collect(application, states))
        await eventually("no account", lambda: states and states[-1] == Nobody())
        # Until the app knows the broker's connection, it counts broadcasts of the broker as ignored, too.
        before = application.ignored_broadcasts
        stranger = darwin(self.device.address)
        await stranger.post("SHARED_MODE_CURRENT_ACCOUNT_CHANGED")
        await eventually("it is counted", lambda: application.ignored_broadcasts == before + 1)
        await stranger.close()
        self.assertEqual(len(states), 2)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    async def test_refusals_have_the_code_of_the_page(self) -> None:
        with self.assertRaises(SharedDeviceError) as raised:
            await self.application().sign_in("ada", "wrong")
        self.assertEqual(raised.exception.code, "authentication_failed")
        account = await self.sign_in("ada")
        with self.assertRaises(SharedDeviceError) as raised:
            await self.sign_in("grace")
        self.assertEqual(raised.exception.code, "account_already_signed_in")
        self.assertEqual(await self.application()._broker.call("ReportActivity", self.application()._fields({}), "report"), {})
        token = await self.application().token(account, ["orders.read"])
        self.assertEqual((token.account, token.scopes), (account, ["orders.read"]))
        for username, password, scopes in [("ada\0", "x", []), ("ada", "secret\udcff", []), ("ada", "secret", ["\udcff"])]:
            with self.assertRaises(SharedDeviceError) as raised:
                await self.application().sign_in(username, password, scopes)
            self.assertEqual(raised.exception.code, "invalid_request")
            self.assertNotIn("secret", str(raised.exception))
        with self.assertRaises(SharedDeviceError) as raised:
            await Application("org.example.x", bus=f"unix:path={self.device.folder}/none").token(account)
        self.assertEqual(raised.exception.code, "broker_unavailable")


class WarningTests(unittest.TestCase):
    def test_a_warning_says_whether_the_screen_is_locked_at_the_end(self) -> None:
        end = {"endingSoon": True, "endReason": "inactivity", "endsAt": 9.5}
        self.assertEqual(_application._warning(end), EndingSoon("inactivity", 9.5, locks=False))
        self.assertEqual(_application._warning({**end, "endLocks": True}), EndingSoon("inactivity", 9.5, locks=True))


if __name__ == "__main__":
    unittest.main()
