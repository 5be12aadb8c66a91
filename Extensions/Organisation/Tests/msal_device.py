"""A private device for Microsoft's library: a bus, a keyring, a provider, the broker and the bridge; and the checks.

Usage: msal_device.py PYTHON CLIENT. BUILD: the folder of the programs.
"""

import json
import ssl
import subprocess
import sys
import threading
import urllib.request

from jeepney import DBusAddress, new_method_call

sys.dont_write_bytecode = True
sys.path.insert(0, __file__.rpartition("/")[0] + "/Providers")
import device as devices  # noqa: E402
from device import expect, programs, top, until  # noqa: E402

python, client = sys.argv[1:]
CLIENT = "d7b530a4-7680-4c23-a8bf-c52c121d2e87"
BRIDGE = "com.microsoft.identity.broker1"
SCOPE = "https://graph.microsoft.com/.default"


class Calls:
    """The library's calls of the bridge, as dbus-monitor sees them."""

    def __init__(self, device):
        rule = f"type='method_call',destination='{BRIDGE}'"
        # dbus-monitor listens when it has printed its unique name.
        self.process = device.start(["dbus-monitor", "--address", device.address, rule], "signal")
        self.methods = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            if "interface=com.microsoft.identity.Broker1" in line:
                self.methods.append(line.strip().rpartition("member=")[2])

    def take(self, *expected):
        """Expects these calls since the last `take`. The monitor sees them a little later than the bridge."""
        until(f"the requests {expected}, of which came {self.methods}", lambda: len(self.methods) >= len(expected))
        taken, self.methods[:] = tuple(self.methods), ()
        assert taken == expected, f"the library asked {taken} and not {expected}"


class Device(devices.Device):
    def __init__(self):
        super().__init__("msal")
        # The daemon reads the password, unlocks the keyring with it, and makes the collection.
        keyring = self.start(["gnome-keyring-daemon", "--unlock", "--components=secrets", "--foreground"], None, stdin=subprocess.PIPE)
        keyring.stdin.write("keyring")
        keyring.stdin.close()
        names = DBusAddress("/org/freedesktop/DBus", bus_name="org.freedesktop.DBus", interface="org.freedesktop.DBus")
        owned = new_method_call(names, "NameHasOwner", "s", ("org.freedesktop.secrets",))
        until("the keyring", lambda: self.connection.send_and_get_reply(owned, timeout=60).body[0])
        provider = self.start(["/usr/bin/python3", top / "Extensions/Organisation/Tests/Providers/faulty-provider", self.folder], "ready", stdin=subprocess.PIPE)
        self.issuer = f"https://localhost:{provider.ready.split()[1]}/bridge"
        self.tls = ssl.create_default_context(cafile=self.folder / "authority.pem")
        self.write("managed.json", {
            "sharedDeviceMode": True, "identity": "oidc", "oidcIssuer": self.issuer, "oidcClientID": "device-7",
            "oidcTrustAnchors": f"{self.folder}/authority.pem", "microsoftBroker": True,
        })
        self.write("apps/microsoft.json", {
            "id": BRIDGE, "executable": str(programs / "shared-device-microsoft-broker"), "scopes": ["openid", "profile"],
            "microsoftClientIDs": [CLIENT], "microsoftScopes": {SCOPE: ["openid"]},
        })
        (self.folder / "chromium").symlink_to(top / "Extensions/Organisation/Tests/Providers/faulty-visitor")
        prompt = self.folder / "prompt"
        prompt.write_text(f'#!/bin/sh\nexec {programs}/shared-device-sign-in "$@" --browser {self.folder}/chromium '
                          f'--browser-argument=--ca={self.folder}/authority.pem\n')
        prompt.chmod(0o755)
        self.start_broker("s&cret +%/")
        self.start_bridge()

    def start_bridge(self, **variables):
        self.environment.update(variables)
        self.bridge = self.start([programs / "shared-device-microsoft-broker", "--configuration", self.folder / "managed.json",
                                  "--state", self.folder / "bridge", "--sign-in", self.folder / "prompt"], "ready")

    def sign_in(self):
        """Signs Ada in at the provider's page, which responds with the query of the redirect."""
        begun = self.ask("BeginSignIn", methods=("as", ["browser"]), redirectURI=("s", "http://127.0.0.1:8976/callback"))
        with urllib.request.urlopen(begun["authorizationURL"][1], context=self.tls, timeout=60) as page:
            query = page.read().decode()
        self.ask("CompleteSignIn", request=begun["request"], query=("s", query))

    def secrets(self):
        """The number of items of Microsoft's libraries in the keyring."""
        found = subprocess.run(["secret-tool", "search", "--all", "--unlock", "xdg:schema", "com.microsoft.identity.secret"], env=self.environment,
                               capture_output=True, text=True)
        return (found.stdout + found.stderr).count("label = ")


class Library:
    def __init__(self, device, identifier=CLIENT):
        self.process = subprocess.Popen([python, client, identifier], env=device.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=device.log, text=True)
        device.processes.append(self.process)
        line = self.process.stdout.readline()
        assert line, "the library does not load"
        self.first = json.loads(line)

    def ask(self, name, **parameters):
        self.process.stdin.write(f"{name} {json.dumps(parameters)}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the program with Microsoft's library has ended"
        return json.loads(line)


def main():
    device = Device()
    try:
        check(device, Library(device), Calls(device))
    except BaseException:
        print(device.text(), file=sys.stderr)
        raise
    finally:
        device.close()


def check(device, library, calls):
    expect("the library loads, and uses the bridge", library.first["broker"], library.first)
    nobody = library.ask("interactive")
    expect("no account is signed in: it asks for a person, and its error has the bridge's reason",
           "no display" in nobody["error_description"] and "IncorrectConfiguration" in nobody["error_description"], nobody)
    calls.take("getAccounts", "acquireTokenSilently", "acquireTokenInteractively")

    def has_token(answer):
        claims = answer.get("id_token_claims", {})
        return (claims.get("iss"), claims.get("preferred_username")) == (device.issuer, "ada@example.com") and 0 < answer["expires_in"] <= 240

    device.sign_in()
    first = library.ask("interactive")
    expect("Ada is signed in: her token, with the provider's ID token, for four minutes, and without another question to her", has_token(first), first)
    calls.take("getAccounts", "acquireTokenSilently")
    expect("the app's list of accounts has her", library.ask("accounts") == ["ada@example.com"])
    for name in ("silent", "cached"):
        answer = library.ask(name)
        expect(f"a token without a person ({name}) comes from the bridge, each time", has_token(answer), answer)
        calls.take("acquireTokenSilently")
    expect("the library has stored items in the keyring", device.secrets() > 0)

    device.sign_out()
    until("the keyring is empty", lambda: device.secrets() == 0)
    for name in ("cached", "silent"):
        answer = library.ask(name) or {}
        expect(f"signed out elsewhere: no token without a person ({name}), in the same process", "access_token" not in answer, answer)
    # Before the receipt the bridge responds that it still owes the deletion.
    answer = until("the receipt", lambda: (answer := library.ask("interactive")) and "UserDataRemovalRequired" not in str(answer) and answer)
    expect("an interactive request gets no token either, because there is no display", "access_token" not in answer and "no display" in answer["error_description"], answer)

    device.sign_in()
    answer = library.ask("interactive")
    expect("a user signs in: the same process has a new token", has_token(answer) and answer["access_token"] != first["access_token"], answer)
    device.sign_out()
    until("the next receipt", lambda: device.secrets() == 0 and "UserDataRemovalRequired" not in str(library.ask("interactive")))

    # With a display the bridge starts the real prompt for Ada; the prompt's browser draws nothing.
    device.bridge.terminate()
    device.bridge.wait()
    device.start_bridge(DISPLAY=":9")
    calls.methods.clear()
    answer = library.ask("interactive")
    expect("no account is signed in, and there is a display: Ada signs in at the prompt, and the library has her token", has_token(answer), answer)
    calls.take("getAccounts", "acquireTokenSilently", "acquireTokenInteractively")
    other = Library(device, "11111111-2222-3333-4444-555555555555")
    answer = other.ask("interactive")
    expect("a client that no manifest names gets none, and reads why", "IncorrectConfiguration" in answer["error_description"]
           and "microsoftClientIDs" in answer["error_description"], answer)
    asked = library.ask("asked") + other.ask("asked")
    expect("the library's Python part sent no request to Microsoft's servers", not asked, asked)


main()
