"""The client's side of the broker's interface, without a broker."""

from __future__ import annotations

import re
import unittest

from unittest.mock import call, patch

from device import ROOT
from notify_center._connection import Variant
from shared_device import Application
from shared_device._broker import KNOWN_CODES, Broker


class CodeTests(unittest.TestCase):
    def test_each_error_code_of_the_interface_is_known(self) -> None:
        page = (ROOT / "Documentation/Interface.md").read_text()
        section = page.split("\n## Errors\n")[1].split("\n## ")[0]
        codes = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        self.assertGreaterEqual(len(codes), 20)
        self.assertEqual(set(codes), KNOWN_CODES)


class ActivityTests(unittest.TestCase):
    def test_activity_is_reported_at_once_and_then_at_most_every_ten_seconds(self) -> None:
        application = Application("org.example.python", bus="unix:path=/none")
        report = call("ReportActivity", {"application": Variant("s", "org.example.python")})
        with patch.object(Broker, "tell") as tell, patch("time.monotonic") as clock:
            for now, reports in [(5.0, 1), (5.0, 1), (14.9, 1), (15.0, 2), (24.0, 2), (100.0, 3)]:
                clock.return_value = now
                application.note_activity()
                self.assertEqual(tell.mock_calls, [report] * reports)


if __name__ == "__main__":
    unittest.main()
