"""A program with Microsoft's library: msal_client.py CLIENT-ID.

Each line of standard input is a request, `METHOD` and its parameters as JSON; each response is a line of JSON.
"""

import json
import sys

import msal

SCOPES = ["https://graph.microsoft.com/.default"]


class NoNetwork:
    """Stands in for Microsoft's servers: gives only their description, which the library requests before it begins."""

    asked = []

    def get(self, url, **_):
        if not url.endswith("/.well-known/openid-configuration"):
            self.asked.append(url)
            raise OSError(f"there is no network: {url}")
        base = "https://login.microsoftonline.com/common"
        return Description(json.dumps({
            "issuer": f"{base}/v2.0", "authorization_endpoint": f"{base}/oauth2/v2.0/authorize", "token_endpoint": f"{base}/oauth2/v2.0/token"}))

    def post(self, url, **_):
        self.asked.append(url)
        raise OSError(f"there is no network: {url}")

    def close(self):
        pass


class Description:
    status_code, headers = 200, {}

    def __init__(self, text):
        self.text = text

    def raise_for_status(self):
        pass


app = msal.PublicClientApplication(
    sys.argv[1], authority="https://login.microsoftonline.com/common", enable_broker_on_linux=True, instance_discovery=False, http_client=NoNetwork())


def accounts():
    return [account["username"] for account in app.get_accounts()]


def interactive(**parameters):
    return app.acquire_token_interactive(SCOPES, parent_window_handle=app.CONSOLE_WINDOW_HANDLE, **parameters)


def silent(account=0):
    known = app.get_accounts()
    return app.acquire_token_silent_with_error(SCOPES, known[account], force_refresh=True) if known else {"error": "no account"}


def cached(account=0):
    """Gets a token without forcing a refresh: the call that an app makes before each of its requests."""
    return app.acquire_token_silent_with_error(SCOPES, app.get_accounts()[account])


def asked():
    """Returns the requests to Microsoft's servers."""
    return NoNetwork.asked


calls = {call.__name__: call for call in (accounts, interactive, silent, cached, asked)}
print(json.dumps({"broker": app._enable_broker}), flush=True)
for line in sys.stdin:
    name, _, parameters = line.strip().partition(" ")
    try:
        answer = calls[name](**json.loads(parameters or "{}"))
    except Exception as error:  # noqa: BLE001: whatever an app would see
        answer = {"error_description": repr(error)}
    print(json.dumps(answer, default=str), flush=True)
