#!/usr/bin/env python3
"""Tests of run_test.py."""

import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
RUNNER = os.path.join(HERE, "run_test.py")
# Reads all of its input first: a process that writes to a pipe without reader is ended by a signal.
FILECHECK = "sh -c 'cat >/dev/null; grep -q hello \"$1\"' --"


class RunTest(unittest.TestCase):
    """Each case writes a test file and runs it with `cat` and `grep` as tools."""

    def setUp(self):
        # pylint: disable-next=consider-using-with
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "a.test")

    def run_file(self, text, *flags):
        """Returns (exit code, all output)."""
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run([sys.executable, "-B", RUNNER, "--bin-dir", self.folder.name,
                               "--filecheck", FILECHECK, *flags, self.path],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_passing_command(self):
        """A command that succeeds, over two lines, with %s and %t."""
        code, out = self.run_file("# A sentence that holds.\n# RUN: cat %s > %t/copy && \\\n"
                                  "#      cat %t/copy | FileCheck %s\nhello\n")
        self.assertEqual((code, out), (0, "1 passed, 0 failed\n"))

    def test_failing_command(self):
        """A failure in the first part of a pipe is detected."""
        code, out = self.run_file("# A sentence that holds.\n# RUN: (cat %s; false) | FileCheck %s\n"
                                  "hello\n")
        self.assertEqual(code, 1)
        self.assertIn("exit code 1", out)

    def test_not(self):
        """`not` inverts the exit code."""
        self.assertEqual(self.run_file("# A sentence that holds.\n# RUN: not false\n")[0], 0)
        self.assertEqual(self.run_file("# A sentence that holds.\n# RUN: not true\n")[0], 1)

    def test_malformed_files(self):
        """No sentence, no command, too many lines."""
        self.assertIn("must be a comment", self.run_file("# RUN: true\n")[1])
        self.assertIn("no RUN", self.run_file("# A sentence that holds.\n")[1])
        self.assertIn("at most 100", self.run_file("# A sentence that holds.\n# RUN: true\n" +
                                                   "\n" * 100)[1])

    def test_golden(self):
        """A difference is printed; --update accepts it."""
        text = "# A sentence that holds.\n# GOLDEN: printf 'one\\ntwo\\n'\n"
        code, out = self.run_file(text)
        self.assertEqual(code, 1)
        self.assertIn("+two", out)
        self.assertEqual(self.run_file(text, "--update")[0], 0)
        self.assertEqual(self.run_file(text)[0], 0)
        code, out = self.run_file(text.replace("two", "three"))
        self.assertEqual(code, 1)
        self.assertIn("-two\n+three", out)


if __name__ == "__main__":
    unittest.main()
