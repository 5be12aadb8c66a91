"""notify(3) from Python, by ctypes alone: descriptor, check, function, post and state."""

import ctypes
import os
import select
import struct
import sys
import threading

library = ctypes.CDLL(sys.argv[1])
library.notify_set_state.argtypes = [ctypes.c_int, ctypes.c_uint64]
library.notify_post.argtypes = [ctypes.c_char_p]


def ok(status):
    assert status == 0, f"status {status}"


def is_posted(token):
    check = ctypes.c_int(-1)
    ok(library.notify_check(token, ctypes.byref(check)))
    return check.value == 1


name = b"org.example.python"
descriptor, token, checking = ctypes.c_int(-1), ctypes.c_int(-1), ctypes.c_int(-1)
ok(library.notify_register_file_descriptor(name, ctypes.byref(descriptor), 0, ctypes.byref(token)))
ok(library.notify_register_check(name, ctypes.byref(checking)))
assert is_posted(checking) and not is_posted(checking)

ok(library.notify_set_state(token, 2**64 - 1))
ok(library.notify_post(name))
assert select.select([descriptor.value], [], [], 30)[0], "nothing to read"
(heard,) = struct.unpack("!i", os.read(descriptor.value, 4))
assert heard == token.value, (heard, token.value)

state = ctypes.c_uint64(0)
ok(library.notify_get_state(checking, ctypes.byref(state)))
assert state.value == 2**64 - 1, state.value
assert is_posted(checking) and not is_posted(checking)

heard, released = threading.Event(), threading.Event()
handler = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)(lambda context, token: heard.set())
release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda context: released.set())
calling = ctypes.c_int(-1)
ok(library.notify_register_dispatch_f(name, ctypes.byref(calling), None, None, handler, release))
ok(library.notify_post(name))
assert heard.wait(30), "no call"
ok(library.notify_cancel(calling))
assert released.wait(30), "no release"

for each in (token, checking):
    ok(library.notify_cancel(each))
assert library.notify_cancel(token) == 2, "a cancelled token is still valid"
print("all as expected")
