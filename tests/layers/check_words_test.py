"""The word check must find odd wording in what readers read, and leave code alone."""
import os
import tempfile
import unittest

import check_words


class CheckWordsTest(unittest.TestCase):
    def findings(self, path, text):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
            return check_words.check(root)

    def test_comments_of_sources(self):
        self.assertEqual(["ops/a.h:2: 'anew'; write: again, from scratch; of checkpoints: reshard"],
                         self.findings("ops/a.h", "int a;\nint b;  // is cut anew\n"))
        self.assertEqual(1, len(self.findings("tests/a.py", '"""Reads\nso many numbers."""\n')))
        self.assertEqual(1, len(self.findings("tests/a.py", "x = 1  # whoever asks\n")))

    def test_strings_and_code_are_left_alone(self):
        self.assertEqual([], self.findings("ops/a.cc", 'f("// anew");\nint anew = 1;\n'))
        self.assertEqual([], self.findings("tests/a.py", 'f("anew")\nanew = 1\n'))

    def test_pages(self):
        self.assertEqual(1, len(self.findings("docs/a.md", "It is mended.\n")))
        self.assertEqual([], self.findings("docs/a.md", "Flag `anew`.\n\n```\nanew\n```\n"))


if __name__ == "__main__":
    unittest.main()
