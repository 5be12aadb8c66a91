"""A fleet for the console: a real MQTT server with TLS, the controller and the device's agent, on the device's system bus.

The other devices exist only in the controller's list.
"""

import json
import subprocess

from device import programs, top, wait_for

examples = top / "Extensions/Fleet/Examples"
port = 18883


class Fleet:
    """ward-1 is the device itself; the other devices, whose number the caller chooses, have never reported."""

    def __init__(self, device, others):
        self.device, self.folder = device, device.folder / "fleet"
        self.folder.mkdir()
        pki = str(self.folder / "pki")
        for words in (["authority", pki], ["certify", pki, "localhost", "--server"], ["certify", pki, "controller"], ["certify", pki, "ward-1"]):
            subprocess.run([programs / "shared-device", "fleet", *words], check=True, stdout=device.log, stderr=device.log)
        text = (examples / "mosquitto.conf").read_text().replace("listener 8883", f"listener {port} 127.0.0.1")
        text = text.replace("/etc/mosquitto/fleet/server", f"{self.folder}/pki/localhost").replace("/etc/mosquitto/fleet/acl", str(examples / "acl"))
        text = text.replace("/etc/mosquitto/fleet/", f"{self.folder}/pki/")
        (self.folder / "mosquitto.conf").write_text(f"{text}\nuser root\npersistence_location {self.folder}/\n")
        for name in ("controller", "ward-1"):
            (self.folder / name).mkdir()
            keys = {"authority": "authority.pem", "certificate": f"{name}.pem", "key": f"{name}.key"}
            (self.folder / f"{name}.json").write_text(json.dumps(
                {"fleet": "clinic", "name": name, "host": "localhost", "port": port, **{key: f"{self.folder}/pki/{file}" for key, file in keys.items()}}))
        device._start(["mosquitto", "-c", self.folder / "mosquitto.conf"])
        self.start_controller()
        names = ["ward-1", *(f"till-{number}" for number in range(others))]
        for start in range(0, len(names), 5000):
            self.command("device", "add", "--group", "shop", *names[start:start + 5000])
        self._service("shared-device-agent", "ward-1")
        wait_for("the device's report", lambda: any(each["device"] == "ward-1" and each.get("reportedAt") for each in json.loads(self.command("devices", "--json"))))

    def _service(self, program, name):
        process = self.device._start([programs / program, "--bus", "system", "--configuration", self.folder / f"{name}.json", "--state", self.folder / name],
                                     stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n", (self.device.folder / "log").read_text()[-2000:]
        return process

    def start_controller(self):
        self.controller = self._service("shared-device-controller", "controller")

    def kill_controller(self):
        self.controller.kill()
        self.controller.wait()

    def command(self, *words):
        """Runs `shared-device fleet` and returns its output. Does not check whether all devices are done."""
        return subprocess.run([programs / "shared-device", "fleet", *words], text=True, capture_output=True, timeout=60).stdout

    def sign_out(self, *whom):
        self.command("sign-out", *whom, "--reason", "shift is over", "--wait", "0")
