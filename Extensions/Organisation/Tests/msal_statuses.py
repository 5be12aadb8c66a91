"""Tests how Microsoft's library maps each status of a broker. The numbers of `BrokerContract.Status` come from this check.

Usage: msal_statuses.py PYTHON CLIENT. A stand-in broker owns the name and responds to each request with the next status.
"""

import json
import subprocess
import sys
import threading

from jeepney import DBusAddress, HeaderFields, MessageType, new_error, new_method_call, new_method_return
from jeepney.io.blocking import open_dbus_connection

sys.dont_write_bytecode = True
sys.path.insert(0, __file__.rpartition("/")[0] + "/Providers")
import device as devices  # noqa: E402
from device import expect  # noqa: E402

python, client = sys.argv[1:]
NAMES = [
    "Unexpected", "Reserved", "InteractionRequired", "NoNetwork", "NetworkTemporarilyUnavailable", "ServerTemporarilyUnavailable",
    "ApiContractViolation", "UserCanceled", "ApplicationCanceled", "IncorrectConfiguration", "InsufficientBuffer", "AuthorityUntrusted", "UserSwitch",
    "AccountUnusable", "UserDataRemovalRequired", "TransientError", "AccountSwitch", "DeviceNotRegistered", "KeyNotFound", "AccountNotFound",
    "RequiredBrokerMissing", "FallbackToNativeMsal",
]
# After these statuses the library repeats a silent request as an interactive request.
ASKS_A_PERSON = {2, 13}


class Broker(threading.Thread):
    def __init__(self, address):
        super().__init__(daemon=True)
        self.connection = open_dbus_connection(address)
        bus = DBusAddress("/org/freedesktop/DBus", bus_name="org.freedesktop.DBus", interface="org.freedesktop.DBus")
        self.connection.send_and_get_reply(new_method_call(bus, "RequestName", "su", ("com.microsoft.identity.broker1", 0)))
        self.status, self.interactive, self.calls = 0, 7, []

    def run(self):
        try:
            self.serve()
        except ConnectionError:
            # The check is over, and its bus has ended.
            pass

    def serve(self):
        while True:
            call = self.connection.receive()
            if call.header.message_type is not MessageType.method_call:
                continue
            member = call.header.fields[HeaderFields.member]
            if member == "getLinuxBrokerVersion":
                answer = {"linuxBrokerVersion": "3.0.1"}
            elif member == "getAccounts":
                answer = {"accounts": []}
            elif member.startswith("acquireToken"):
                self.calls.append(member)
                status = self.status if member == "acquireTokenSilently" else self.interactive
                error = {"context": f"the reason of {status}", "status": status, "subStatus": 0, "errorCode": 0, "tag": 0}
                answer = {"brokerTokenResponse": {"error": error}}
            elif member == "Ping":
                self.connection.send(new_method_return(call))
                continue
            else:
                self.connection.send(new_error(call, "org.freedesktop.DBus.Error.UnknownMethod"))
                continue
            self.connection.send(new_method_return(call, "s", (json.dumps(answer),)))


def check(device):
    broker = Broker(device.address)
    broker.start()
    library = subprocess.Popen([python, client, "d7b530a4-7680-4c23-a8bf-c52c121d2e87"], env=device.environment, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=device.log, text=True)
    device.processes.append(library)
    assert json.loads(library.stdout.readline())["broker"], "the library uses no broker"

    def ask(silent, interactive=7):
        broker.status, broker.interactive, broker.calls = silent, interactive, []
        library.stdin.write("interactive {}\n")
        library.stdin.flush()
        return json.loads(library.stdout.readline()).get("error_description", "")

    for status, name in enumerate(NAMES):
        # If the library goes on to an interactive request, its error is the error of that second request.
        asks = status in ASKS_A_PERSON
        text = ask(status, status)
        expected = ["acquireTokenSilently", "acquireTokenInteractively"][:1 + asks]
        expect(f"{status} is {name}" + (", and a person is asked" if asks else ""),
               f"Status: Response_Status.Status_{name}" in text and f"the reason of {status}" in text and broker.calls == expected, text, broker.calls)
    for status in (22, -1):
        expect(f"{status} is no status: it reads as Unexpected", "Status_Unexpected" in ask(status), broker.calls)


def main():
    device = devices.Device("msal-statuses")
    try:
        check(device)
    except BaseException:
        print(device.text(), file=sys.stderr)
        raise
    finally:
        device.close()


main()
