"""The tree check must find each kind of error in a small bad tree, and no errors in a good one."""
import os
import tempfile
import unittest

import check_tree

GOOD = {"ops/README.md": "the ops\n"}


class CheckTreeTest(unittest.TestCase):
    def findings(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**GOOD, **files}.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                    f.write(text)
            return check_tree.check(root)

    def assert_one(self, files, message):
        findings = self.findings(files)
        self.assertEqual(len(findings), 1, findings)
        self.assertIn(message, findings[0])

    def test_good_tree_is_clean(self):
        self.assertEqual([], self.findings({"ops/a.h": "#pragma once\n", "ops/a.cc": "int a;\n",
                                            "docs/README.md": "[ops](../ops/README.md#x) [out](https://example.org)\n"}))

    def test_long_file(self):
        self.assert_one({"ops/a.cc": "\n" * 501}, "ops/a.cc: 501 lines, expected at most 500")

    def test_header_without_guard(self):
        self.assert_one({"ops/a.h": "int a;\n"}, "ops/a.h: no '#pragma once'")

    def test_using_namespace_in_a_header(self):
        self.assert_one({"ops/a.h": "#pragma once\nusing namespace std;\n"}, "ops/a.h:2: 'using namespace'")

    def test_note_for_later(self):
        self.assert_one({"ops/a.cc": "// TO" + "DO: all of it\n"}, "ops/a.cc:1: note to do something later")

    def test_path_of_a_machine(self):
        self.assert_one({"docs/README.md": "see /ho" + "me/ann/notes\n"}, "docs/README.md:1: absolute path")

    def test_dead_link(self):
        self.assert_one({"docs/README.md": "[x](gone.md)\n"}, "link to gone.md, which does not exist")

    def test_headings_and_tables_that_are_none(self):
        self.assert_one({"docs/README.md": "#tools / pages\n```\n#include\n```\n"}, "docs/README.md:1: heading without a space")
        self.assert_one({"docs/README.md": "| a | b |\n| - | --: |\n| 1 | 2 |\n\n| 3 | 4 |\n"},
                        "docs/README.md:5: table without a line '|---|'")

    def test_missing_and_long_readme(self):
        self.assert_one({"tools/CMakeLists.txt": "\n"}, "tools/README.md: missing")
        self.assert_one({"tools/README.md": "x\n" * 31}, "tools/README.md: 31 lines, expected at most 30")

    def test_large_file(self):
        self.assert_one({"docs/README.md": "", "docs/big.bin": "x" * 3_000_001}, "docs/big.bin: 3000001 bytes")


if __name__ == "__main__":
    unittest.main()
