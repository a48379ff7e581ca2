"""The check of names must find what two sources of a folder define twice, and nothing else."""
import os
import tempfile
import unittest

import check_names


def unnamed(text):
    return "namespace millrace {\nnamespace {\n" + text + "\n}  // namespace\n}  // namespace millrace\n"


class CheckNamesTest(unittest.TestCase):
    def findings(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {"cmake/layers.txt": "2 ops\n7 tools\n", **files}.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            return check_names.check(root)

    def names(self, text):
        return sorted(check_names.names_in(unnamed(text)))

    def test_finds_types_vars_and_functions(self):
        self.assertEqual(["A", "B", "C", "D", "E", "F"], self.names(
            "struct A { int x; };\nclass B final : public A {};\nenum class C { kOne };\nusing D = int;\n"
            "template <typename T>\nstruct E;\ntemplate <typename T = int>\nusing F = T;"))
        self.assertEqual(["A", "kB", "kC"], self.names("enum A : int {\n  kB,  // first\n  kC = 4,\n};"))
        self.assertEqual(["kA", "kB", "kC"], self.names("constexpr int kA = 1 << 3;\nconstexpr size_t kB = size_t{1} << 20U;\n"
                                                        "const std::map<int, A> kC = {{1, {}}};"))
        self.assertEqual(["f", "g", "h"], self.names("void f() { int x = 1; g(x); }\ntemplate <typename T>\nA<T, int> g(T = T{});\n"
                                                     "struct P* h(int (*fn)()) { return {}; } // int i() {}"))

    def test_members_and_operators_have_no_name(self):
        self.assertEqual([], self.names("void A::f() {}\nbool operator==(A a, A b) { return true; }\nstatic_assert(x == 1);"))

    def test_one_name_in_two_sources_of_a_folder(self):
        files = {"ops/math/a.cc": unnamed("int f();"), "ops/math/b.cc": unnamed("int f(int);"), "ops/nn/c.cc": unnamed("int f();")}
        self.assertEqual(["ops/math/b.cc: 'f' is also in the unnamed namespace of ops/math/a.cc"], self.findings(files))

    def test_equal_aliases_are_allowed(self):
        files = {"ops/a.cc": unnamed("using A = int;"), "ops/b.cc": unnamed("using A = int;")}
        self.assertEqual([], self.findings(files))
        self.assertEqual(1, len(self.findings({**files, "ops/c.cc": unnamed("using A = long;")})))

    def test_main_programs_are_compiled_separately(self):
        self.assertEqual([], self.findings({"tools/a.cc": unnamed("int f();"), "tools/b.cc": unnamed("int f();")}))


if __name__ == "__main__":
    unittest.main()
