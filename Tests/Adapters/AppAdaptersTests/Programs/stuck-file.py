#!/usr/bin/env python3
"""Mounts a file whose open or read never returns, or a directory whose getattr never returns.

Usage: stuck-file.py PATH open|read|getattr, as root. It writes "ready", and runs until it is killed.
"""
import ctypes
import os
import struct
import sys

FORGET, GETATTR, OPEN, READ, RELEASE, INIT, INTERRUPT = 2, 3, 14, 15, 18, 26, 36
STUCK = {"open": OPEN, "read": READ, "getattr": GETATTR}[sys.argv[2]]
MODE = 0o040777 if STUCK == GETATTR else 0o100644


def answer(opcode):
    """The bytes after the header of a response; None if there is no response."""
    if opcode in (FORGET, INTERRUPT, STUCK):
        return None
    if opcode == INIT:
        return struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 12, 9, 4096, 1, 0, 0, *[0] * 8)
    if opcode == GETATTR:
        # 4,096 bytes.
        return struct.pack("<Q2I6Q10I", 3600, 0, 0, 1, 4096, 8, 0, 0, 0, 0, 0, 0, MODE, 1, 0, 0, 0, 512, 0)
    return bytes(16) if opcode == OPEN else b""


device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
options = f"fd={device},rootmode={MODE:o},user_id=0,group_id=0,allow_other".encode()
if ctypes.CDLL(None, use_errno=True).mount(b"stuck", os.fsencode(sys.argv[1]), b"fuse", 6, options) != 0:
    sys.exit(f"cannot mount: {os.strerror(ctypes.get_errno())}")
print("ready", flush=True)
while True:
    try:
        request = os.read(device, 0x21000)
    except FileNotFoundError:
        continue
    except OSError:
        # The file system was unmounted.
        break
    _, opcode, unique = struct.unpack_from("<IIQ", request)
    body = answer(opcode)
    if body is not None:
        error = 0 if opcode in (INIT, GETATTR, OPEN, RELEASE) else -38
        os.write(device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
