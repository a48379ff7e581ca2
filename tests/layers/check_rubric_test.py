"""The measures must be right for small sources, and the check must fail for a tree that misses a limit."""
import contextlib
import io
import os
import tempfile
import unittest

import check_rubric

CLASS = """#pragma once
namespace millrace {
/// A thing.
class Thing final : public Base {
 public:
  explicit Thing(int size = 0) : size_{size}, names_() {}
  bool operator==(const Thing& other) const {
    return "{" != other.size_;  // }
  }

 private:
  int size_ = 0;
};
struct Row { int a; };
inline const Row kRows[] = {{1}, {2}};
template <typename T, typename = int>
T twice(T value) {
  auto f = [&](T x) {
    return x + x;
  };
  return f(value);
}
}  // namespace millrace
"""


class CheckRubricTest(unittest.TestCase):
    def run_on(self, files):
        """(limits missed, output) for a tree with layers ops and tests."""
        with tempfile.TemporaryDirectory() as root:
            for path, text in {"cmake/layers.txt": "1 ops\n2 tools\n3 tests\n", **files}.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                    f.write(text)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                missed = check_rubric.check(root)
            return missed, out.getvalue()

    def test_functions(self):
        self.assertEqual([(6, 1), (7, 3), (16, 7)], check_rubric.functions(CLASS))

    def test_comments(self):
        self.assertEqual((3, 22), check_rubric.comment_lines(CLASS))
        self.assertEqual((3, 4), check_rubric.comment_lines('/* a\n\nb */\nint a;  // "c\nauto b = "// d";\n'))

    def test_duplicates(self):
        run = " ".join(f"f{i}(x);" for i in range(16))  # 80 tokens
        find = check_rubric.find_duplicates
        self.assertEqual([(80, "a.cc", 2, "b.cc", 1)], find({"a.cc": "int a;\n" + run, "b.cc": run}))
        self.assertEqual(2, len(find({"a.cc": run + "\nint a;\n" + run, "b.cc": "// c\n" + run})))
        self.assertEqual([], find({"a.cc": run, "b.cc": run.replace("f8", "g8")}))
        self.assertEqual([], find({"a.cc": "{0}," * 16, "b.cc": "{1}," * 16}))

    def test_good_tree(self):
        files = {"ops/a.cc": "int f() {\n  return 1;\n}\n", "ops/a.h": "/// F.\nint f();\n",
                 "tests/a.cc": "int a;\n" * 5}
        missed, out = self.run_on(files)
        self.assertEqual(0, missed, out)
        self.assertIn("95th percentile of 1, longest 3: 3 ", out)
        self.assertIn("headers, ops, 1 of 2 lines: 0.500", out)
        self.assertIn("lines of C++ in tests, 5 to 5 (beside them 0 ", out)

    def test_missed_limits(self):
        body = "void f() {\n" + "g();\n" * 40 + "}\n"
        missed, out = self.run_on({"ops/a.cc": body, "ops/a.h": "int f();\n"})
        self.assertIn("FAIL lines of a function, 95th percentile of 1, longest 42: 42 (limit at most 40)", out)
        self.assertIn("FAIL comments of headers, all, 0 of 1 lines", out)
        self.assertIn("FAIL comments of headers, ops, 0 of 1 lines", out)
        self.assertIn("FAIL lines of C++ in tests, 0 to 43", out)
        self.assertEqual(4, missed, out)

    def test_headers_of_tools_need_no_comments(self):
        files = {"ops/a.h": "/// F.\nint f();\n", "tools/a.h": "int g();\n" * 9, "tests/a.cc": "int a;\n" * 9}
        self.assertEqual(0, self.run_on(files)[0])

    def test_tree_without_layers(self):
        with self.assertRaisesRegex(OSError, "layers.txt is missing or empty"), tempfile.TemporaryDirectory() as root:
            check_rubric.check(root)


if __name__ == "__main__":
    unittest.main()
