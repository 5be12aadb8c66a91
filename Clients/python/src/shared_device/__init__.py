"""Shared device mode: an app hears who is signed in on the device, deletes the data of people who signed out, and reports that.

    from shared_device import Application, Hidden, Nobody, Open

`Application.follow` is all that most apps need. The page Interface.md of the project describes what happens on the bus.
"""

from ._application import Application, Token
from ._deletion import delete_folder
from ._values import Account, Cleanup, Hidden, Nobody, Open, Reason, SharedDeviceError, State

__all__ = [
    "Account",
    "Application",
    "Cleanup",
    "Hidden",
    "Nobody",
    "Open",
    "Reason",
    "SharedDeviceError",
    "State",
    "Token",
    "delete_folder",
]
