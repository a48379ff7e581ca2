"""The check must find diffs that do not apply, have no tests, or are missing on the page."""
import os
import tempfile
import unittest

import check_diffs

GOOD = """Adds a line.
# tests: a_test a_test.Line
diff --git a/ops/a.txt b/ops/a.txt
--- a/ops/a.txt
+++ b/ops/a.txt
@@ -1 +1,2 @@
 one
+two
"""
NEW = """Adds a file.
# tests: b_test b_test.Line
diff --git a/ops/b.cc b/ops/b.cc
new file mode 100644
--- /dev/null
+++ b/ops/b.cc
@@ -0,0 +1 @@
+int b;
"""


class CheckDiffsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root, self.stage = os.path.join(folder.name, "root"), os.path.join(folder.name, "stage")
        self.write("ops/a.txt", "one\n")
        os.makedirs(os.path.join(self.stage, "ops"))
        os.symlink(os.path.join(self.root, "ops/a.txt"), os.path.join(self.stage, "ops/a.txt"))

    def write(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def diff(self, name, text):
        self.write(f"docs/extending/{name}.diff", text)
        return check_diffs.Diff(self.root, name)

    def staged(self, name):
        with open(os.path.join(self.stage, name), encoding="utf-8") as file:
            return file.read()

    def test_reads_the_head_and_the_names(self):
        diff = self.diff("b", NEW)
        self.assertEqual([("b_test", "b_test.Line")], diff.tests)
        self.assertEqual(["ops/b.cc"], diff.files)

    def test_applies_to_copies(self):
        self.assertEqual([], check_diffs.apply_all(self.root, [self.diff("a", GOOD), self.diff("b", NEW)], self.stage))
        self.assertEqual(("one\ntwo\n", "int b;\n"), (self.staged("ops/a.txt"), self.staged("ops/b.cc")))
        with open(os.path.join(self.root, "ops/a.txt"), encoding="utf-8") as file:
            self.assertEqual("one\n", file.read())

    def test_a_diff_that_does_not_apply(self):
        self.write("ops/a.txt", "other\n")
        found = check_diffs.apply_all(self.root, [self.diff("a", GOOD)], self.stage)
        self.assertEqual(1, len(found))
        self.assertTrue(found[0].startswith("docs/extending/a.diff: does not apply: error: patch failed: ops/a.txt:1"))

    def test_two_diffs_that_exclude_each_other(self):
        found = check_diffs.apply_all(self.root, [self.diff("b", NEW), self.diff("c", NEW)], self.stage)
        self.assertEqual(1, len(found))
        self.assertTrue(found[0].startswith("docs/extending/c.diff: does not apply: error: ops/b.cc: already exists"))

    def test_a_diff_without_sentence_and_tests(self):
        found = check_diffs.apply_all(self.root, [self.diff("a", GOOD.split("\n", 2)[2])], self.stage)
        self.assertEqual(["docs/extending/a.diff: expected a sentence in line 1",
                          "docs/extending/a.diff: expected a line '# tests: TARGET REGEX'"], found)

    def test_the_page_links_every_diff(self):
        self.write("docs/extending.md", "[a](extending/a.diff), [c](extending/c.diff)\n")
        diffs = [self.diff("a", GOOD), self.diff("b", NEW)]
        self.assertEqual(["docs/extending.md: no link to extending/b.diff", "docs/extending.md: extending/c.diff does not exist"],
                         list(check_diffs.page_findings(self.root, diffs)))

    def test_reports_of_other_checks_count_for_the_files_of_diffs(self):
        for check in check_diffs.CHECKS:
            path = os.path.join(self.stage, f"tests/layers/check_{check}.py")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write({"layers": "print('ops/a.txt:1: bad')\nprint('ops/c.txt:1: bad')\nraise SystemExit(1)\n",
                            "tree": "raise SystemExit('no tree')\n", "names": "", "words": ""}[check])
        self.assertEqual(["check_layers: ops/a.txt:1: bad", "check_tree: no tree"],
                         check_diffs.source_findings(self.stage, [self.diff("a", GOOD)]))

    def test_the_tree_gets_what_changed_and_loses_the_rest(self):
        tree = os.path.join(self.root, "tree")
        self.write("tree/ops/old.cc", "")
        self.write("tree/build/ci/kept", "")
        self.write("tree/ops/a.txt", "one\n")
        os.utime(os.path.join(tree, "ops/a.txt"), (1, 1))
        check_diffs.write_tree(self.stage, tree)
        self.assertEqual(["a.txt"], os.listdir(os.path.join(tree, "ops")))
        self.assertTrue(os.path.exists(os.path.join(tree, "build/ci/kept")))
        self.assertEqual(1, os.stat(os.path.join(tree, "ops/a.txt")).st_mtime)


if __name__ == "__main__":
    unittest.main()
