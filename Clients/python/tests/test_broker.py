"""The client's side of the broker's interface, without a broker."""

from __future__ import annotations

import re
import unittest

from device import ROOT
from shared_device._broker import KNOWN_CODES


class CodeTests(unittest.TestCase):
    def test_each_error_code_of_the_interface_is_known(self) -> None:
        page = (ROOT / "Documentation/Interface.md").read_text()
        section = page.split("\n## Errors\n")[1].split("\n## ")[0]
        codes = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        self.assertGreaterEqual(len(codes), 20)
        self.assertEqual(set(codes), KNOWN_CODES)


if __name__ == "__main__":
    unittest.main()
