#!/usr/bin/python3
"""Notes on a shared device, in Python: notes.py [FOLDER]. Lines of standard input are notes of the signed-in user."""

import asyncio
import contextlib
import os
import pathlib
import sys

from shared_device import Application, Cleanup, Open, delete_folder

base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
notes = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else f"{base}/python-notes")
application = Application("org.notifycenter.example.python-notes")
writing: pathlib.Path | None = None
"""The file of the signed-in user. There is none while no user's data may be shown."""


@application.cleanup("notes")
def delete(cleanup: Cleanup) -> str:
    for account in cleanup.accounts:
        delete_folder(notes / account.folder)
    return f"{len(cleanup.accounts)} folder"


def take_notes() -> None:
    lines = os.read(0, 65_536)
    if not lines:
        asyncio.get_running_loop().remove_reader(0)
    elif writing is None:
        print("no account is signed in", flush=True)
    else:
        with writing.open("ab") as file:
            file.write(lines)
        print("noted", flush=True)


async def main() -> None:
    global writing
    with contextlib.suppress(PermissionError):  # A file, or /dev/null: no notes will come.
        asyncio.get_running_loop().add_reader(0, take_notes)
    async for state in application.follow():
        writing = None
        if isinstance(state, Open):
            writing = notes / state.account.folder / "notes.txt"
            writing.parent.mkdir(parents=True, exist_ok=True)
            with writing.open("a") as file:
                file.write(f"the secret of {state.account.username}\n")
            print("open", flush=True)
        else:
            print("hidden", flush=True)


asyncio.run(main())
