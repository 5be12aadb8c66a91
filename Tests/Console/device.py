"""A private device for the console: a system bus, the broker, Cockpit and the people who sign in to it.

Runs in a private mount namespace, which console-check and demo-console make, because all of these programs read their files
from the machine's standard folders.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

top = pathlib.Path(__file__).resolve().parents[2]
programs = pathlib.Path(os.environ.get("BUILD", top / ".build/debug"))
bus_configuration = """<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/></policy></busconfig>"""


def wait_for(what, condition, seconds=20):
    """Waits until the condition holds, and returns its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


class Device:
    accounts = {"ada": "Ada Lovelace", "grace": "Grace Hopper", "mallory": "<img/src=x/onerror=alert(2)>"}
    people = {"root": "root-secret", "visitor": "visitor-secret", "operator": "operator-secret"}

    def __init__(self, port, **configuration):
        self.port, self.processes, self.apps, self.broker = port, [], {}, None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="console-"))
        self.log = open(self.folder / "log", "ab")
        (self.folder / "managed.json").write_text(json.dumps(
            {"sharedDeviceMode": True, "passwordSignIn": True, "organization": "Contoso", "requiresEnrolment": False, "operators": ["operator"], **configuration}))
        self._put_files()
        self._start_bus()
        for name, display_name in self.accounts.items():
            subprocess.run([programs / "shared-device", "user", "add", name, "--display-name", display_name, "--password-stdin",
                            "--state", self.folder / "state"], input=f"{name}-secret\n", text=True, check=True, stdout=self.log, stderr=self.log)
        self.start_broker()
        self._start(["/usr/lib/cockpit/cockpit-ws", "--no-tls", "--address", "127.0.0.1", "--port", str(port)])

    def _put_files(self):
        """Adds users with passwords, and the console to Cockpit's packages: mounts copies over the files in this namespace."""
        def over(path, text):
            copy = self.folder / path.replace("/", "-")
            copy.write_text(text)
            shutil.copymode(path, copy)
            subprocess.run(["mount", "--bind", copy, path], check=True)

        def crypt(password):
            return subprocess.run(["openssl", "passwd", "-6", "-stdin"], input=password, text=True, check=True, capture_output=True).stdout.strip()

        users = pathlib.Path("/etc/passwd").read_text()
        shadow = "".join(line for line in open("/etc/shadow") if line.split(":")[0] not in self.people)
        for number, (name, password) in enumerate(self.people.items()):
            if name != "root":
                home = self.folder / name
                home.mkdir()
                os.chown(home, 29000 + number, 29000 + number)
                users += f"{name}:x:{29000 + number}:{29000 + number}::{home}:/bin/bash\n"
            shadow += f"{name}:{crypt(password)}:19000:0:99999:7:::\n"
        self.folder.chmod(0o755)
        over("/etc/passwd", users)
        over("/etc/shadow", shadow)
        over("/etc/cockpit/disallowed-users", "")
        packages = self.folder / "packages"
        shutil.copytree("/usr/share/cockpit", packages, symlinks=True)
        for name in ("shared_device", "shared_device_fleet"):
            shutil.copytree(top / "Console" / name, packages / name, dirs_exist_ok=True)
        # Newer versions of Cockpit show the fleet's page only if this file exists, as on a controller's host.
        settings = self.folder / "settings"
        settings.mkdir()
        (settings / "fleet-controller.json").touch()
        os.makedirs("/etc/shared-device", exist_ok=True)
        subprocess.run(["mount", "--bind", settings, "/etc/shared-device"], check=True)
        subprocess.run(["mount", "--bind", packages, "/usr/share/cockpit"], check=True)

    def _start_bus(self):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/dbus"], check=True)
        (self.folder / "bus.conf").write_text(bus_configuration)
        self._start(["dbus-daemon", "--nofork", "--config-file", self.folder / "bus.conf"])
        wait_for("the bus", lambda: os.path.exists("/run/dbus/system_bus_socket"))

    def _start(self, command, **options):
        process = subprocess.Popen(command, stdout=options.pop("stdout", self.log), stderr=self.log, **options)
        self.processes.append(process)
        return process

    def start_broker(self):
        self.broker = self._start([programs / "shared-device-broker", "--bus", "system", "--state", self.folder / "state",
                                   "--configuration", self.folder / "managed.json"], stdout=subprocess.PIPE, text=True)
        assert self.broker.stdout.readline().startswith("ready"), (self.folder / "log").read_text()[-2000:]

    def kill_broker(self):
        self.broker.kill()
        self.broker.wait()

    def start_app(self, name, *options):
        self.apps[name] = self._start(["/usr/bin/python3", top / "Tests/Console/app.py", name, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def sign_in(self, person, app):
        process = self.apps[app]
        process.stdin.write(f"signin {person} {person}-secret\n")
        process.stdin.flush()
        assert process.stdout.readline() == "signed in\n", (self.folder / "log").read_text()[-2000:]

    def stop(self, app):
        process = self.apps[app]
        # The app stops itself between two requests. A pending request would be answered later, and count as told.
        process.stdin.write("stop\n")
        process.stdin.flush()
        wait_for("the app to stand still", lambda: pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T")

    def go_on(self, app):
        self.apps[app].send_signal(signal.SIGCONT)

    def permit(self, person, action):
        """Starts the real polkit, with our actions and a rule that lets this person do this one thing without a password."""
        actions, rules = self.folder / "actions", self.folder / "rules"
        shutil.copytree("/usr/share/polkit-1/actions", actions)
        shutil.copy(top / "Packaging/system/polkit/org.notifycenter.shared-device.policy", actions)
        rules.mkdir()
        (rules / "10-test.rules").write_text(f"""polkit.addRule(function(action, subject) {{
            if (action.id == "org.notifycenter.shared-device.{action}" && subject.user == "{person}") return polkit.Result.YES;
            if (action.id.indexOf("org.notifycenter.shared-device.") == 0) return polkit.Result.NO;
        }});""")
        subprocess.run(["mount", "--bind", actions, "/usr/share/polkit-1/actions"], check=True)
        subprocess.run(["mount", "--bind", rules, "/etc/polkit-1/rules.d"], check=True)
        self._start(["/usr/lib/polkit-1/polkitd", "--no-debug"])
        wait_for("polkit", lambda: subprocess.run(["busctl", "--system", "status", "org.freedesktop.PolicyKit1"], capture_output=True).returncode == 0)

    def call(self, method, *fields):
        """Calls the broker as root. Returns the response, or None while the broker refuses."""
        done = subprocess.run(["busctl", "--system", "--json=short", "call", "org.notifycenter.SharedDevice1", "/org/notifycenter/SharedDevice",
                               "org.notifycenter.SharedDevice1", method, "a{sv}", str(len(fields) // 3), *fields], text=True, capture_output=True)
        return json.loads(done.stdout)["data"][0] if done.returncode == 0 else None

    def ask(self, method, *fields):
        """Starts a call whose response is not read. Returns its process."""
        return self._start(["busctl", "--system", "--timeout=120", "call", "org.notifycenter.SharedDevice1", "/org/notifycenter/SharedDevice",
                            "org.notifycenter.SharedDevice1", method, "a{sv}", str(len(fields) // 3), *fields])

    def sign_out(self):
        """Signs out. Returns the time of the sign-out, in seconds since 1970."""
        before = time.time()
        assert self.call("SignOutAnyone", "reason", "s", "test") is not None
        return before

    def holders(self):
        answer = self.call("GetRunningApps")
        return set(answer["holding"]["data"]) if answer else set()

    def end(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


def demonstrate(port):
    """Plays two sessions with four apps, one of which is slow and one of which fails at first; then waits."""
    device = Device(port, cleanupPolicy="strict")
    for name, *options in [("org.example.orders", "--delay", "0.4"), ("org.example.photos", "--delay", "2.5"), ("org.example.mail", "--delay", "1", "--fails", "1"), ("org.example.notes", "--delay", "0.1")]:
        device.start_app(name, *options)
    device.sign_in("ada", "org.example.orders")
    wait_for("all apps to hold data", lambda: len(device.holders()) == 4)
    device.sign_out()
    wait_for("the round to be complete", lambda: device.call("GetRound", "administration", "b", "true")["round"]["data"]["outcome"]["data"] == "complete")
    device.sign_in("grace", "org.example.orders")
    print(f"\nThe console: http://localhost:{port}/shared_device\nSign in as root, password root-secret (operator and visitor have operator-secret and visitor-secret).\n"
          f"Grace Hopper is signed in, four apps run. Ctrl-C ends it, and nothing is left.", flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        device.end()


if __name__ == "__main__":
    demonstrate(int(sys.argv[1]))
