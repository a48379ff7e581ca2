"""The check of docs/coverage.md must find missing places, missing tests, double rows and functions without a row."""
import os
import tempfile
import unittest

import check_coverage

ROW = "| `load` | `io/load.h` | `tests/load_test.cc`: Loads |\n"


class CheckCoverageTest(unittest.TestCase):
    def findings(self, rows, seed="def load(a):\n"):
        with tempfile.TemporaryDirectory() as root:
            files = {check_coverage.PAGE: "## Files\n" + rows, "io/load.h": "", "tests/load_test.cc": "TEST(A, Loads) {}",
                     "seeds/000.txt": seed}
            for path, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            return check_coverage.check(root, os.path.join(root, "seeds"))

    def test_clean(self):
        self.assertEqual([], self.findings(ROW))
        self.assertEqual([], self.findings(ROW.replace("`io/load.h`", "not there: nobody needs it")))

    def test_findings(self):
        self.assertIn("no place", self.findings(ROW.replace("load.h", "store.h"))[0])
        self.assertIn("has no test Load", self.findings(ROW.replace(": Loads", ": Load"))[0])
        self.assertIn("no such file", self.findings(ROW.replace("load_test.cc", "store_test.cc"))[0])
        self.assertIn("expected", self.findings(ROW.replace(": Loads", ""))[0])
        self.assertIn("two rows", self.findings(ROW + ROW)[0])
        self.assertIn("no row for Saver", self.findings(ROW, "class Saver:\n    def load(self):\n")[0])


if __name__ == "__main__":
    unittest.main()
