"""A device for checks in Python: a private bus, the real programs on it, and calls of its broker."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from jeepney import DBusAddress, new_method_call
from jeepney.io.blocking import open_dbus_connection

top = pathlib.Path(__file__).resolve().parents[4]
programs = pathlib.Path(os.environ["BUILD"]).resolve()
broker = DBusAddress("/org/notifycenter/SharedDevice", bus_name="org.notifycenter.SharedDevice1", interface="org.notifycenter.SharedDevice1")


def until(what, holds, seconds=60):
    """Waits until the condition holds, and returns its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := holds():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


def expect(what, holds, *details):
    if not holds:
        raise AssertionError(f"{what}: {details}")
    print(f"{what}: ok", flush=True)


class Refused(Exception):
    """The broker's refusal of a call: the error's name and its text."""


class Device:
    """A folder, a bus, and the processes on it, which end with it. The caller starts the programs."""

    def __init__(self, name):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-"))
        self.processes = []
        self.log = open(self.folder / "log", "w+")
        self.address = address = f"unix:path={self.folder}/bus"
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.folder), "XDG_RUNTIME_DIR": str(self.folder), "XDG_DATA_HOME": f"{self.folder}/data",
            "XDG_DATA_DIRS": f"{self.folder}/share:/usr/share", "DBUS_SESSION_BUS_ADDRESS": address, "NOTIFY_CENTER_BUS": address, "LANG": "C.UTF-8",
        }
        self.start(["dbus-daemon", "--session", "--nofork", "--print-address=1", f"--address={address}"], "unix:")
        self.connection = open_dbus_connection(address)
        (self.folder / "apps").mkdir()

    def write(self, name, value):
        (self.folder / name).write_text(json.dumps(value))
        (self.folder / name).chmod(0o644)

    def start(self, command, ready, **more):
        process = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=self.log, text=True, **more)
        self.processes.append(process)
        if ready:
            process.ready = process.stdout.readline()
            assert process.ready.startswith(ready), f"{command[0]} did not start: {self.text()}"
        return process

    def start_broker(self, secret):
        """Starts the broker and its identity process, with the configuration in managed.json and apps."""
        (self.folder / "oidc-client-secret").write_text(secret)
        configuration = ["--bus", self.address, "--configuration", self.folder / "managed.json"]
        self.start([programs / "shared-device-broker", *configuration, "--state", self.folder / "state"], "ready")
        self.environment["CREDENTIALS_DIRECTORY"] = str(self.folder)
        self.start([programs / "shared-device-identity", *configuration], "ready")

    def text(self):
        return (self.folder / "log").read_text()

    def ask(self, method, application="org.example.prompt", **fields):
        body = {"application": ("s", application), **fields}
        answer = self.connection.send_and_get_reply(new_method_call(broker, method, "a{sv}", (body,)), timeout=60)
        if answer.header.message_type.name != "method_return":
            raise Refused(str(answer.header.fields), answer.body)
        return answer.body[0]

    def run(self, program, *arguments, **more):
        """Runs a program of the project's to its end."""
        return subprocess.run([programs / program, *arguments], env=self.environment, capture_output=True, text=True, timeout=300, **more)

    def sign_out(self):
        done = self.run("shared-device", "sign-out", "--bus", self.address, "--reason", "the check")
        assert done.returncode == 0, done.stderr

    def close(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
