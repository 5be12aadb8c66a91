"""The client's decisions on the broker's responses, without a broker."""

from __future__ import annotations

import tempfile
import unittest
from typing import Any, cast

from notify_center._connection import Variant
from shared_device._broker import Broker
from shared_device._keeper import Keeper
from shared_device._record import DeviceSession
from shared_device._store import SessionStore
from shared_device._values import Account, SharedDeviceError

ADA, GRACE = Account("1.t", "ada"), Account("2.t", "grace")


class StandIn:
    """Responds to each request with a response that the test sets."""

    def __init__(self, **response: object) -> None:
        self.response = response

    async def call(self, method: str, request: dict[str, Variant], attempted: str) -> dict[str, Any]:
        assert method == "GetCurrentAccount", method
        return self.response


class StrictPolicyTests(unittest.IsolatedAsyncioTestCase):
    async def test_a_strict_policy_withholds_the_token_if_a_debt_arises_during_the_request(self) -> None:
        for is_strict in (True, False):
            with self.subTest(is_strict), tempfile.TemporaryDirectory() as folder:
                fields: dict[str, object] = {"strict": True} if is_strict else {}
                broker = StandIn(epoch=1, account={"identifier": ADA.identifier, "username": ADA.username}, **fields)
                keeper = Keeper("org.example.python", cast(Broker, broker), SessionStore(folder))
                self.assertEqual(await keeper.require_clean(ADA, "get a token"), None)
                await keeper.change(True)
                self.assertEqual(await keeper.require_clean(ADA, "get a token"), 1)
                entering = keeper.enter(DeviceSession(GRACE, 3), "sign in", False)
                if is_strict:
                    with self.assertRaises(SharedDeviceError) as raised:
                        await entering
                    self.assertEqual(raised.exception.code, "cleanup_required")
                else:
                    await entering
                    self.assertEqual(await keeper.require_clean(GRACE, "get a token"), 3)


if __name__ == "__main__":
    unittest.main()
