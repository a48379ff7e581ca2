// Scope, Executor and ParallelExecutor of the installed library, compared with Session.

#include "api/executor.h"

#include <filesystem>
#include <optional>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/parallel_executor.h"
#include "executor/session.h"
#include "framework/program.h"
#include "framework/program_file.h"
#include "tests/api/nets.h"

namespace millrace::api {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

float first(const Arrays& results, const std::string& name) {
  return results.at(name).values<float>()[0];
}

std::vector<float> losses_of_session(const SmallNet& net, const millrace::SessionOptions& options,
                                     int steps) {
  Session session = value_of(Session::open(net.net.main(), &net.net.startup(), options));
  std::vector<float> losses;
  for (int step = 0; step < steps; ++step) {
    const Arrays results = value_of(session.run(batch(step), {net.loss.name()}));
    for (const float each : results.at(net.loss.name()).values<float>()) losses.push_back(each);
  }
  return losses;
}

TEST(ApiExecutor, TrainsLikeASession) {
  const SmallNet net(/*dropout=*/true);
  Executor executor = value_of(Executor::create({.seed = 5}));
  Scope scope;
  check(executor.run(net.net.startup(), scope).status());
  PreparedProgram training = value_of(executor.prepare(net.net.main(), scope));
  std::vector<float> losses;
  for (int step = 0; step < 5; ++step)
    losses.push_back(
        first(value_of(training.run(batch(step), {net.loss.name()})), net.loss.name()));
  EXPECT_EQ(losses, losses_of_session(net, {.seed = 5}, 5));
}

TEST(ApiExecutor, TrainsOnADevice) {
  const SmallNet net(/*dropout=*/false);
  const auto losses_on = [&](const char* device) {
    Executor executor = value_of(Executor::create({.seed = 5, .device = device}));
    Scope scope;
    check(executor.run(net.net.startup(), scope).status());
    PreparedProgram training = value_of(executor.prepare(net.net.main(), scope));
    std::vector<float> losses;
    for (int step = 0; step < 6; ++step)
      losses.push_back(
          first(value_of(training.run(batch(step), {net.loss.name()})), net.loss.name()));
    return losses;
  };
  const std::vector<float> expected = losses_on("cpu");
  const std::vector<float> found = losses_on("gpu:emulated");
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << i;
  EXPECT_EQ(Executor::create({.device = "gpu:emulated", .debug_memory = true}).status().code(),
            StatusCode::kUnimplemented);
  EXPECT_EQ(Executor::create({.device = "gpu:emulated", .inter_op = true}).status().message(),
            "options.inter_op with device 'gpu:emulated'");
  EXPECT_EQ(Executor::create({.device = "npu"}).status().code(), StatusCode::kInvalidArgument);
}

TEST(ApiExecutor, OneShotRunsContinueTheRandomNumbers) {
  const SmallNet net(/*dropout=*/true, /*trains=*/false);
  Executor executor = value_of(Executor::create({.seed = 5}));
  Scope scope;
  check(executor.run(net.net.startup(), scope).status());
  PreparedProgram prepared = value_of(executor.prepare(net.net.main(), scope));
  Executor shots = value_of(Executor::create({.seed = 5}));
  for (int step = 0; step < 3; ++step) {
    const Arrays one = value_of(prepared.run(batch(0), {net.loss.name()}));
    const Arrays other = value_of(shots.run(net.net.main(), scope, batch(0), {net.loss.name()}));
    EXPECT_EQ(one.at(net.loss.name()).bytes, other.at(net.loss.name()).bytes) << step;
  }
}

TEST(ApiScope, KeepsValuesBetweenRunsAndPrograms) {
  const SmallNet net;
  Executor executor = value_of(Executor::create());
  Scope scope;
  check(executor.run(net.net.startup(), scope).status());
  EXPECT_THAT(scope.names(), Contains("fc_0.w_0"));
  EXPECT_TRUE(scope.has("fc_0.w_0"));
  EXPECT_FALSE(scope.has("x"));
  std::optional<PreparedProgram> training = value_of(executor.prepare(net.net.main(), scope));
  const Array before = value_of(scope.get("fc_0.w_0"));
  EXPECT_THAT(before.dims, ElementsAre(3, 4));
  check(training->run(batch(0)).status());
  EXPECT_NE(value_of(scope.get("fc_0.w_0")).bytes, before.bytes);
  check(scope.set("fc_0.w_0", before));
  EXPECT_EQ(value_of(scope.get("fc_0.w_0")).bytes, before.bytes);
  training.reset();
  EXPECT_TRUE(scope.has("fc_0.w_0"));
}

TEST(ApiScope, IsKeptAliveByPreparedPrograms) {
  const SmallNet net(/*dropout=*/false, /*trains=*/false);
  Executor executor = value_of(Executor::create());
  const auto prepared = [&] {
    Scope scope;
    check(executor.run(net.net.startup(), scope).status());
    return executor.prepare(net.net.main(), scope);
  };
  PreparedProgram program = value_of(prepared());
  EXPECT_GT(first(value_of(program.run(batch(0), {net.loss.name()})), net.loss.name()), 0);
}

TEST(ApiScope, HoldsRowsOfAMatrix) {
  Scope scope;
  check(scope.set_rows("rows",
                       {{4, 1}, 6, Array::of<float>({2, 2}, std::vector<float>{1, 2, 3, 4})}));
  const Rows rows = value_of(scope.get_rows("rows"));
  EXPECT_THAT(rows.rows, ElementsAre(4, 1));
  EXPECT_EQ(rows.height, 6);
  EXPECT_THAT(rows.values.values<float>(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(scope.get("rows").status().message(), HasSubstr("expected a dense array"));
  const Array one = Array::of<float>({1, 2}, std::vector<float>{1, 2});
  EXPECT_THAT(scope.set_rows("rows", {{6}, 6, one}).message(),
              HasSubstr("rows of 'rows': expected rows in [0, 6), found 6"));
  EXPECT_THAT(scope.set_rows("rows", {{0, 1}, 6, one}).message(),
              HasSubstr("expected values of 2 rows"));
  scope.clear("rows");
  EXPECT_FALSE(scope.has("rows"));
  EXPECT_EQ(scope.get_rows("rows").status().code(), StatusCode::kNotFound);
}

TEST(ApiExecutor, FetchesRowsAndLists) {
  const auto program = value_of(parse_program_bytes(R"(# millrace program 1
block 0 {
  var ids: i64(2, 1)
  var w: f32(6, 2)
  var g: f32(2, 2)
  var wg: selected_rows f32(6, 2)
  var one: i64(1)
  var list: lod_tensor_array f32(2, 2)

  lookup_table_grad W=w Ids=ids Out@GRAD=g -> W@GRAD=wg {is_sparse: true}
  fill_constant -> Out=one {shape: [1l], dtype: 3, value: 1.0}
  write_to_array X=g I=one -> Out=list
})",
                                                    "rows"));
  const Scope scope;
  Executor executor = value_of(Executor::create());
  PreparedProgram prepared = value_of(executor.prepare(*program, scope));
  Arrays feeds;
  feeds["ids"] = Array::of<int64_t>({2, 1}, std::vector<int64_t>{4, 1});
  feeds["w"] = Array::of<float>({6, 2}, std::vector<float>(12, 0));
  feeds["g"] = Array::of<float>({2, 2}, std::vector<float>{1, 2, 3, 4});
  EXPECT_THAT(prepared.run(feeds, {"wg"}).status().message(), HasSubstr("expected a dense array"));
  const auto values = value_of(prepared.run_any(views_of(feeds), {"wg", "list", "g"}));
  const Rows& rows = std::get<Rows>(values.at("wg"));
  EXPECT_THAT(rows.rows, ElementsAre(4, 1));
  EXPECT_EQ(rows.height, 6);
  EXPECT_THAT(rows.values.values<float>(), ElementsAre(1, 2, 3, 4));
  const auto& list = std::get<std::vector<Array>>(values.at("list"));
  ASSERT_EQ(list.size(), 2U);
  EXPECT_TRUE(list[0].bytes.empty());
  EXPECT_THAT(list[1].dims, ElementsAre(2, 2));
  EXPECT_EQ(std::get<Array>(values.at("g")).bytes, feeds["g"].bytes);
}

// The kernel knows two element types of indices; with another one it would write beyond its memory.
TEST(ApiExecutor, RefusesProgramsThatBreakRules) {
  const auto program = value_of(parse_program_bytes(R"(# millrace program 1
block 0 {
  var x: i32(5)
  var out: i32(-1)
  var index: i32(5)
  var count: i32(-1)

  unique_with_counts X=x -> Out=out Index=index Count=count {dtype: 0}
})",
                                                    "bad"));
  const Scope scope;
  const Executor executor = value_of(Executor::create());
  const std::vector<Status> refused = {
      executor.prepare(*program, scope).status(),
      ParallelExecutor::create(*program, scope, {.devices = 2}).status(),
      Session::open(*program, nullptr).status(),
      Session::open(*value_of(parse_program_bytes("# millrace program 1\nblock 0 {\n}", "none")),
                    program.get())
          .status()};
  for (const Status& status : refused) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidProgram);
    EXPECT_EQ(status.location().attr, "dtype") << status.to_string();
  }
}

TEST(ApiExecutor, FeedsStayAsTheyAre) {
  const auto program = value_of(parse_program_bytes(R"(# millrace program 1
block 0 {
  var x: f32(2)

  scale X=x -> Out=x {scale: 2.0}
})",
                                                    "in_place"));
  const Scope scope;
  PreparedProgram prepared = value_of(value_of(Executor::create()).prepare(*program, scope));
  std::vector<float> numbers = {1, 2};
  const std::vector<int64_t> dims = {2};
  ArrayViews feeds;
  feeds["x"] = {DType::kFloat32, dims, std::as_bytes(std::span(numbers)), {}};
  for (int run = 0; run < 2; ++run) {
    const auto values = value_of(prepared.run_any(feeds, {"x"}));
    EXPECT_THAT(std::get<Array>(values.at("x")).values<float>(), ElementsAre(2, 4));
    EXPECT_THAT(numbers, ElementsAre(1, 2));
  }
  const std::vector<int64_t> more = {3};
  feeds["x"].dims = more;
  EXPECT_THAT(prepared.run_any(feeds, {"x"}).status().message(),
              HasSubstr("array 'x': expected 12 bytes for f32 [3], found 8"));
  const std::vector<int64_t> none = {0};
  feeds["x"] = {DType::kFloat32, none, {}, {}};
  EXPECT_TRUE(std::get<Array>(value_of(prepared.run_any(feeds, {"x"})).at("x")).bytes.empty());
}

TEST(ApiScope, RefusesAnArrayWhoseBytesDoNotFit) {
  Scope scope;
  Array array = Array::of<float>({2}, std::vector<float>{1, 2});
  array.dims = {3};
  EXPECT_THAT(scope.set("a", array).message(), HasSubstr("array 'a': expected 12 bytes"));
  EXPECT_FALSE(scope.has("a"));
}

TEST(ApiExecutor, AClearedVarIsAnErrorOfTheOpThatReadsIt) {
  const SmallNet net(/*dropout=*/false, /*trains=*/false);
  Executor executor = value_of(Executor::create({.optimize = false}));
  Scope scope;
  check(executor.run(net.net.startup(), scope).status());
  PreparedProgram program = value_of(executor.prepare(net.net.main(), scope));
  const Array weights = value_of(scope.get("fc_0.w_0"));
  scope.clear("fc_0.w_0");
  EXPECT_THAT(program.run(batch(0), {net.loss.name()}).status().to_string(), HasSubstr("fc_0.w_0"));
  check(scope.set("fc_0.w_0", weights));
  check(program.run(batch(0), {net.loss.name()}).status());
}

TEST(ApiExecutorDeathTest, UseAfterAMoveNamesTheClass) {
  const SmallNet net(/*dropout=*/false);
  Executor executor = value_of(Executor::create());
  const Scope scope;
  PreparedProgram program = value_of(executor.prepare(net.net.startup(), scope));
  Session session = value_of(Session::open(net.net.startup(), nullptr));
  const PreparedProgram other_program = std::move(program);
  const Executor other_executor = std::move(executor);
  const Session other_session = std::move(session);
  // NOLINTBEGIN(bugprone-use-after-move)
  EXPECT_DEATH((void)program.run({}), "moved from: it has no .*PreparedProgram::Parts");
  EXPECT_DEATH((void)program.inputs(), "moved from: it has no .*PreparedProgram::Parts");
  EXPECT_DEATH((void)executor.prepare(net.net.startup(), scope),
               "moved from: it has no .*Executor::Parts");
  EXPECT_DEATH((void)session.run({}), "moved from: it has no .*Session::Parts");
  // NOLINTEND(bugprone-use-after-move)
}

TEST(ApiExecutor, RefusesBadOptions) {
  EXPECT_THAT(Executor::create({.threads = 0}).status().message(),
              HasSubstr("options.threads: expected at least 1, found 0"));
  EXPECT_EQ(Executor::create({.custom_ops = {CustomOp{}}}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(ApiParallelExecutor, TrainsLikeASessionWithDevices) {
  const SmallNet net;
  Executor executor = value_of(Executor::create());
  Scope scope;
  check(executor.run(net.net.startup(), scope).status());
  ParallelOptions options;
  options.devices = 2;
  options.loss_name = net.loss.name();
  ParallelExecutor devices = value_of(ParallelExecutor::create(net.net.main(), scope, options));
  std::vector<float> losses;
  for (int step = 0; step < 4; ++step) {
    const Arrays results = value_of(devices.run(batch(step), {net.loss.name()}));
    for (const float each : results.at(net.loss.name()).values<float>()) losses.push_back(each);
  }
  EXPECT_EQ(losses, losses_of_session(net, {.devices = 2}, 4));
  EXPECT_EQ(devices.device_count(), 2);
  EXPECT_EQ(devices.runs(), 4);
  EXPECT_EQ(value_of(devices.get(1, "fc_0.w_0")).bytes, value_of(scope.get("fc_0.w_0")).bytes);
  EXPECT_EQ(devices.get(2, "fc_0.w_0").status().code(), StatusCode::kNotFound);
  const auto unmerged = value_of(devices.run_unmerged(batch(4), {net.loss.name()}));
  EXPECT_EQ(unmerged.at(net.loss.name()).size(), 2U);
  const Array before = value_of(scope.get("fc_0.w_0"));
  check(scope.set("fc_0.w_0", Array::of<float>({3, 4}, std::vector<float>(12, 2.0F))));
  check(devices.spread("fc_0.w_0"));
  EXPECT_NE(value_of(devices.get(1, "fc_0.w_0")).bytes, before.bytes);
}

TEST(ApiParallelExecutor, TrainsOnSeveralGpus) {
  const SmallNet net;
  const auto losses_on = [&](const char* device, int count) {
    Executor executor = value_of(Executor::create());
    Scope scope;
    check(executor.run(net.net.startup(), scope).status());
    ParallelOptions options{.devices = count, .device = device, .loss_name = net.loss.name()};
    auto devices = value_of(ParallelExecutor::create(net.net.main(), scope, options));
    EXPECT_EQ(devices.device_count(), 2);
    std::vector<float> losses;
    for (int step = 0; step < 4; ++step) {
      const Arrays results = value_of(devices.run(batch(step), {net.loss.name()}));
      for (const float each : results.at(net.loss.name()).values<float>()) losses.push_back(each);
    }
    EXPECT_EQ(value_of(devices.get(1, "fc_0.w_0")).bytes, value_of(scope.get("fc_0.w_0")).bytes);
    options.share_vars_from = &devices;
    EXPECT_TRUE(ParallelExecutor::create(net.net.main(), scope, options).ok());
    options.device = "gpu:emulated";
    EXPECT_EQ(ParallelExecutor::create(net.net.main(), scope, options).status().code(),
              StatusCode::kInvalidArgument);
    return losses;
  };
  const std::vector<float> expected = losses_on("cpu", 2);
  const std::vector<float> found = losses_on("gpu:emulated,emulated", 1);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << i;
  const Status wrong = ParallelExecutor::create(net.net.main(), Scope(),
                                                {.devices = 3, .device = "gpu:emulated,emulated"})
                           .status();
  EXPECT_EQ(wrong.message(),
            "options.devices: expected 2 for device 'gpu:emulated,emulated', found 3");
}

TEST(ApiParallelExecutor, ListsOfFeedsAreThoseOfTheDevices) {
  const SmallNet net;
  Executor executor = value_of(Executor::create());
  const Scope split_scope;
  Scope list_scope;
  check(executor.run(net.net.startup(), split_scope).status());
  for (const std::string& name : split_scope.names())
    check(list_scope.set(name, value_of(split_scope.get(name))));
  ParallelOptions options;
  options.devices = 2;
  options.loss_name = net.loss.name();
  ParallelExecutor split = value_of(ParallelExecutor::create(net.net.main(), split_scope, options));
  ParallelExecutor list = value_of(ParallelExecutor::create(net.net.main(), list_scope, options));
  Arrays both = batch(1, 2);
  std::vector<Arrays> each(2);
  for (const auto& [name, array] : both) {
    const auto values = array.values<float>();
    const auto half = static_cast<int64_t>(values.size() / 2);
    for (size_t d = 0; d < 2; ++d)
      each[d][name] =
          Array::of<float>({1, half}, values.subspan(d * values.size() / 2, values.size() / 2));
  }
  EXPECT_EQ(value_of(split.run(both, {net.loss.name()})).at(net.loss.name()).bytes,
            value_of(list.run(each, {net.loss.name()})).at(net.loss.name()).bytes);
}

TEST(ApiParallelExecutor, SharesVariablesForEvaluation) {
  const SmallNet net;
  const SmallNet evaluation(/*dropout=*/false, /*trains=*/false);
  Executor executor = value_of(Executor::create());
  Scope scope;
  check(executor.run(net.net.startup(), scope).status());
  ParallelOptions options;
  options.devices = 2;
  options.loss_name = net.loss.name();
  std::optional<ParallelExecutor> training =
      value_of(ParallelExecutor::create(net.net.main(), scope, options));
  options.share_vars_from = &*training;
  options.loss_name.clear();
  EXPECT_THAT(ParallelExecutor::create(evaluation.net.main(), {}, options).status().message(),
              HasSubstr("has not run yet"));
  check(training->run(batch(0), {net.loss.name()}).status());
  ParallelExecutor shared = value_of(ParallelExecutor::create(evaluation.net.main(), {}, options));
  training.reset();
  const auto name = evaluation.loss.name();
  const Arrays results = value_of(shared.run(batch(1), {name}));
  PreparedProgram alone = value_of(executor.prepare(evaluation.net.main(), scope));
  const float expected = first(value_of(alone.run(batch(1), {name})), name);
  const auto parts = results.at(name).values<float>();
  EXPECT_NEAR((parts[0] + parts[1]) / 2, expected, 1e-5);
}

TEST(ApiParallelExecutor, SaysWhatItRefuses) {
  const SmallNet net;
  ParallelOptions options;
  options.build_strategy.num_trainers = 2;
  const Status status = ParallelExecutor::create(net.net.main(), {}, options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("build_strategy.num_trainers"));
  options.build_strategy.num_trainers = 1;
  options.threads = 0;
  EXPECT_THAT(ParallelExecutor::create(net.net.main(), {}, options).status().message(),
              HasSubstr("options.threads"));
}

}  // namespace
}  // namespace millrace::api
