"""The check of names must find what two sources of a folder define twice, and nothing else."""
import os
import tempfile
import unittest

import check_names


def unnamed(text):
    return "namespace millrace {\nnamespace {\n" + text + "\n}  // namespace\n}  // namespace millrace\n"


def of_file(space, text):
    """As unnamed(), in a namespace of the file."""
    return "namespace millrace {\nnamespace " + space + " {\nnamespace {\n" + text + "\n}  // namespace\n}\n}\n"


class CheckNamesTest(unittest.TestCase):
    def findings(self, files, allowed=()):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {"cmake/layers.txt": "2 ops\n7 tools\n", **files}.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            return check_names.check(root, allowed)

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

    def test_sources_with_a_namespace_of_their_own_may_share_names(self):
        files = {"ops/a.cc": of_file("a", "int f();"), "ops/b.cc": of_file("b_ops", "int f();")}
        self.assertEqual([], self.findings(files))
        self.assertEqual(["ops/b.cc: 'f' is also in the unnamed namespace of ops/a.cc"],
                         self.findings({**files, "ops/b.cc": of_file("a", "int f();")}))

    def test_a_name_of_a_file_that_a_source_without_namespace_has_is_ambiguous(self):
        files = {"ops/a.cc": of_file("a", "int f();\nusing A = int;"), "ops/b.cc": unnamed("int f();\nusing A = int;")}
        self.assertEqual(["ops/a.cc: 'f' is also in the unnamed namespace of ops/b.cc, which has no namespace of its own"],
                         self.findings(files))

    def test_names_that_end_with_the_name_of_the_file(self):
        files = {"ops/data_norm.cc": of_file("data_norm", "void infer_data_norm() {}\nstruct AttrsDataNorm {};\nstruct DataNorm {};"),
                 "tools/sum.cc": unnamed("int infer_data_norm();\nint sums();\nint to_sum();")}
        end = "ends with the name of the file, expected a short name"
        self.assertEqual([f"ops/data_norm.cc: 'AttrsDataNorm' {end}", f"ops/data_norm.cc: 'infer_data_norm' {end}",
                          f"tools/sum.cc: 'to_sum' {end}"], self.findings(files))
        allowed = ["ops/data_norm.cc:AttrsDataNorm", "ops/data_norm.cc:infer_data_norm", "tools/sum.cc:to_sum"]
        self.assertEqual([], self.findings(files, allowed))
        self.assertEqual(["names_of_files.txt: no source defines tools/sum.cc:sums, or it does not end with the name of its file"],
                         self.findings(files, [*allowed, "tools/sum.cc:sums"]))


if __name__ == "__main__":
    unittest.main()
