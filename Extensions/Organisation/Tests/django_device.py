"""Tests a device whose provider is Django OAuth Toolkit.

Usage: django_device.py PYTHON, with a Python that has Django OAuth Toolkit. BUILD: the folder of the programs.
"""

import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, __file__.rpartition("/")[0] + "/Providers")
import device as devices  # noqa: E402
from device import Refused, expect, top, until  # noqa: E402
from django_visitor import Visitor  # noqa: E402

APP = "org.example.orders"


class Device(devices.Device):
    def __init__(self, python):
        super().__init__("django")
        providers = top / "Extensions/Organisation/Tests/Providers"
        self.provider = self.start([python, providers / "django-provider", self.folder], "ready", stdin=subprocess.PIPE)
        self.issuer = self.provider.ready.split()[1]
        self.authority = f"{self.folder}/authority.pem"
        self.tls = ssl.create_default_context(cafile=self.authority)
        self.configure("device-7", "browser")
        self.write("apps/orders.json", {"id": APP, "executable": sys.executable, "scopes": ["openid", "orders.read"]})
        (self.folder / "chromium").symlink_to(providers / "django_visitor.py")
        self.start_broker("device-secret-7")
        # The stand-in for a browser draws nothing, so the display need not exist.
        self.environment["DISPLAY"] = ":9"

    def configure(self, client, method):
        self.write("managed.json", {
            "sharedDeviceMode": True, "identity": "oidc", "oidcIssuer": self.issuer, "oidcClientID": client, "oidcTrustAnchors": self.authority,
            "oidcScopes": ["openid", "profile", "email", "orders.read"], "oidcSignInMethods": [method],
            # Neither of its descriptions has this address.
            "oidcEndpoints": {"device_authorization_endpoint": self.issuer + "/device-authorization/"},
        })

    def tokens(self):
        """The tokens in the provider's database: access tokens, valid refresh tokens, and revoked refresh tokens."""
        self.provider.stdin.write("tokens\n")
        self.provider.stdin.flush()
        return json.loads(self.provider.stdout.readline())

    def prompt(self, person):
        """Starts the prompt with a stand-in for the browser that signs in as this person."""
        done = self.run("shared-device-sign-in", "--bus", self.address, "--page", "--json", "--browser", self.folder / "chromium",
                        "--browser-argument", f"--person={person}", "--browser-argument", f"--ca={self.authority}")
        assert done.returncode == 0, (done.stdout, done.stderr)
        return json.loads(done.stdout)

    def account(self):
        return self.ask("GetCurrentAccount", APP).get("account", (None, {}))[1]

    def token(self, **more):
        fields = {"accountIdentifier": self.account()["identifier"], "scopes": ("as", ["openid", "orders.read"]), **more}
        return self.ask("AcquireTokenSilently", APP, **fields)["token"][1]

    def person_of(self, token):
        """The person to whom the token belongs according to the provider; `None` if the token is not valid."""
        request = urllib.request.Request(self.issuer + "/userinfo/", headers={"Authorization": "Bearer " + token["value"][1]})
        try:
            with urllib.request.urlopen(request, context=self.tls, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            assert error.code in (401, 403), error
            return None


def check_provider(device):
    done = device.run("shared-device", "provider", "check", "--bus", device.address, "--json")
    steps = {step["name"]: step for step in json.loads(done.stdout)["steps"]}
    for step in steps.values():
        print(f"  {step['name']}: {step['outcome']}: {step['text']}")
    return {name: step["outcome"] for name, step in steps.items()}


def check(device):
    outcomes = check_provider(device)
    expect("provider check: each step that asks works; revocation is in its second description alone, device codes by oidcEndpoints",
           {outcomes[name] for name in ("tls", "discovery", "keys", "redirect", "deviceCode", "client", "refresh", "revocation")} == {"works"}, outcomes)

    signed_in = device.prompt("ada")
    expect("Ada signs in on its page, by code and PKCE, at an unregistered port", signed_in["username"] == "ada", signed_in)
    first = device.token()
    expect("an app gets her token without a question", device.person_of(first)["preferred_username"] == "ada", first)
    expect("the next request is answered from the vault", device.token()["value"] == first["value"] and device.tokens()["refresh"] == 1)
    before = device.tokens()
    second = device.token(forceRefresh=("b", True))
    after = device.tokens()
    expect("a refresh gives another token, and another refresh token in the old one's place",
           second["value"] != first["value"] and after["refresh"] == 1 and after["used"] == before["used"] + 1, before, after)
    device.token(forceRefresh=("b", True))
    expect("and so does the next one: the new refresh token was kept", device.tokens()["refresh"] == 1 and device.tokens()["used"] == after["used"] + 1)

    latest = device.token()
    expect("the token is valid before the sign-out", device.person_of(latest) is not None)
    device.sign_out()
    until("the revocation of all tokens", lambda: device.tokens()["refresh"] == 0 and device.person_of(latest) is None)
    expect("a sign-out revokes refresh token and access token at the provider", device.account() == {})
    signed_in = device.prompt("grace")
    expect("the next person is asked who she is, and is not signed in as the last one", device.account()["username"] == ("s", "grace"), signed_in)
    device.sign_out()

    # Each client has one grant, so the same device needs another client for sign-in by code.
    device.configure("device-7-code", "deviceCode")

    def begin():
        try:
            return device.ask("BeginSignIn", methods=("as", ["deviceCode"]))
        except Refused as refusal:
            # Refused until the broker has read its configuration again.
            assert "by another method" in str(refusal), refusal
            return None
    until("the other client", lambda: device.text().count("the provider is configured") == 2)
    begun = until("the other way to sign in", begin)
    visitor = Visitor("ada", device.authority)
    visitor.sign_in(begun["verificationURI"][1])
    visitor.send(user_code=begun["userCode"][1])
    visitor.send(action="accept")

    def answer():
        found = device.ask("AwaitSignIn", request=begun["request"], wait=("d", 10.0))
        return None if found.get("pending", ("b", False))[1] else found
    until("the sign-in by code", answer)
    expect("by a code on another device it issues no ID token, and its userinfo endpoint says who she is", device.account()["username"] == ("s", "ada"))
    token = device.token()
    expect("her token is valid", device.person_of(token) is not None)
    device.sign_out()
    until("the revocation", lambda: device.person_of(token) is None)
    expect("no refresh token is valid after the sign-out", device.tokens()["refresh"] == 0)


def main():
    device = Device(sys.argv[1])
    try:
        check(device)
    except BaseException:
        print(device.text(), file=sys.stderr)
        raise
    finally:
        device.close()


main()
