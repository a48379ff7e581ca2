"""The check of limits must find an example op in too many files, and too much CMake."""
import os
import tempfile
import unittest

import check_limits


class CheckLimitsTest(unittest.TestCase):
    def findings(self, files, lines):
        with tempfile.TemporaryDirectory() as root:
            diff = "An op.\n" + "".join(f"diff --git a/{n}.cc b/{n}.cc\n+int x;\n" for n in range(files))
            for path, text in {"docs/extending/op.diff": diff, "CMakeLists.txt": "\n" * (lines - 1), "cmake/a.cmake": "\n"}.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            return check_limits.check(root)

    def test_within_the_limits(self):
        self.assertEqual([], self.findings(5, 1000))

    def test_above_the_limits(self):
        self.assertEqual(["docs/extending/op.diff: touches 6 files, expected at most 5"], self.findings(6, 1000))
        self.assertEqual(["CMakeLists.txt and *.cmake: 1001 lines, expected at most 1000"], self.findings(5, 1001))


if __name__ == "__main__":
    unittest.main()
