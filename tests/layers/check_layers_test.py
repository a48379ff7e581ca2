"""The layer check must find each kind of wrong include in a small bad tree, and no errors in a good one."""
import os
import tempfile
import unittest

import check_layers

LAYERS = "0 proto\n1 framework\n2 ops\n3 transpiler\n3 io\n7 tools\n8 tests\n"


class CheckLayersTest(unittest.TestCase):
    def findings(self, files, public="", inner=""):
        """The output of the check for a tree of {path: [include lines]}."""
        with tempfile.TemporaryDirectory() as root:
            texts = {p: "".join(f"#include {i}\n" for i in incs) for p, incs in files.items()}
            texts["cmake/layers.txt"] = LAYERS
            texts["cmake/public_headers.txt"] = public
            texts["cmake/inner_layers.txt"] = inner
            for path, text in texts.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                    f.write(text)
            return check_layers.check(root)[0]

    def assert_one(self, findings, *parts):
        self.assertEqual(len(findings), 1, findings)
        for part in parts:
            self.assertIn(part, findings[0])

    def test_good_tree_is_clean(self):
        self.assertEqual([], self.findings({
            "framework/program.h": ["<vector>", "<cstdint>", '"llvm/ADT/StringRef.h"'],
            "framework/program.cc": ['"framework/program.h"', "<unistd.h>", "<fmt/format.h>"],
            "ops/op_def.h": ['"framework/program.h"'],
            "transpiler/report.cc": ['"ops/op_def.h"', "<nlohmann/json.hpp>"],
            "tests/ops/a_test.cc": ["<gtest/gtest.h>", '"ops/op_def.h"', '"proto/program.pb.h"']}))

    def test_include_of_a_higher_rank(self):
        self.assert_one(self.findings({"framework/a.cc": ["<map>", '"ops/op_def.h"'], "ops/op_def.h": []}),
                        "framework/a.cc:2", "framework (rank 1) may not include ops (rank 2)")

    def test_include_of_another_folder_of_the_same_rank(self):
        self.assert_one(self.findings({"io/a.cc": ['"transpiler/pass.h"'], "transpiler/pass.h": []}),
                        "io (rank 3) may not include transpiler (rank 3)")

    def test_folders_within_a_layer(self):
        inner = "ops/base\nops ops/math\nops/all.*\n"
        self.assertEqual([], self.findings({"ops/math/a.cc": ['"ops/base/a.h"'], "ops/base/a.h": [], "ops/all.cc": ['"ops/math/b.h"'],
                                            "ops/math/b.h": []}, inner=inner))
        self.assert_one(self.findings({"ops/base/a.cc": ['"ops/math/b.h"'], "ops/math/b.h": []}, inner=inner),
                        "ops/base/a.cc:1", "ops/base may not include ops/math")
        self.assert_one(self.findings({"ops/a.cc": ['"ops/math/b.h"'], "ops/math/b.h": []}, inner=inner), "ops may not include ops/math")
        self.assert_one(self.findings({"ops/new/a.cc": ['"ops/base/b.h"'], "ops/base/b.h": []}, inner=inner), "ops/new has no rank")

    def test_cycle_between_files(self):
        self.assert_one(self.findings({"ops/a.h": ['"ops/b.h"'], "ops/b.h": ['"ops/c.h"'], "ops/c.h": ['"ops/a.h"']}),
                        "include cycle: ops/a.h -> ops/b.h -> ops/c.h -> ops/a.h")

    def test_file_that_includes_itself(self):
        self.assert_one(self.findings({"ops/a.h": ['"ops/a.h"']}), "ops/a.h -> ops/a.h")

    def test_third_party_library_in_a_wrong_folder(self):
        self.assert_one(self.findings({"ops/a.cc": ["<nlohmann/json.hpp>"]}), "nlohmann-json is not for sources of ops")

    def test_protobuf_in_a_header(self):
        for name in ('"proto/program.pb.h"', "<google/protobuf/message.h>"):
            self.assert_one(self.findings({"framework/a.h": [name]}), "protobuf is not for headers of framework")

    def test_unknown_library(self):
        self.assert_one(self.findings({"ops/a.cc": ["<boost/any.hpp>"]}), "no third-party library that the layers know")

    def test_path_that_does_not_start_at_the_root(self):
        self.assert_one(self.findings({"ops/a.cc": ['"op_def.h"'], "ops/op_def.h": []}), "no such file in the tree")

    def test_missing_file(self):
        self.assert_one(self.findings({"ops/a.cc": ['"ops/gone.h"']}), "no such file in the tree")

    def test_spaces_around_the_hash_do_not_hide_an_include(self):
        files = {"framework/a.cc": [], "ops/b.h": []}
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**{p: "" for p in files}, "cmake/layers.txt": LAYERS}.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                    f.write('  #  include   "ops/b.h"\n' if path == "framework/a.cc" else text)
            self.assert_one(check_layers.check(root)[0], "framework/a.cc:1")

    def test_installed_header_leaks_a_library(self):
        self.assert_one(self.findings({"transpiler/api.h": ["<string>", '"llvm/ADT/StringRef.h"']}, "transpiler/api.h\n"),
                        "an installed header may include the standard library")

    def test_installed_header_that_does_not_exist(self):
        self.assert_one(self.findings({"ops/a.h": []}, "ops/gone.h\n"), "ops/gone.h: no such file")

    def test_too_many_installed_headers(self):
        names = [f"ops/h{i}.h" for i in range(31)]
        self.assert_one(self.findings({n: [] for n in names}, "\n".join(names)), "31 headers, expected at most 30")

    def test_tree_without_layers_is_an_error(self):
        with tempfile.TemporaryDirectory() as root, self.assertRaises(OSError):
            check_layers.check(root)


if __name__ == "__main__":
    unittest.main()
