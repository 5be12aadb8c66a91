"""A test app: stores a user's secret, deletes it, and kills itself at the point that its second argument names.

app.py FOLDER [POINT]: prints each state.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import shutil
import signal
import sys
from typing import Any

from shared_device import Application, Cleanup, Open
from shared_device import _keeper, _store

folder = pathlib.Path(sys.argv[1])
point = sys.argv[2] if len(sys.argv) > 2 else ""
application = Application("org.example.python", state_directory=str(folder / "record"))


def reach(name: str) -> None:
    """Kills this process without a chance to clean up, if this is the point."""
    if name == point:
        os.kill(os.getpid(), signal.SIGKILL)


def around(owner: Any, function: str, name: str) -> None:
    """Wraps `function`, so that it reaches one point before and one after."""
    original = getattr(owner, function)
    if asyncio.iscoroutinefunction(original):

        async def later(*arguments: Any) -> Any:
            reach(f"before {name}")
            result = await original(*arguments)
            reach(f"after {name}")
            return result

        setattr(owner, function, later)
        return

    def at_once(*arguments: Any) -> Any:
        reach(f"before {name}")
        result = original(*arguments)
        reach(f"after {name}")
        return result

    setattr(owner, function, at_once)


around(_store.SessionStore, "_write", "the record is written")
if point in ("before the record is forgotten", "after the record is forgotten"):
    around(_keeper.SessionRecord, "cleaned", "the record is forgotten")
if point in ("before the receipt", "after the receipt"):
    around(_keeper.Keeper, "_send", "the receipt")


@application.cleanup("first")
def first(cleanup: Cleanup) -> None:
    reach("before the first step")


@application.cleanup("secret")
def delete(cleanup: Cleanup) -> str:
    reach("before the deletion")
    for account in cleanup.accounts:
        if (folder / "data" / account.folder).exists():
            shutil.rmtree(folder / "data" / account.folder)
    reach("after the deletion")
    return f"{len(cleanup.accounts)} folder"


async def main() -> None:
    async for state in application.follow():
        print(state, flush=True)
        if isinstance(state, Open):
            place = folder / "data" / state.account.folder
            place.mkdir(parents=True, exist_ok=True)
            (place / "secret").write_text(f"the secret of {state.account.username}")
            reach("stored")
            print(f"stored for {state.account.username}", flush=True)


asyncio.run(main())
