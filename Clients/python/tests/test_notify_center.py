"""Posts between the centers in Python and the Swift command `notify-center`, in both directions."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from datetime import datetime, timedelta, timezone
from typing import Any, cast
from unittest.mock import patch

from jeepney import DBusAddress, Endianness, HeaderFields, Message, new_method_return, new_signal

from device import PROGRAMS, SOURCES, needs_programs
from notify_center import Center, Notification, UserInfo, darwin, distributed
from notify_center import _access, _connection, _wire
from notify_center import _body as _body_module
from notify_center._connection import DAEMON as BUS
from notify_center._connection import BusError, Connection

NAMES = ["com.example.hello", "my-app", "SHARED_MODE_CURRENT_ACCOUNT_CHANGED", "", "a..b", ".x.", "9.8z", "__", "a_", "ä.b", "x" * 300, "é" * 90]


class WireTests(unittest.TestCase):
    def test_names_are_escaped_as_the_wire_protocol_says(self) -> None:
        tails = {"my-app": "my__2dapp", "": "__", "a__b": "a__5f_b", "a.1": "a.__31", "Menu_opened": "Menu_opened"}
        for name, tail in tails.items():
            self.assertEqual(_wire.interface_name(name, _wire.DARWIN), f"org.notifycenter.Darwin1.{tail}")
        self.assertRegex(_wire.interface_name("x" * 300, _wire.DARWIN), r"\.__h[0-9a-f]{16}$")

    def test_an_encoded_notification_decodes_to_the_same_values(self) -> None:
        info: UserInfo = {
            "text": "ä\0b", "whole": -5, "large": (1 << 64) - 1, "half": 0.5, "yes": True, "data": b"\0\1",
            "when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc), "list": [1, "two", [3.0]], "in": {"a\0b": 1},
        }
        for name, object_, user_info in [("n", None, None), ("n\0\\", "o\0", {}), ("n", "", info), ("n", "x", {"k": "v"})]:
            signature, arguments = _wire.encode(name, object_, user_info, False)
            self.assertEqual(decoded(signature, arguments), (name, object_, user_info))

    def test_a_user_info_beyond_the_bounds_of_receivers_is_refused(self) -> None:
        deep: UserInfo = {}
        for _ in range(25):
            deep = {"in": deep}
        for info in [deep, {"x": "y" * (1 << 20)}, {"x": 1 << 65}, {"x": [0] * 20_000}]:
            with self.assertRaises(ValueError):
                _wire.encode("n", None, info, False)

    def test_the_error_names_the_value_that_cannot_be_sent(self) -> None:
        cases: list[tuple[Any, Any, Any, str]] = [
            (None, None, None, "the name of a notification is a text, not the NoneType None"),
            ("half \ud800", None, None, "the name of a notification has half of a surrogate pair.*half \\\\ud800"),
            ("n", 5, None, "the object of a notification is a text, not the int 5"),
            ("n", None, [1], r"a userInfo is a dictionary, not the list \[1\]"),
            ("n", None, {1: "x"}, "a key of a userInfo is a text, not the int 1"),
            ("n", None, {"a": 1, 2: "x"}, "a key of a userInfo is a text, not the int 2"),
            ("n", None, {"in": {None: 1}}, "a key of a userInfo is a text, not the NoneType None"),
            ("n", None, {"k": "\udcff"}, "a text of a userInfo has half of a surrogate pair"),
            ("n", None, {"k": None}, "a userInfo takes no such value: the NoneType None"),
            ("n", None, {"k": [(1, 2)]}, r"a userInfo takes no such value: the tuple \(1, 2\)"),
            ("n", None, {"k": 1 << 64}, "up to 64 bits: the int 18446744073709551616"),
        ]
        for name, object_, info, problem in cases:
            with self.subTest(problem), self.assertRaisesRegex(ValueError, problem):
                _wire.encode(name, object_, info, False)
        with self.assertRaisesRegex(ValueError, "not the NoneType None"):
            darwin("unix:path=/").observe(cast(str, None))
        with self.assertRaisesRegex(ValueError, "not the int 5"):
            distributed("unix:path=/").observe("n", object=cast(str, 5))

    def test_a_signal_that_is_no_notification_is_refused(self) -> None:
        for arguments, signature in [([], ""), ([5], "i"), (["n", 5], "si"), (["n", "", 0, 5], "ssui"),
                                     (["\\x", "", 1 << 10], "ssu"), (["n", "", 0, {"a": ("(s)", ("x",))}], "ssua{sv}"),
                                     (["n", "", 0, {"a": ("a{is}", {})}], "ssua{sv}")]:
            with self.subTest(signature), self.assertRaises(ValueError):
                decoded(signature, arguments)

    def test_all_types_of_other_senders_are_read_in_both_byte_orders(self) -> None:
        info = {
            "y": ("y", 255), "n": ("n", -2), "q": ("q", 3), "i": ("i", -4), "u": ("u", 5), "b": ("b", True), "g": ("g", "a{sv}"),
            "o": ("o", "/a"), "v": ("v", ("v", ("s", "in"))), "ai": ("ai", [1, 2]), "as": ("as", ["a", "ä"]), "aad": ("aad", [[0.5], []]),
            "ad": ("a(d)", [(0.0,)]), "ss": ("a{ss}", {"k": "v"}), "aav": ("a(ayv)", [(b"a\0b", ("x", 1))]), "empty": ("av", []),
            "dicts": ("aa{sv}", [{"k": ("ay", b"\1")}]), "sas": ("a{sas}", {"k": ["v"]}),
        }
        expected = {
            "y": 255, "n": -2, "q": 3, "i": -4, "u": 5, "b": True, "g": "a{sv}", "o": "/a", "v": "in", "ai": [1, 2], "as": ["a", "ä"],
            "aad": [[0.5], []], "ad": [datetime(2001, 1, 1, tzinfo=timezone.utc)], "ss": {"k": "v"}, "aav": {"a\0b": 1}, "empty": [],
            "dicts": [{"k": b"\1"}], "sas": {"k": ["v"]},
        }
        for order in Endianness:
            self.assertEqual(decoded("ssua{sv}", ["n", "o", 0, info], order), ("n", "o", expected))

    def test_a_date_that_python_lacks_is_the_nearest_one(self) -> None:
        first, last = (datetime(*parts, tzinfo=timezone.utc) for parts in ((1, 1, 1), (9999, 12, 31, 23, 59, 59, 999999)))
        for seconds, date in [(-63114076800.0, first), (3.2e11, last), (float("inf"), last), (float("-inf"), first)]:
            with self.subTest(seconds):
                arguments = ["n", "", 0, {"when": ("(d)", (seconds,)), "more": ("x", 1)}]
                self.assertEqual(decoded("ssua{sv}", arguments)[2], {"when": date, "more": 1})
        with self.assertRaises(ValueError):
            decoded("ssua{sv}", ["n", "", 0, {"when": ("(d)", (float("nan"),))}])

    def test_reading_ends_at_the_bound_and_not_at_the_end_of_the_message(self) -> None:
        # 16,384 parts of 64 bytes are a mebibyte.
        for type in ("ai", "ag", "av"):
            element = {"ai": 0, "ag": "", "av": ("y", 0)}[type]
            message = new_signal(DBusAddress("/", interface="a.b"), "M", "ssua{sv}", ("n", "", 0, {"l": (type, [element] * 250_000)}))
            body = _body(message, Endianness.little)
            with self.subTest(type), patch.object(_wire, "Body", CountingBody):
                CountingBody.values = 0
                with self.assertRaisesRegex(ValueError, "1048576 bytes"):
                    _wire.decode(body, "ssua{sv}", "<")
                self.assertLess(CountingBody.values, 5 * 16_384)

    def test_a_body_that_ends_too_early_is_refused(self) -> None:
        info: UserInfo = {"text": "ä", "data": b"\0\1", "list": [1, 2.5, True], "when": datetime(2026, 1, 2)}
        signature, arguments = _wire.encode("n", "o", info, False)
        body = _body(new_signal(DBusAddress("/", interface="a.b"), "M", signature, tuple(arguments)), Endianness.little)
        for length in range(len(body)):
            with self.assertRaises(ValueError):
                _wire.decode(body[:length], signature, "<")

    def test_each_address_is_a_socket_to_try(self) -> None:
        cases = {
            "unix:path=/a": ["/a"], "unix:path=/a%20%c3%a4,guid=0123;": ["/a ä"], "unix:abstract=b": ["\0b"],
            "tcp:host=localhost,port=1;unix:guid=0,path=/a;unix:path=/b": ["/a", "/b"],
        }
        for address, sockets in cases.items():
            self.assertEqual(_connection.sockets(address), sockets)
        for address in ("", ";", "nonsense", "unix:", "unix:path=", "tcp:host=localhost"):
            with self.subTest(address), self.assertRaises(ValueError):
                _connection.sockets(address)


class AccessTests(unittest.TestCase):
    def test_the_longest_prefix_of_the_configuration_decides_whether_a_name_is_reserved(self) -> None:
        lines = [
            "# reserve comment 0 0 rwrw--", "reserve closed 0 0 rwrw--", "RESERVE\tclosed.open", "reserve both. 5 5 rwr-r-",
            "reserve twice 0 0 rwrw--", "reserve twice", "reserve bad 0 x rwrw--", "reserve long 0 0 rwrw-- more", "reserve odd 0 0 wr----",
            "reserve self.x 0 0 rwrw--", "quit now", "quit", "reserve after 0 0 rwrw--",
        ]
        with tempfile.NamedTemporaryFile() as file:
            file.write("\n".join(lines).encode())
            file.flush()
            with patch.dict(os.environ, {"NOTIFY_CENTER_CONFIGURATION": file.name}):
                for name in ["closed", "closed.x", "both.é", "user.uid.0", "user.uid.x"]:
                    self.assertTrue(_access.is_reserved(name), name)
                for name in ["", "open", "closed.open.x", "twice", "comment", "bad", "long", "odd", "self.x", "after", "user.ui"]:
                    self.assertFalse(_access.is_reserved(name), name)

    def test_no_name_is_posted_while_other_users_can_write_the_configuration(self) -> None:
        with tempfile.NamedTemporaryFile() as file, patch.dict(os.environ, {"NOTIFY_CENTER_CONFIGURATION": file.name}):
            os.chmod(file.name, 0o666)
            with self.assertRaises(BusError) as raised:
                asyncio.run(darwin("unix:path=/").post("com.example.hello"))
            self.assertIn(file.name, str(raised.exception))


@needs_programs
class CenterTests(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.address = f"unix:path={folder.name}/bus"
        self.socket = pathlib.Path(folder.name) / "bus"
        self.start_bus()
        self.addCleanup(lambda: self.stop_bus())

    def start_bus(self) -> None:
        self.bus = subprocess.Popen(
            ["dbus-daemon", "--session", "--nofork", "--print-address=1", f"--address={self.address}"],
            stdout=subprocess.PIPE,
        )
        assert self.bus.stdout is not None and self.bus.stdout.readline()

    def stop_bus(self) -> None:
        self.bus.kill()
        self.bus.wait()
        assert self.bus.stdout is not None
        self.bus.stdout.close()
        self.socket.unlink(missing_ok=True)

    def center(self, make: object = darwin) -> Center:
        center: Center = (distributed if make is distributed else darwin)(self.address)
        self.addAsyncCleanup(center.close)
        return center

    def connection(self) -> Connection:
        """Opens a connection in addition to that of the centers."""
        connection = Connection(self.address)
        self.addAsyncCleanup(connection.close)
        return connection

    async def watch(self, *arguments: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            PROGRAMS / "notify-center", "watch", "--bus", self.address, "--json", "--ready", *arguments,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        self.assertEqual(await asyncio.wait_for(process.stderr.readline(), 30), b"ready\n")
        return process

    async def test_swift_hears_what_python_posts(self) -> None:
        command = await self.watch("--count", str(len(NAMES)), "--", *NAMES)
        for name in NAMES:
            await self.center().post(name)
        output, _ = await asyncio.wait_for(command.communicate(), 30)
        self.assertEqual([json.loads(line)["name"] for line in output.splitlines()], NAMES)

    async def test_notifyd_posts_a_reserved_name(self) -> None:
        name = f"user.uid.{os.getuid()}.hello"
        with self.assertRaises(BusError):
            await self.center().post(name)
        service = await asyncio.create_subprocess_exec(
            PROGRAMS / "notifyd", env=os.environ | {"NOTIFY_CENTER_BUS": self.address, "DBUS_SESSION_BUS_ADDRESS": self.address}
        )
        self.addAsyncCleanup(service.wait)
        self.addCleanup(service.kill)
        connection = self.connection()
        async with asyncio.timeout(30):
            while (owner := await connection.owner("org.notifycenter.Notifyd1")) is None:
                await asyncio.sleep(0.01)
            async with self.center().observe(name) as posts:
                await self.center().post(name)
                self.assertEqual(await anext(posts), Notification(name, sender=owner))

    async def test_swift_hears_object_and_user_info(self) -> None:
        command = await self.watch("--distributed", "--count", "1", "com.example.order")
        info: UserInfo = {"total": 12.5, "items": ["tea", "cake"], "paid": True, "count": 2}
        await self.center(distributed).post("com.example.order", object="till-3", user_info=info)
        output, _ = await asyncio.wait_for(command.communicate(), 30)
        line = json.loads(output)
        self.assertEqual((line["object"], line["userinfo"]), ("till-3", info))

    async def test_python_hears_what_swift_posts(self) -> None:
        async def post(*arguments: str) -> None:
            command = [PROGRAMS / "notify-center", "post", "--bus", self.address, *arguments]
            self.assertEqual(await (await asyncio.create_subprocess_exec(*command)).wait(), 0)

        for name in NAMES:
            async with self.center().observe(name) as posts:
                await post("--", name)
                heard = await asyncio.wait_for(anext(posts), 30)
                self.assertEqual((heard.name, heard.object, heard.user_info), (name, None, None))
        async with self.center(distributed).observe("com.example.order", object="till-3") as orders:
            await post("--distributed", "com.example.order", "--object", "till-4")
            await post("--distributed", "com.example.order", "--object", "till-3", "--userinfo", '{"total": 12.5, "a": [1, "b"]}')
            heard = await asyncio.wait_for(anext(orders), 30)
        self.assertEqual((heard.object, heard.user_info), ("till-3", {"total": 12.5, "a": [1, "b"]}))

    async def test_all_centers_of_an_event_loop_share_one_connection_to_a_bus(self) -> None:
        asker = self.connection()

        async def connections() -> list[str]:
            names: list[str] = (await asker.call(BUS, "/org/freedesktop/DBus", BUS, "ListNames"))[0]
            return sorted(name for name in names if name.startswith(":"))

        before = await connections()
        async with darwin(self.address).observe("com.example.hello") as posts:
            async with darwin(self.address) as center, distributed(self.address):
                for _ in range(100):
                    await darwin(self.address).post("com.example.hello")
                self.assertEqual(len(await connections()), len(before) + 1)
            # The observation still uses the connection.
            for _ in range(100):
                await asyncio.wait_for(anext(posts), 30)
        async with center, darwin(self.address):
            await darwin(self.address).close()
            self.assertEqual(len(await connections()), len(before) + 1)
        async with asyncio.timeout(30):
            while await connections() != before:
                await asyncio.sleep(0.01)

    def test_the_end_of_an_event_loop_ends_its_connection(self) -> None:
        program = """if True:
            import asyncio, os, sys
            from notify_center import darwin, distributed
            center = darwin(sys.argv[1])
            async def main():
                for _ in range(10):
                    await center.post("com.example.hello")
                    await distributed(sys.argv[1]).post("com.example.hello")
            for _ in range(5):
                asyncio.run(main())
            print(len(os.listdir("/proc/self/fd")))
        """
        command = [sys.executable, "-X", "dev", "-c", program, self.address]
        ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": SOURCES}, capture_output=True, text=True)
        # Standard input, output and error, and the descriptor of the listing.
        self.assertEqual((ended.stdout, ended.stderr), ("4\n", ""))

    async def test_an_observation_is_in_force_again_after_an_outage_of_the_bus(self) -> None:
        observer = self.center()
        lost, back = asyncio.Event(), asyncio.Event()
        observer.connection.on_change.append(lambda is_there: (back if is_there else lost).set())
        async with observer.observe("com.example.hello") as posts:
            self.stop_bus()
            await asyncio.wait_for(lost.wait(), 30)
            self.start_bus()
            await asyncio.wait_for(back.wait(), 30)
            await self.center().post("com.example.hello")
            self.assertEqual((await asyncio.wait_for(anext(posts), 30)).name, "com.example.hello")

    async def test_an_observation_outlives_another_of_its_name_after_an_outage_of_the_bus(self) -> None:
        observer = self.center()
        lost, back = asyncio.Event(), asyncio.Event()
        observer.connection.on_change.append(lambda is_there: (back if is_there else lost).set())
        async with observer.observe("com.example.hello") as posts:
            async with observer.observe("com.example.hello"):
                self.stop_bus()
                await asyncio.wait_for(lost.wait(), 30)
                self.start_bus()
                await asyncio.wait_for(back.wait(), 30)
            await self.center().post("com.example.hello")
            self.assertEqual((await asyncio.wait_for(anext(posts), 30)).name, "com.example.hello")

    async def test_the_bus_sends_nothing_more_after_the_last_observation_of_a_name(self) -> None:
        observer = self.center()
        heard = list[str]()
        observer.connection.on_signal.append(lambda signal: heard.append(signal.interface))
        for _ in range(2):
            async with observer.observe("com.example.hello"), observer.observe("com.example.hello"):
                pass
        async with observer.observe("com.example.last") as last:
            poster = self.center()
            await poster.post("com.example.hello")
            await poster.post("com.example.last")
            await asyncio.wait_for(anext(last), 30)
        self.assertNotIn(_wire.interface_name("com.example.hello", _wire.DARWIN), heard)

    async def test_a_cancelled_observation_leaves_no_match_rule(self) -> None:
        observer = self.center()
        heard = list[str]()
        async with observer.observe("com.example.last") as last:
            observer.connection.on_signal.append(lambda signal: heard.append(signal.interface))
            # Each turn of the event loop is an instant at which the task may be cancelled.
            for turns in range(20):
                entering = asyncio.create_task(observer.observe("com.example.hello").__aenter__())
                for _ in range(turns):
                    await asyncio.sleep(0)
                entering.cancel()
                await asyncio.gather(entering, return_exceptions=True)
                if not entering.cancelled():
                    await entering.result().__aexit__(None, None, None)
            poster = self.center()
            await poster.post("com.example.hello")
            await poster.post("com.example.last")
            await asyncio.wait_for(anext(last), 30)
        self.assertNotIn(_wire.interface_name("com.example.hello", _wire.DARWIN), heard)

    async def test_a_listener_that_raises_is_reported_and_ends_no_connection(self) -> None:
        reported = list[object]()
        asyncio.get_running_loop().set_exception_handler(lambda loop, report: reported.append(report["exception"]))
        observer = self.center()
        lost, back, changes = asyncio.Event(), asyncio.Event(), list[bool]()

        def fail(event: object) -> None:
            raise ZeroDivisionError(str(event))

        observer.connection.on_change += [fail, changes.append, lambda is_there: (back if is_there else lost).set()]
        async with observer.observe("com.example.hello") as posts:
            observer.connection.on_signal.insert(0, fail)
            await self.center().post("com.example.hello")
            self.assertEqual((await asyncio.wait_for(anext(posts), 30)).name, "com.example.hello")
            self.assertEqual(changes, [])
            self.stop_bus()
            await asyncio.wait_for(lost.wait(), 30)
            self.start_bus()
            await asyncio.wait_for(back.wait(), 30)
            await self.center().post("com.example.hello")
            self.assertEqual((await asyncio.wait_for(anext(posts), 30)).name, "com.example.hello")
        self.assertEqual({type(error) for error in reported}, {ZeroDivisionError})

    def test_an_observation_without_room_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            darwin(self.address).observe("com.example.hello", limit=0)

    async def test_observations_are_restored_after_an_outage_even_if_the_bus_refused_a_name(self) -> None:
        observer = self.center()
        lost, back = asyncio.Event(), asyncio.Event()
        observer.connection.on_change.append(lambda is_there: (back if is_there else lost).set())
        async with observer.observe("com.example.hello") as posts:
            with self.assertRaises(BusError):
                await observer.connection.request_name("not a name")
            with self.assertRaises(BusError):
                await observer.connection.add_match("not a rule")
            self.stop_bus()
            await asyncio.wait_for(lost.wait(), 30)
            self.start_bus()
            await asyncio.wait_for(back.wait(), 30)
            await self.center().post("com.example.hello")
            self.assertEqual((await asyncio.wait_for(anext(posts), 30)).name, "com.example.hello")

    async def test_a_connection_responds_to_ping_and_refuses_all_other_calls(self) -> None:
        asked = self.center()
        async with asked.observe("n"):
            names = (await asked.connection.call(BUS, "/org/freedesktop/DBus", BUS, "ListNames"))[0]
            asker = self.connection()
            for name in names:
                if name.startswith(":"):
                    self.assertEqual(await asker.call(name, "/", f"{BUS}.Peer", "Ping", timeout=30), [])
                    with self.assertRaises(BusError) as refused:
                        await asker.call(name, "/", "i.i", "M", timeout=30)
                    self.assertEqual(refused.exception.name, f"{BUS}.Error.UnknownMethod")

    async def test_the_first_address_that_responds_is_used(self) -> None:
        center = darwin(f"unix:path={self.socket}-none;unix:path={self.socket}-neither;{self.address}")
        self.addAsyncCleanup(center.close)
        self.assertTrue(await center.connection.owner(BUS))
        for address in (f"unix:path={self.socket}-none;unix:path={self.socket}-neither", "nonsense"):
            with self.assertRaises(BusError) as raised:
                await darwin(address).post("com.example.hello")
            self.assertEqual(raised.exception.name, f"{BUS}.Error.NoServer")
            self.assertIn(f"no bus at {address}: ", raised.exception.message)

    async def test_a_body_over_the_bound_is_passed_over_and_counted(self) -> None:
        observer, stranger = self.center(distributed), self.connection()
        place = DBusAddress(_wire.PATH, interface=_wire.interface_name("com.example.order", _wire.DISTRIBUTED))
        async with observer.observe("com.example.order") as posts:
            for size in (1 << 21, 1 << 19):
                info = {"data": ("ay", bytes(size))}
                await stranger.send(new_signal(place, _wire.MEMBER, "ssua{sv}", ("com.example.order", "", 0, info)))
            heard = await asyncio.wait_for(anext(posts), 30)
            self.assertEqual((heard.user_info, posts.malformed), ({"data": bytes(1 << 19)}, 1))
            # A call with such a body gets a response, and its body is not read.
            for name in (await stranger.call(BUS, "/org/freedesktop/DBus", BUS, "ListNames"))[0]:
                if name.startswith(":"):
                    with self.assertRaises(BusError) as refused:
                        await stranger.call(name, "/", "i.i", "M", "ay", [bytes(1 << 21)], timeout=30)
                    self.assertEqual(refused.exception.name, f"{BUS}.Error.UnknownMethod")

    async def test_a_message_that_cannot_be_read_is_passed_over(self) -> None:
        observer, hostile = self.center(), self.connection()
        lost: list[bool] = []
        observer.connection.on_change.append(lost.append)
        async with observer.observe("com.example.hello") as posts:
            link = await hostile.open()
            names = (await hostile.call(BUS, "/org/freedesktop/DBus", BUS, "ListNames"))[0]
            place = DBusAddress(_wire.PATH, interface=_wire.interface_name("com.example.hello", _wire.DARWIN))
            for name in [None, *(name for name in names if name.startswith(":"))]:
                link._connection.writer.write(_descriptor_without_one(place, name, next(link._connection.outgoing_serial)))
            await hostile.send(new_signal(place, _wire.MEMBER, "s", ("com.example.hello",)))
            heard = await asyncio.wait_for(anext(posts), 30)
            self.assertEqual((heard.name, lost), ("com.example.hello", []))
            # The sender also receives these messages, and its calls still get responses.
            self.assertTrue(await hostile.owner(BUS))

    async def test_the_oldest_of_too_many_notifications_are_dropped_and_counted(self) -> None:
        center = self.center(distributed)
        async with center.observe("n", limit=3) as posts:
            for number in range(10):
                await center.post("n", user_info={"number": number})
            async with center.observe("last") as last:
                await center.post("last")
                await asyncio.wait_for(anext(last), 30)
            self.assertEqual(posts.dropped, 7)
            heard: list[Notification] = [await anext(posts) for _ in range(3)]
            self.assertEqual([one.user_info for one in heard], [{"number": number} for number in (7, 8, 9)])


class GreetingTests(unittest.IsolatedAsyncioTestCase):
    async def test_a_message_that_cannot_be_read_may_follow_the_greeting(self) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n")
            writer.write(b"OK 0123456789abcdef0123456789abcdef\r\n")
            await reader.readuntil(b"BEGIN\r\n")
            for serial, answer in enumerate([":1.1", ":1.2"], 1):
                call = Message.from_buffer(await reader.read(4096))
                call.header.serial = serial
                hostile = _descriptor_without_one(DBusAddress("/a", interface="a.b"), None, 1)
                writer.write(new_method_return(call, "s", (answer,)).serialise(serial) + hostile)
            await reader.read()
            writer.close()

        with tempfile.TemporaryDirectory() as folder:
            server = await asyncio.start_unix_server(serve, f"{folder}/bus")
            center = darwin(f"unix:path={folder}/bus")
            self.assertEqual(await asyncio.wait_for(center.connection.owner("a.b"), 30), ":1.2")
            await center.close()
            server.close()


def _body(message: Message, order: Endianness) -> bytes:
    """The body of a message as bytes."""
    message.header.endianness = order
    data: bytes = message.serialise(1)
    return data[len(data) - message.header.body_length :]


def decoded(
    signature: str, arguments: list[Any], order: Endianness = Endianness.little
) -> tuple[str, str | None, UserInfo | None]:
    """Returns what a receiver reads from a signal with these arguments."""
    message = new_signal(DBusAddress("/", interface="a.b"), "M", signature or None, tuple(arguments))
    return _wire.decode(_body(message, order), signature, order.struct_code())


class CountingBody(_body_module.Body):
    """Counts the calls of `take`."""

    values = 0

    def take(self, length: int) -> bytes:
        CountingBody.values += 1
        return super().take(length)


def _descriptor_without_one(place: DBusAddress, name: str | None, serial: int) -> bytes:
    """A signal that announces a descriptor but has none. Without a name it is a broadcast."""
    message: Message = new_signal(place, _wire.MEMBER, "u", (0,))
    if name is not None:
        message.header.fields[HeaderFields.destination] = name
    signature = b"\x01g\0\x01%b\0"
    return bytes(message.serialise(serial).replace(signature % b"u", signature % b"h"))


if __name__ == "__main__":
    unittest.main()
