// load, save, load_combine and save_combine: written values are read back, slices are selected by
// seek and shape, and no op leaves the folder that the caller allows.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "framework/op_attrs.h"

namespace millrace::executor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) /
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  // Runs a program of persistable vars in a scope with the values of earlier programs.
  Status run(const Program& program) {
    const Executor executor(standard_runtime(root_.string()));
    auto prepared = executor.prepare(program, scope_);
    if (!prepared.ok()) return std::move(prepared).status();
    std::vector<Value> none;
    return (*prepared)->run({}, {}, none);
  }
  std::string text(const Program& program) {
    const Status status = run(program);
    return status.ok() ? "ok" : status.to_string();
  }
  void set(const char* name, const std::vector<float>& values, Dims dims) {
    auto& tensor = scope_.local(name).as<Tensor>();
    ASSERT_TRUE(tensor.resize(DType::kFloat32, dims).ok());
    std::copy(values.begin(), values.end(), tensor.data<float>());
  }
  std::vector<float> get(const char* name) {
    const auto values = scope_.find(name)->get_if<Tensor>()->values<float>();
    return {values.begin(), values.end()};
  }

  static std::unique_ptr<Program> program(const std::vector<std::pair<const char*, Dims>>& vars) {
    auto program = Program::create();
    for (const auto& [name, dims] : vars) {
      VarSpec spec = VarSpec::tensor(DType::kFloat32, dims);
      spec.persistable = true;
      program->root().declare(name, spec);
    }
    return program;
  }
  static Op& op(Program& program, const char* type, const std::string& path) {
    Op& added = program.root().append_op(type);
    added.set_attr("file_path", make_attr(path));
    return added;
  }
  // Writes [4, 3] of 0, 1, ... to a file.
  void save_matrix(const std::string& path) {
    set("w", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {4, 3});
    const auto saving = program({{"w", {4, 3}}});
    op(*saving, "save", path).set_input("X", "w");
    ASSERT_EQ(text(*saving), "ok");
  }
  std::string load_part(int64_t seek, std::vector<int64_t> shape, Dims declared) {
    const auto loading = program({{"part", std::move(declared)}});
    op(*loading, "load", "sub/w")
        .set_output("Out", "part")
        .set_attr("seek", make_attr(seek))
        .set_attr("shape", make_attr(std::move(shape)));
    return text(*loading);
  }

  fs::path root_;
  Scope scope_;
};

TEST_F(FilesTest, ReadsWhatItWrote) {
  save_matrix("sub/w");
  EXPECT_EQ(fs::file_size(root_ / "sub/w"), 74U);  // the size of the original's file
  set("w", {0}, {1});
  const auto loading = program({{"w", {4, 3}}});
  op(*loading, "load", (root_ / "sub/w").string()).set_output("Out", "w");
  ASSERT_EQ(text(*loading), "ok");
  EXPECT_EQ(get("w").size(), 12U);
  EXPECT_EQ(get("w")[11], 11);
}

TEST_F(FilesTest, SeekCountsElements) {
  save_matrix("sub/w");
  ASSERT_EQ(load_part(6, {2, 3}, {2, 3}), "ok");
  EXPECT_THAT(get("part"), ElementsAre(6, 7, 8, 9, 10, 11));
  ASSERT_EQ(load_part(3, {1, 3}, {-1, 3}), "ok");
  EXPECT_THAT(get("part"), ElementsAre(3, 4, 5));
  EXPECT_THAT(load_part(9, {2, 3}, {2, 3}),
              HasSubstr("seek 9, shape [2, 3]: expected a part of the 12 elements of [4, 3]"));
  EXPECT_THAT(load_part(12, {1, 3}, {1, 3}), HasSubstr("expected a part of the 12 elements"));
  EXPECT_THAT(load_part(0, {1, 3}, {2, 3}),
              HasSubstr("'shape' is [1, 3], but 'part' is declared as [2, 3]"));
}

TEST_F(FilesTest, RefusesWhatTheProgramDoesNotDeclare) {
  save_matrix("sub/w");
  const auto loading = program({{"w", {4, 2}}});
  op(*loading, "load", "sub/w").set_output("Out", "w");
  EXPECT_THAT(text(*loading), HasSubstr("expected dims [4, 2], found [4, 3]"));
  std::ofstream(root_ / "sub/w", std::ios::app) << 'x';
  const auto longer = program({{"w", {4, 3}}});
  op(*longer, "load", "sub/w").set_output("Out", "w");
  EXPECT_THAT(text(*longer), HasSubstr("found 1 more bytes"));
}

TEST_F(FilesTest, CombinesInTheOrderOfTheArguments) {
  set("b", {1, 2}, {2});
  set("a", {3}, {1});
  const auto saving = program({{"a", {1}}, {"b", {2}}});
  op(*saving, "save_combine", "all").set_input("X", std::vector<std::string>{"b", "a"});
  ASSERT_EQ(text(*saving), "ok");
  set("b", {0}, {1});
  const auto loading = program({{"a", {1}}, {"b", {2}}});
  op(*loading, "load_combine", "all").set_output("Out", std::vector<std::string>{"b", "a"});
  ASSERT_EQ(text(*loading), "ok");
  EXPECT_THAT(get("b"), ElementsAre(1, 2));
  const auto wrong = program({{"a", {1}}, {"b", {2}}});
  op(*wrong, "load_combine", "all").set_output("Out", std::vector<std::string>{"a", "b"});
  EXPECT_THAT(text(*wrong), HasSubstr("expected dims [1], found [2]"));
}

TEST_F(FilesTest, SavesHalfPrecision) {
  set("w", {0.1F, 65536}, {2});
  const auto saving = program({{"w", {2}}});
  op(*saving, "save", "half").set_input("X", "w").set_attr("save_as_fp16", make_attr(true));
  ASSERT_EQ(text(*saving), "ok");
  const auto loading = program({{"w", {2}}});
  op(*loading, "load", "half").set_output("Out", "w");
  EXPECT_THAT(text(*loading), HasSubstr("expected dtype f32, found f16"));
}

TEST_F(FilesTest, KeepsAFileThatMayNotBeReplaced) {
  save_matrix("sub/w");
  const auto saving = program({{"w", {4, 3}}});
  op(*saving, "save", "sub/w").set_input("X", "w").set_attr("overwrite", make_attr(false));
  EXPECT_THAT(text(*saving), HasSubstr("exists"));
}

TEST_F(FilesTest, StaysBelowTheFolder) {
  set("w", {1}, {1});
  for (const char* const path : {"../w", "/etc/w", "a/../../w", ""}) {
    const auto saving = program({{"w", {1}}});
    op(*saving, "save", path).set_input("X", "w");
    EXPECT_THAT(text(*saving), HasSubstr("as the name of a file in")) << path;
  }
  const auto saving = program({{"w", {1}}});
  op(*saving, "save", "w").set_input("X", "w");
  const auto prepared = Executor(standard_runtime()).prepare(*saving, scope_);
  EXPECT_THAT(prepared.status().to_string(), HasSubstr("no folder was allowed"));
}

TEST_F(FilesTest, LoadsTheRowsOfOneServer) {
  save_matrix("sub/w");
  const auto load_rows = [&](int64_t index, int64_t nodes, std::vector<int64_t> shape) {
    const auto loading = program({{"part", {-1, 3}}});
    op(*loading, "sparse_tensor_load", "sub/w")
        .set_output("Out", "part")
        .set_attr("node_index", make_attr(index))
        .set_attr("node_num", make_attr(nodes))
        .set_attr("shape", make_attr(std::move(shape)));
    return text(*loading);
  };
  ASSERT_EQ(load_rows(1, 3, {1, 3}), "ok");
  EXPECT_THAT(get("part"), ElementsAre(3, 4, 5));
  ASSERT_EQ(load_rows(0, 3, {}), "ok");
  EXPECT_THAT(get("part"), ElementsAre(0, 1, 2, 9, 10, 11));
  EXPECT_THAT(load_rows(0, 3, {1, 3}), HasSubstr("'shape' is [1, 3], but the file has f32 [2, 3]"));
  EXPECT_THAT(load_rows(3, 3, {}), HasSubstr("'node_index' is 3, expected less than 'node_num' 3"));
}

TEST_F(FilesTest, NamesAMissingFile) {
  const auto loading = program({{"w", {1}}});
  op(*loading, "load", "nothing").set_output("Out", "w");
  const Status status = run(*loading);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.to_string(), HasSubstr((root_ / "nothing").string()));
}

}  // namespace
}  // namespace millrace::executor
