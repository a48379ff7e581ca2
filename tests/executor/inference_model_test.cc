// An inference model extracted from a training program runs without it, has only the parameters
// that its part of the program reads, and is the same from a folder and from memory.
#include "executor/inference_model.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "framework/export.h"
#include "framework/persistable.h"
#include "framework/read_program.h"
#include "io/persistables.h"
#include "tests/executor/values.h"

namespace millrace::executor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

Value row(std::vector<float> data) {
  Value value;
  Tensor& tensor = value.as<Tensor>();
  EXPECT_TRUE(tensor.resize(DType::kFloat32, {1, static_cast<int64_t>(data.size())}).ok());
  std::copy(data.begin(), data.end(), tensor.data<float>());
  return value;
}

std::string text(const Status& status) {
  return status.ok() ? "ok" : status.to_string();
}

class InferenceModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "model." + std::to_string(::getpid()) + "." +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    main_ = load("tests/data/fit_a_line/main.pb");
    const auto startup = load("tests/data/fit_a_line/startup.pb");
    EXPECT_EQ(text(run(*startup, {}, {}).status()), "ok");
    // One step, so that every parameter has changed.
    NamedValues feeds;
    feeds["x"] = row(std::vector<float>(13, 0.5F));
    feeds["y"] = row({3});
    EXPECT_EQ(text(run(*main_, std::move(feeds), {}).status()), "ok");
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::unique_ptr<Program> load(const std::string& path) {
    auto program = read_program(path);
    EXPECT_EQ(text(program.ok() ? Ok() : program.status()), "ok");
    return std::move(program).value();
  }
  StatusOr<std::vector<Value>> run(const Program& program, NamedValues feeds,
                                   const std::vector<std::string>& fetches) {
    return run(program, std::move(feeds), fetches, scope_);
  }
  StatusOr<std::vector<Value>> run(const Program& program, NamedValues feeds,
                                   const std::vector<std::string>& fetches, Scope& scope) {
    MILLRACE_ASSIGN_OR_RETURN(const auto prepared, Executor(runtime_).prepare(program, scope));
    std::vector<Value> results(fetches.size());
    MILLRACE_RETURN_IF_ERROR(prepared->run(feeds, fetches, results));
    return results;
  }
  // The name of the prediction.
  [[nodiscard]] std::string prediction() const {
    for (const Op& op : main_->root().ops())
      if (op.type() == "elementwise_add") return op.first_output("Out").str();
    return {};
  }
  std::vector<float> predicted(const InferenceModel& model, Scope& scope) {
    NamedValues feeds;
    feeds["x"] = row(std::vector<float>(13, 1.0F));
    auto results = run(*model.program, std::move(feeds), model.fetches, scope);
    EXPECT_EQ(text(results.ok() ? Ok() : results.status()), "ok");
    return results.ok() ? floats((*results)[0]) : std::vector<float>();
  }
  [[nodiscard]] const ops::OpRegistry& registry() const { return *runtime_->ops; }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      names.insert(entry.path().filename().string());
    return names;
  }

  std::shared_ptr<const Runtime> runtime_ = standard_runtime();
  std::unique_ptr<Program> main_;
  Scope scope_;
  std::string folder_;
};

TEST_F(InferenceModelTest, FolderAndMemoryGiveTheSame) {
  const std::vector<std::string> fetches = {prediction()};
  ASSERT_EQ(text(save_inference_model(folder_, *main_, registry(), scope_, {"x"}, fetches)), "ok");
  EXPECT_THAT(files(), ElementsAre("__model__", "fc_0.b_0", "fc_0.w_0"));
  Scope scope;
  const auto model = load_inference_model(folder_, scope);
  ASSERT_EQ(text(model.ok() ? Ok() : model.status()), "ok");
  EXPECT_THAT(model->feeds, ElementsAre("x"));
  EXPECT_THAT(model->fetches, ElementsAre(prediction()));
  for (const Op& op : model->program->root().ops()) EXPECT_NE(op.type(), "sgd");

  const auto bytes = inference_model_bytes(*main_, registry(), scope_, {"x"}, fetches);
  ASSERT_EQ(text(bytes.ok() ? Ok() : bytes.status()), "ok");
  Scope other;
  const auto again = load_inference_model_bytes(bytes->program, bytes->params, other);
  ASSERT_EQ(text(again.ok() ? Ok() : again.status()), "ok");
  const std::vector<float> expected = predicted(*model, scope);
  ASSERT_EQ(expected.size(), 1);
  EXPECT_EQ(predicted(*again, other), expected);
  // The same result as the training program with the same parameters.
  NamedValues feeds;
  feeds["x"] = row(std::vector<float>(13, 1.0F));
  feeds["y"] = row({0});
  const auto trained = run(*main_, std::move(feeds), fetches);
  ASSERT_EQ(text(trained.ok() ? Ok() : trained.status()), "ok");
  EXPECT_EQ(floats((*trained)[0]), expected);
}

TEST_F(InferenceModelTest, CombinedFileIsTheBytesInMemory) {
  SaveModelOptions options;
  options.params_filename = "__params__";
  options.model_filename = "m";
  const std::vector<std::string> fetches = {prediction()};
  ASSERT_EQ(
      text(save_inference_model(folder_, *main_, registry(), scope_, {"x"}, fetches, options)),
      "ok");
  EXPECT_THAT(files(), ElementsAre("__params__", "m"));
  const auto bytes = inference_model_bytes(*main_, registry(), scope_, {"x"}, fetches);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(*read_file(folder_ + "/__params__", 1 << 20), bytes->params);
  EXPECT_EQ(*read_file(folder_ + "/m", 1 << 20), bytes->program);
  Scope scope;
  // Only the last component of the names matters.
  EXPECT_EQ(text(load_inference_model(folder_, scope, "a/b/m", "/x/__params__").status()), "ok");
  EXPECT_THAT(
      text(save_inference_model(folder_, *main_, registry(), scope_, {"x"}, fetches, options)),
      HasSubstr("exists already"));
  options.replace = Replace::kYes;
  EXPECT_EQ(
      text(save_inference_model(folder_, *main_, registry(), scope_, {"x"}, fetches, options)),
      "ok");
}

TEST_F(InferenceModelTest, ManifestsSayWhatChanged) {
  for (const std::string params : {"", "__params__"}) {
    SaveModelOptions options;
    options.params_filename = params;
    options.replace = Replace::kYes;
    const std::vector<std::string> fetches = {prediction()};
    ASSERT_EQ(
        text(save_inference_model(folder_, *main_, registry(), scope_, {"x"}, fetches, options)),
        "ok");
    Scope scope;
    const auto load = [&] {
      return text(load_inference_model(folder_, scope, "", params).status());
    };
    EXPECT_EQ(load(), "ok");
    for (const std::string& name :
         {std::string("__model__"), params.empty() ? "fc_0.w_0" : params}) {
      const std::string good = *read_file(folder_ + "/" + name, 1 << 20);
      std::string bad = good;
      bad.back() = static_cast<char>(bad.back() ^ 1);
      ASSERT_TRUE(write_file_atomically(folder_ + "/" + name, bad, Replace::kYes).ok());
      EXPECT_THAT(load(), HasSubstr("as its manifest says")) << name;
      ASSERT_TRUE(write_file_atomically(folder_ + "/" + name, good, Replace::kYes).ok());
    }
    EXPECT_EQ(load(), "ok");
  }
  // Without the manifest a folder is loaded unchecked; writing only the program removes the
  // checksums of the other files.
  SaveModelOptions alone;
  alone.program_only = true;
  alone.replace = Replace::kYes;
  ASSERT_EQ(
      text(save_inference_model(folder_, *main_, registry(), scope_, {"x"}, {prediction()}, alone)),
      "ok");
  EXPECT_FALSE(std::filesystem::exists(folder_ + ".manifest.json"));
}

TEST_F(InferenceModelTest, RefusesWhatCannotWork) {
  const auto refused = [&](const std::vector<std::string>& feeds,
                           const std::vector<std::string>& fetches) {
    return text(make_inference_program(*main_, registry(), feeds, fetches).status());
  };
  EXPECT_THAT(refused({"x"}, {}), HasSubstr("at least one var"));
  EXPECT_THAT(refused({"z"}, {prediction()}), HasSubstr("'z': the program has no such var"));
  EXPECT_THAT(refused({"x"}, {"z"}), HasSubstr("'z': the program has no such var"));
  EXPECT_NE(refused({"y"}, {prediction()}), "ok") << "the prediction needs x";
  EXPECT_THAT(refused({}, {prediction()}),
              HasSubstr("need 'x', which is neither fed nor computed"));
  EXPECT_EQ(refused({"x", "y"}, {prediction()}), "ok");
  Scope scope;
  EXPECT_EQ(load_inference_model(folder_ + "/none", scope).status().code(), StatusCode::kNotFound);
  fs::create_directories(folder_);
  EXPECT_EQ(load_inference_model(folder_, scope).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(load_inference_model_bytes("no program", "", scope).status().code(),
            StatusCode::kInvalidProgram);
  const auto bytes = inference_model_bytes(*main_, registry(), scope_, {"x"}, {prediction()});
  ASSERT_TRUE(bytes.ok());
  EXPECT_THAT(text(load_inference_model_bytes(bytes->program, "", scope).status()),
              HasSubstr("bytes are not given"));
  EXPECT_EQ(
      load_inference_model_bytes(bytes->program, bytes->params.substr(1), scope).status().code(),
      StatusCode::kInvalidData);
  auto newer = load("tests/data/fit_a_line/main.pb");
  newer->set_version(true, 9000000);
  EXPECT_THAT(
      text(load_inference_model_bytes(export_program(*newer), bytes->params, scope).status()),
      HasSubstr("unsupported program version 9000000"));
}

// A table that stays on servers is not loaded, and the servers may have moved.
TEST_F(InferenceModelTest, TablesOnServersAreNotLoaded) {
  const std::string source = R"(# millrace program 1

block 0 {
  persist table: f32(9, 2)
  persist w: f32(2)
  var ids: i64(-1, 1)
  var rows: f32(-1, 2)
  var out: f32(-1, 2)

  distributed_lookup_table Ids=ids W=table -> Outputs=rows {
      table_names: ["table.block0", "table.block1"], height_sections: [5l, 4l],
      endpoints: ["a:1", "b:1"], trainer_id: 0
  }
  elementwise_mul X=rows Y=w -> Out=out {axis: -1}
}
)";
  const auto program = read_program_bytes(source, "model", {});
  ASSERT_EQ(text(program.ok() ? Ok() : program.status()), "ok");
  Scope held;
  held.local("w") = row({2, 3});
  held.local("w").as<Tensor>().set_dims({2});
  const auto only_w = [](const Var& var) { return var.name() == "w"; };
  ASSERT_EQ(text(io::save_vars(held, **program, folder_, only_w).status()), "ok");
  ASSERT_EQ(text(write_file_atomically(folder_ + "/__model__", export_program(**program))), "ok");
  const auto load = [&](const std::vector<std::string>& endpoints, Scope& scope) {
    return load_inference_model_distributed(folder_ + "/", scope, "x/__model__", "", endpoints);
  };
  Scope scope;
  const auto model = load({"c:7", "d:8"}, scope);
  ASSERT_EQ(text(model.ok() ? Ok() : model.status()), "ok");
  EXPECT_EQ(floats(*scope.find("w")), std::vector<float>({2, 3}));
  EXPECT_EQ(scope.find("table"), nullptr);
  EXPECT_THAT(model->program->root().front().find_attr("endpoints")->strings(),
              ElementsAre("c:7", "d:8"));
  Scope none;
  EXPECT_THAT(text(load({"c:7"}, none).status()),
              HasSubstr("the program names 2 servers, 1 are given"));
  EXPECT_EQ(load({}, none).status().code(), StatusCode::kNotFound) << "the table has no file";
  EXPECT_THAT(text(load_inference_model_distributed(folder_ + "/none", none).status()),
              HasSubstr("there is no directory named '" + folder_ + "/none'"));
  EXPECT_EQ(load_inference_model_distributed(folder_, none, "other").status().code(),
            StatusCode::kNotFound);
  // From memory.
  const auto bytes = io::vars_to_memory(held, **program, only_w);
  ASSERT_TRUE(bytes.ok());
  const std::string exported = export_program(**program);
  const auto again = load_inference_model_distributed_bytes(exported, *bytes, none, {"c:7", "d:8"});
  ASSERT_EQ(text(again.ok() ? Ok() : again.status()), "ok");
  EXPECT_EQ(floats(*none.find("w")), std::vector<float>({2, 3}));
  EXPECT_THAT(text(load_inference_model_distributed_bytes(exported, std::nullopt, none).status()),
              HasSubstr("parameters must be given"));
  EXPECT_EQ(load_inference_model_distributed_bytes("no program", "", none).status().code(),
            StatusCode::kInvalidProgram);
}

TEST_F(InferenceModelTest, VarsByPredicate) {
  const auto weights = [](const Var& var) {
    return var.name().contains("w_0") && var.persistable();
  };
  const auto count = io::save_vars(scope_, *main_, folder_, weights);
  ASSERT_EQ(text(count.ok() ? Ok() : count.status()), "ok");
  EXPECT_EQ(*count, 1);
  EXPECT_THAT(files(), ElementsAre("fc_0.w_0"));
  EXPECT_EQ(*io::save_vars(scope_, *main_, folder_, [](const Var&) { return false; }), 0);
  Scope scope;
  EXPECT_EQ(text(io::load_vars(scope, *main_, folder_, weights)), "ok");
  EXPECT_EQ(floats(*scope.find("fc_0.w_0")), floats(*scope_.find("fc_0.w_0")));
  // The folder does not have all persistables, and then nothing is loaded.
  Scope none;
  EXPECT_EQ(io::load_persistables(none, *main_, folder_).code(), StatusCode::kNotFound);
  EXPECT_THAT(none.names(), ElementsAre());
  // the learning rate is stored with the two parameters
  const auto bytes = io::persistables_to_memory(scope_, *main_);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(text(io::persistables_from_memory(none, *main_, *bytes)), "ok");
  EXPECT_EQ(none.names().size(), 3);
  EXPECT_EQ(io::persistables_from_memory(none, *main_, *bytes + "x").code(),
            StatusCode::kInvalidData);
}

TEST(IsPersistable, KindAndFlag) {
  const auto program = Program::create();
  for (const VarKind kind :
       {VarKind::kLodTensor, VarKind::kSelectedRows, VarKind::kFeedMinibatch, VarKind::kFetchList,
        VarKind::kReader, VarKind::kRaw, VarKind::kLodTensorArray}) {
    for (const bool flag : {false, true}) {
      VarSpec spec = VarSpec::shapeless(kind);
      spec.persistable = flag;
      const std::string name = std::to_string(static_cast<int>(kind)) + (flag ? "p" : "");
      program->root().declare(name, spec);
      const bool holder = kind == VarKind::kFeedMinibatch || kind == VarKind::kFetchList ||
                          kind == VarKind::kReader;
      EXPECT_EQ(is_persistable(*program->root().find_var(name)), flag && !holder) << name;
    }
  }
  EXPECT_EQ(io::vars_where(*program, is_persistable).size(), 2) << "the others have no files";
}

}  // namespace
}  // namespace millrace::executor
