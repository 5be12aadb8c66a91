#!/usr/bin/python3
"""A listener app: app.py NAME [--delay SECONDS] [--fails COUNT]. Its standard input: signin USER PASSWORD; stop, until SIGCONT."""

import argparse
import os
import select
import signal
import sys
import time

from jeepney import DBusAddress, new_method_call
from jeepney.io.blocking import open_dbus_connection
from jeepney.wrappers import DBusErrorResponse, unwrap_msg

broker = DBusAddress("/org/notifycenter/SharedDevice", "org.notifycenter.SharedDevice1", "org.notifycenter.SharedDevice1")
options = argparse.ArgumentParser()
options.add_argument("name")
options.add_argument("--delay", type=float, default=0.3, help="how long a cleanup takes")
options.add_argument("--fails", type=int, default=0, help="how many cleanups fail at first")
arguments = options.parse_args()
bus = open_dbus_connection("SYSTEM")


def call(method, **fields):
    fields["application"] = ("s", arguments.name)
    return unwrap_msg(bus.send_and_get_reply(new_method_call(broker, method, "a{sv}", (fields,)), timeout=20))[0]


def clean_up(session, mark):
    call("ReportCleanup", session=("t", session), progress=("s", "begun"))
    time.sleep(arguments.delay)
    if arguments.fails > 0:
        arguments.fails -= 1
        call("ReportCleanup", session=("t", session), progress=("s", "failed"), detail=("s", "the file is locked"))
        time.sleep(1.5 * arguments.delay)
    call("ReportCleanup", session=("t", session), mark=("t", mark), progress=("s", "finished"), detail=("s", "1 folder"))


while True:
    try:
        for element in call("GetCurrentAccount").get("owed", ("", []))[1]:
            clean_up(element["epoch"][1], element.get("mark", ("t", 0))[1])
    except (DBusErrorResponse, TimeoutError):
        # The broker is not running: retry.
        time.sleep(0.3)
    if select.select([sys.stdin], [], [], 0.05)[0]:
        words = sys.stdin.readline().split()
        if not words:
            break
        if words[0] == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
            continue
        call("SignIn", username=("s", words[1]), password=("s", words[2]), wait=("d", 5.0))
        print("signed in", flush=True)
