"""Shared device mode for apps in Python.

An app learns who is signed in on the device, deletes the data of users who signed out, and reports the deletion.

    from shared_device import Application, Hidden, Nobody, Open

`Application.follow` is all that most apps need. The page Interface.md of the project describes what happens on the bus.
"""

from ._application import Application, Token
from ._deletion import delete_folder
from ._values import Account, Cleanup, EndingSoon, Hidden, Nobody, Open, Reason, SharedDeviceError, State

__all__ = [
    "Account",
    "Application",
    "Cleanup",
    "EndingSoon",
    "Hidden",
    "Nobody",
    "Open",
    "Reason",
    "SharedDeviceError",
    "State",
    "Token",
    "delete_folder",
]
