"""A private device for a test: a private bus, the real broker, and the users ada and grace."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAMS = pathlib.Path(os.environ.get("SHARED_DEVICE_PROGRAMS", ROOT / ".build/debug"))
SOURCES = str(ROOT / "Clients/python/src")

# The test runner makes the event loop warn of slow callbacks; the tests start processes, which is slow.
logging.getLogger("asyncio").setLevel(logging.ERROR)

needs_programs = unittest.skipUnless(
    (PROGRAMS / "shared-device-broker").exists() and (PROGRAMS / "notify-center").exists() and shutil.which("dbus-daemon"),
    f"dbus-daemon is not installed, or shared-device-broker or notify-center is not in {PROGRAMS}; run “make build”",
)


class Device:
    def __init__(self, policy: str = "advisory") -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="python-device-"))
        configuration = {
            "sharedDeviceMode": True, "passwordSignIn": True, "cleanupPolicy": policy, "requiresEnrolment": False,
        }
        self.configure(configuration)
        self.bus = self.broker = None  # type: subprocess.Popen[str] | None
        self.address = f"unix:path={self.folder}/bus"
        try:
            self.start_bus()
            for user in ("ada", "grace"):
                command = [PROGRAMS / "shared-device", "user", "add", user, "--password-stdin", "--state", self.folder / "state"]
                subprocess.run(command, input=f"correct horse {user}\n", text=True, check=True, capture_output=True)
            self.start_broker()
        except BaseException:
            self.close()
            raise

    def configure(self, configuration: dict[str, Any]) -> None:
        """Writes the managed configuration as a whole, which a running broker notices."""
        new = self.folder / "managed.new"
        new.write_text(json.dumps(configuration))
        new.rename(self.folder / "managed.json")

    def start_bus(self) -> None:
        command = ["dbus-daemon", "--session", "--nofork", "--print-address=1", f"--address={self.address}"]
        self.bus = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.bus.stdout is not None and self.bus.stdout.readline(), "the bus did not start"

    def start_broker(self) -> None:
        command = [PROGRAMS / "shared-device-broker", "--state", self.folder / "state", "--bus", self.address]
        command += ["--configuration", self.folder / "managed.json"]
        deadline = time.monotonic() + 60
        while True:
            with open(self.folder / "broker.log", "w") as log:
                self.broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            assert self.broker.stdout is not None
            if self.broker.stdout.readline() == "ready\n":
                return
            self.kill(self.broker)
            problem = (self.folder / "broker.log").read_text()
            # The kernel frees the inotify instances of ended processes with a delay.
            assert "inotify" in problem and time.monotonic() < deadline, problem
            time.sleep(0.2)

    @staticmethod
    def kill(process: subprocess.Popen[str] | None) -> None:
        if process is not None:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def close(self) -> None:
        self.kill(self.broker)
        self.kill(self.bus)
        shutil.rmtree(self.folder, ignore_errors=True)

    def sign_out(self) -> None:
        command = [PROGRAMS / "shared-device", "sign-out", "--bus", self.address, "--reason", "a test"]
        subprocess.run(command, check=True, capture_output=True, env=self.environment)

    def waive(self, application: str) -> None:
        command = [PROGRAMS / "shared-device", "apps", "waive", application, "--bus", self.address, "--reason", "a test"]
        subprocess.run(command, check=True, capture_output=True, env=self.environment)

    @property
    def environment(self) -> dict[str, str]:
        own = {"NOTIFY_CENTER_BUS": self.address, "SHARED_DEVICE_STATE": str(self.folder / "state"), "PYTHONPATH": SOURCES}
        return {**os.environ, **own}

    def python(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts a test program as another process."""
        command = [sys.executable, *arguments]
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)


async def eventually(what: str, holds: Callable[[], Any], seconds: float = 30) -> Any:
    """Waits until the condition holds."""
    deadline = time.monotonic() + seconds
    while not (value := holds()):
        assert time.monotonic() < deadline, f"not in time: {what}"
        await asyncio.sleep(0.01)
    return value
