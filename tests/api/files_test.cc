// Files of variables, inference models and training programs of the installed library.

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/executor.h"
#include "api/persistables.h"
#include "api/training.h"
#include "executor/session.h"
#include "framework/program_file.h"
#include "tests/api/nets.h"

namespace millrace::api {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ApiFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    check(executor_.run(net_.net.startup(), scope_).status());
    PreparedProgram training = value_of(executor_.prepare(net_.net.main(), scope_));
    for (int step = 0; step < 2; ++step) check(training.run(batch(step)).status());
  }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string at(const std::string& name) const { return folder_ + "/" + name; }
  static std::string bytes_of(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  void expect_equal(const Scope& other) const {
    EXPECT_EQ(other.names(), scope_.names());
    for (const std::string& name : scope_.names())
      EXPECT_EQ(value_of(other.get(name)).bytes, value_of(scope_.get(name)).bytes) << name;
  }

  std::string folder_ = ::testing::TempDir() + "/api_files_" +
                        ::testing::UnitTest::GetInstance()->current_test_info()->name();
  SmallNet net_;
  Executor executor_ = value_of(Executor::create());
  Scope scope_;
};

TEST_F(ApiFiles, PersistablesAreThoseOfASession) {
  Session session = value_of(Session::open(net_.net.main(), &net_.net.startup()));
  for (int step = 0; step < 2; ++step) check(session.run(batch(step), {net_.loss.name()}).status());
  check(session.save_params(at("session") + "/"));
  const int64_t count = value_of(save_persistables(net_.net.main(), scope_, at("scope")));
  int64_t files = 0;
  for (const auto& entry : fs::directory_iterator(at("session"))) {
    EXPECT_EQ(bytes_of(entry.path().string()),
              bytes_of(at("scope/" + entry.path().filename().string())));
    ++files;
  }
  EXPECT_EQ(files, count);
  EXPECT_EQ(static_cast<size_t>(count), scope_.names().size());
}

TEST_F(ApiFiles, PersistablesComeBackFromFoldersFilesAndMemory) {
  const Program& main = net_.net.main();
  check(save_persistables(main, scope_, at("many")).status());
  check(save_persistables(main, scope_, at("one"), {.filename = "all"}).status());
  EXPECT_EQ(save_persistables(main, scope_, at("many")).status().code(), StatusCode::kUsage);
  check(save_persistables(main, scope_, at("many"), {.replace = true}).status());
  const std::string bytes = value_of(persistables_to_memory(main, scope_));
  EXPECT_EQ(bytes, bytes_of(at("one/all")));
  const Scope from_many;
  const Scope from_one;
  const Scope from_memory;
  check(load_persistables(main, from_many, at("many")));
  check(load_persistables(main, from_one, at("one"), "all"));
  check(persistables_from_memory(main, from_memory, bytes));
  expect_equal(from_many);
  expect_equal(from_one);
  expect_equal(from_memory);
}

TEST_F(ApiFiles, SomeVarsCanBeSaved) {
  const Program& main = net_.net.main();
  EXPECT_EQ(value_of(save_vars(main, scope_, {"fc_0.w_0", "fc_1.w_0"}, at("some"))), 2);
  EXPECT_FALSE(fs::exists(at("some/fc_0.b_0")));
  const Scope loaded;
  check(load_vars(main, loaded, {"fc_1.w_0"}, at("some")));
  EXPECT_THAT(loaded.names(), ElementsAre("fc_1.w_0"));
  EXPECT_EQ(value_of(loaded.get("fc_1.w_0")).bytes, value_of(scope_.get("fc_1.w_0")).bytes);
  EXPECT_THAT(save_vars(main, scope_, {"no_such_var"}, at("none")).status().message(),
              HasSubstr("'no_such_var'"));
  EXPECT_EQ(load_vars(main, loaded, {"fc_0.b_0"}, at("some")).code(), StatusCode::kNotFound);
}

TEST_F(ApiFiles, InferenceModelsAreThoseOfASession) {
  const std::string guess = net_.guess.name();
  check(save_inference_model(net_.net.main(), scope_, at("model"), {"x"}, {guess}));
  const Scope parameters;
  const InferenceModel model = value_of(load_inference_model(at("model"), parameters));
  EXPECT_THAT(model.feeds, ElementsAre("x"));
  EXPECT_EQ(model.fetches.size(), 1U);
  Arrays feeds = batch(5);
  feeds.erase("t");
  const Arrays results = value_of(executor_.run(*model.program, parameters, feeds));
  Session session = value_of(Session::open_model(at("model")));
  EXPECT_EQ(results.begin()->second.bytes, value_of(session.run(feeds)).begin()->second.bytes);
  EXPECT_EQ(save_inference_model(net_.net.main(), scope_, at("model"), {"x"}, {guess}).code(),
            StatusCode::kUsage);
  EXPECT_EQ(load_inference_model(at("none"), parameters).status().code(), StatusCode::kNotFound);
}

TEST(ApiTraining, MinimizesASavedProgramLikeANetwork) {
  const SmallNet forward(/*dropout=*/false, /*trains=*/false);
  const SmallNet trained;
  MinimizeOptions options{.method = Momentum{.momentum = 0.9}, .learning_rate = 0.05};
  options.parameters = {"fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"};
  const MinimizeResult made =
      value_of(minimize(forward.net.main(), forward.net.startup(), forward.loss.name(), options));
  EXPECT_EQ(made.param_grads.size(), 4U);
  EXPECT_THAT(made.warnings, ::testing::IsEmpty());
  std::vector<std::vector<std::byte>> losses;
  for (const auto& [main, startup] : {std::pair(made.main.get(), made.startup.get()),
                                      std::pair(&trained.net.main(), &trained.net.startup())}) {
    Executor executor = value_of(Executor::create());
    const Scope scope;
    check(executor.run(*startup, scope).status());
    EXPECT_TRUE(scope.has(made.learning_rate));
    PreparedProgram program = value_of(executor.prepare(*main, scope));
    for (int step = 0; step < 3; ++step)
      losses.push_back(
          value_of(program.run(batch(step), {forward.loss.name()})).at(forward.loss.name()).bytes);
  }
  for (size_t step = 0; step < 3; ++step) EXPECT_EQ(losses[step], losses[step + 3]) << step;
}

TEST(ApiTraining, AppendsGradients) {
  const SmallNet forward(/*dropout=*/false, /*trains=*/false);
  const std::string loss = forward.loss.name();
  const BackwardResult made =
      value_of(append_backward(forward.net.main(), loss, {"fc_1.w_0"}, {"fc_0.b_0"}));
  ASSERT_EQ(made.param_grads.size(), 1U);
  EXPECT_EQ(made.param_grads[0].first, "fc_1.w_0");
  Executor executor = value_of(Executor::create());
  const Scope scope;
  check(executor.run(forward.net.startup(), scope).status());
  const std::string grad = made.param_grads[0].second;
  const Arrays results = value_of(executor.run(*made.main, scope, batch(0), {grad}));
  EXPECT_THAT(results.at(grad).dims, ElementsAre(4, 1));
  const BackwardResult again = value_of(append_backward(*made.main, loss, {"fc_1.w_0"}));
  EXPECT_NE(again.param_grads[0].second, grad);
  EXPECT_EQ(append_backward(forward.net.main(), "none").status().code(),
            StatusCode::kInvalidProgram);
}

}  // namespace
}  // namespace millrace::api
