// Model folders of both generations are found and loaded; parameters are written to a folder or a
// file and loaded again; missing or mismatched values are reported by name.

#include "io/model_folder.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/read_program.h"
#include "io/npz.h"
#include "io/params_manifest.h"
#include "io/paths.h"
#include "io/persistables.h"
#include "tests/io/temp_folder.h"
#include "tests/support/program_builder.h"

namespace millrace::io {
namespace {

using millrace::testing::bytes_of;
using millrace::testing::ProgramBuilder;
using millrace::testing::put_file;
using millrace::testing::TempFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

const std::string kLinear = "tests/data/models/linear";
const std::string kSeparate = "tests/data/models/fit_a_line_2018";

std::unique_ptr<Program> program_of(const std::string& folder) {
  auto program = read_program(folder + "/__model__");
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return *std::move(program);
}

std::vector<std::string> names_of(const Program& program) {
  std::vector<std::string> names;
  for (const ParamSpec& spec : persistables_of(program)) names.push_back(spec.name);
  return names;
}

class ModelFolder : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& bytes = "") {
    put_file(folder_ / name, bytes);
  }
  std::string params(const std::string& program_name, const std::string& filename = "") {
    const auto path = find_params(folder_.path(), folder_ / program_name, *linear_, filename);
    return path.ok() ? *path : path.status().to_string();
  }
  TempFolder folder_;
  std::unique_ptr<Program> linear_ = program_of(kLinear);
};

TEST_F(ModelFolder, FindsTheProgram) {
  EXPECT_THAT(find_program(folder_.path()).status().to_string(),
              HasSubstr("no program: expected __model__ or a *.pdmodel file"));
  put("net.pdmodel");
  std::filesystem::create_directory(folder_ / "dir.pdmodel");
  EXPECT_EQ(*find_program(folder_.path()), folder_ / "net.pdmodel");
  put("old.pdmodel");
  EXPECT_THAT(find_program(folder_.path()).status().to_string(),
              AllOf(HasSubstr("expected one *.pdmodel, found net.pdmodel, old.pdmodel"),
                    HasSubstr("use --program to select one")));
  put("__model__");
  EXPECT_EQ(*find_program(folder_.path()), folder_ / "__model__");
  EXPECT_EQ(*find_program(folder_.path(), "old.pdmodel"), folder_ / "old.pdmodel");
  EXPECT_EQ(find_program(folder_.path(), "none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(find_program(folder_.path(), "../x").status().code(), StatusCode::kInvalidData);
  EXPECT_EQ(find_program(folder_ / "none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(find_program(folder_ / "__model__").status().code(), StatusCode::kInvalidData);
}

TEST_F(ModelFolder, FindsTheParameters) {
  EXPECT_EQ(params("__model__"), folder_.path());
  put("x.pdiparams");
  EXPECT_EQ(params("__model__"), folder_ / "x.pdiparams");
  put("params");
  EXPECT_EQ(params("__model__"), folder_ / "params");
  put("__params__");
  EXPECT_EQ(params("__model__"), folder_ / "__params__");
  put("net.pdiparams");
  EXPECT_EQ(params("net.pdmodel"), folder_ / "net.pdiparams");
  EXPECT_EQ(params("net.pdmodel", "x.pdiparams"), folder_ / "x.pdiparams");
  EXPECT_THAT(params("net.pdmodel", "none"), HasSubstr("none: no such file"));
}

TEST_F(ModelFolder, AVarMayBeCalledParams) {
  ProgramBuilder builder;
  builder.param("params", {2}).param("w", {3});
  put("params");
  EXPECT_EQ(*find_params(folder_.path(), folder_ / "__model__", builder.program()), folder_.path());
}

TEST_F(ModelFolder, LoadsCombinedAndSeparateFiles) {
  Scope scope;
  ASSERT_TRUE(load_parameters(kLinear + "/params", *linear_, scope).ok());
  EXPECT_THAT(scope.names(), ElementsAre("b", "w"));
  EXPECT_THAT(scope.find("w")->get_if<Tensor>()->dims(), ElementsAre(3, 2));
  const auto separate = program_of(kSeparate);
  EXPECT_THAT(names_of(*separate), ElementsAre("fc_0.b_0", "fc_0.w_0"));
  ASSERT_TRUE(load_parameters(kSeparate, *separate, scope).ok());
  EXPECT_THAT(scope.find("fc_0.w_0")->get_if<Tensor>()->dims(), ElementsAre(13, 1));
}

TEST_F(ModelFolder, PersistablesOfAllBlocksInOrderOfBytes) {
  ProgramBuilder builder;
  builder.param("bn_2", {1}).param("bn_10", {1}).param("B", {1}).var("temporary", {1});
  const auto declare = [&](const char* name, VarKind kind) {
    VarSpec spec = VarSpec::shapeless(kind);
    spec.persistable = true;
    builder.block().declare(name, spec);
  };
  declare("feed", VarKind::kFeedMinibatch);
  declare("fetch", VarKind::kFetchList);
  declare("reader", VarKind::kReader);
  declare("raw", VarKind::kRaw);
  declare("table", VarKind::kSelectedRows);
  builder.enter_block(0);
  builder.param("inner", {1}).param("bn_2", {1});
  EXPECT_THAT(names_of(builder.program()), ElementsAre("B", "bn_10", "bn_2", "inner", "table"));
}

TEST_F(ModelFolder, SavesWhatItLoaded) {
  Scope scope;
  ASSERT_TRUE(load_parameters(kLinear + "/params", *linear_, scope).ok());
  ASSERT_TRUE(save_parameters(folder_ / "all", *linear_, scope).ok());
  EXPECT_EQ(bytes_of(folder_ / "all"), bytes_of(kLinear + "/params"));
  ASSERT_TRUE(save_parameters(folder_ / "each/", *linear_, scope).ok());
  EXPECT_EQ(bytes_of(folder_ / "each/b") + bytes_of(folder_ / "each/w"),
            bytes_of(kLinear + "/params"));
  Scope again;
  ASSERT_TRUE(load_parameters(folder_ / "each", *linear_, again).ok());
  EXPECT_EQ(again.names(), scope.names());
  EXPECT_THAT(save_parameters(folder_ / "x", *linear_, Scope()).to_string(),
              HasSubstr("/x, 'b': the var has no value to save"));
}

// Files of the original have no form for arrays; without a value nothing would be lost.
TEST_F(ModelFolder, RefusesToSaveTensorArrays) {
  ProgramBuilder builder;
  builder.param("w", {2}).holder("history", VarKind::kLodTensorArray);
  Scope scope;
  scope.local("w").as<Tensor>() = *Tensor::create(DType::kFloat32, {2});
  scope.local("history");
  ASSERT_TRUE(save_parameters(folder_ / "before", builder.program(), scope).ok());
  scope.local("history").as<TensorArray>().clear();
  const auto refused = AllOf(HasSubstr("'history': expected tensors and selected rows to save, "
                                       "found a tensor array"),
                             HasSubstr("a checkpoint holds arrays"));
  EXPECT_THAT(save_parameters(folder_ / "x", builder.program(), scope).to_string(), refused);
  EXPECT_THAT(save_parameters(folder_ / "each/", builder.program(), scope).to_string(), refused);
  EXPECT_THAT(save_persistables(scope, builder.program(), folder_ / "y").status().to_string(),
              refused);
  EXPECT_THAT(persistables_to_memory(scope, builder.program()).status().to_string(), refused);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x"));
}

// A manifest is written with the files; files that differ from it are not loaded.
TEST_F(ModelFolder, ManifestsSayWhatChanged) {
  Scope scope;
  ASSERT_TRUE(load_parameters(kLinear + "/params", *linear_, scope).ok());
  const auto load = [&](const std::string& name) {
    Scope again;
    return load_parameters(folder_ / name, *linear_, again).to_string();
  };
  for (const std::string name : {"all", "each/"}) {
    ASSERT_TRUE(save_parameters(folder_ / name, *linear_, scope).ok());
    const std::string manifest = params_manifest_path(folder_ / name);
    const std::string file = folder_ / (name == "all" ? "all" : "each/w");
    EXPECT_EQ(load(name), "ok");
    std::string bytes = bytes_of(file);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    put_file(file, bytes);
    EXPECT_THAT(load(name), AllOf(HasSubstr(file), HasSubstr("expected checksum"),
                                  HasSubstr("remove '" + manifest + "'")));
    put_file(file, bytes + "x");
    EXPECT_THAT(load(name), HasSubstr("as its manifest says, found"));
    put_file(file, bytes);
    std::filesystem::remove(manifest);
    EXPECT_EQ(load(name), "ok");
    // A save without a manifest removes the old one.
    ASSERT_TRUE(save_parameters(folder_ / name, *linear_, scope, {.replace = Replace::kYes}).ok());
    const Value* const w = scope.find("w");
    ASSERT_TRUE(save_param(file, {"w", w}, {.replace = Replace::kYes}).ok());
    EXPECT_FALSE(std::filesystem::exists(manifest));
  }
  // The vars of a combined file, which does not contain names.
  ASSERT_TRUE(save_parameters(folder_ / "all", *linear_, scope, {.replace = Replace::kYes}).ok());
  std::string text = bytes_of(folder_ / "all.manifest.json");
  text.replace(text.find("\"w\""), 3, "\"v\"");
  put("all.manifest.json", text);
  EXPECT_THAT(load("all"), HasSubstr("var 2 of 2: expected 'v' as its manifest says, found 'w'"));
  put("all.manifest.json", "{}");
  EXPECT_THAT(load("all"), HasSubstr("all.manifest.json: member 'schema'"));
}

TEST_F(ModelFolder, NpzMayHoldMoreOrLessButMustFit) {
  Scope scope;
  ParamValues values;
  auto& b = values["b"].as<Tensor>();
  ASSERT_TRUE(b.resize(DType::kFloat32, {2, 1}).ok());
  b.data<float>()[0] = 4;
  values["surplus"].as<TensorArray>().clear();
  const auto load = [&] {
    put("p", *npz_bytes(values));
    return load_parameters(folder_ / "p", *linear_, scope);
  };
  ASSERT_TRUE(load().ok());
  EXPECT_THAT(scope.names(), ElementsAre("b"));
  EXPECT_THAT(scope.find("b")->get_if<Tensor>()->dims(), ElementsAre(2));
  ASSERT_TRUE(values["b"].as<Tensor>().resize(DType::kFloat32, {3}).ok());
  EXPECT_THAT(load().to_string(), HasSubstr("p, 'b': expected dims [2], found f32 [3]"));
  ASSERT_TRUE(values["b"].as<Tensor>().resize(DType::kFloat64, {2}).ok());
  EXPECT_THAT(load().to_string(), HasSubstr("p, 'b': expected dtype f32, found f64 [2]"));
  values["b"].as<TensorArray>().clear();
  EXPECT_THAT(load().to_string(), HasSubstr("expected lod_tensor, found an array of 0 tensors"));
  values.erase("b");
  EXPECT_THAT(load().to_string(), HasSubstr("p: expected persistable vars of the program, such as "
                                            "'b'; found 'surplus'"));
}

TEST_F(ModelFolder, RowsHaveTheDeclaredWidth) {
  Value value;
  auto& rows = value.as<SelectedRows>();
  rows.rows = {1};
  rows.height = 5;
  ASSERT_TRUE(rows.value.resize(DType::kFloat32, {1, 3}).ok());
  ParamSpec spec{"table", VarKind::kSelectedRows, DType::kFloat32, Dims{9, 3}};
  EXPECT_TRUE(fit_declared(value, spec).ok());
  spec.dims = Dims{9, 4};
  EXPECT_EQ(fit_declared(value, spec).message(), "expected rows of [9, 4], found f32 [1, 3]");
}

TEST_F(ModelFolder, ErrorsLeaveTheScopeAsItWas) {
  Scope scope;
  put("b", bytes_of(kLinear + "/params").substr(0, 32));
  const Status status = load_parameters(folder_.path(), *linear_, scope);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.to_string(), HasSubstr("/w, 'w': cannot open"));
  EXPECT_TRUE(scope.names().empty());
  EXPECT_EQ(load_parameters(folder_ / "none", *linear_, scope).code(), StatusCode::kNotFound);
}

TEST_F(ModelFolder, AFileThatCannotBeLookedForMayExist) {
  const std::string loop = folder_ / "loop";
  std::filesystem::create_symlink(loop, loop);
  EXPECT_TRUE(may_exist(loop + "/x"));
  EXPECT_FALSE(is_folder(loop + "/x"));
  EXPECT_FALSE(may_exist(folder_ / "none"));
  EXPECT_TRUE(may_exist(folder_.path()));
  EXPECT_TRUE(is_folder(folder_.path()));
}

}  // namespace
}  // namespace millrace::io
