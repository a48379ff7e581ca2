// Threads of an asynchronous trainer of a fleet job, which run steps side by side.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/npz.h"
#include "tests/support/process.h"
#include "tests/tools/ctr_folder.h"

namespace millrace::tools {
namespace {

using ::testing::HasSubstr;

class FleetThreads : public CtrFolder {};

// Gradients do not depend on parameters and are whole numbers, so that no order of steps changes
// the result.
constexpr const char* kLinearMain = R"(# millrace program 1

block 0 {
  param emb: f32(12, 2)
  param w: f32(2, 1)
  var ids: i64(-1, 1)
  var x: f32(-1, 2)
  var e: f32(-1, 2)
  var h: f32(-1, 1)
  var rows: f32(1)
  var dense: f32(1)
  var loss: f32(1)
  lookup_table Ids=ids W=emb -> Out=e {is_sparse: true, remote_prefetch: true, padding_idx: -1l}
  reduce_sum X=e -> Out=rows {reduce_all: true}
  mul X=x Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}
  reduce_sum X=h -> Out=dense {reduce_all: true}
  sum X=rows, dense -> Out=loss
}
)";
constexpr const char* kLinearStartup = R"(# millrace program 1

block 0 {
  persist emb: f32(12, 2)
  persist w: f32(2, 1)
  fill_constant -> Out=emb {shape: [12l, 2l], value: 100.0, dtype: 5}
  fill_constant -> Out=w {shape: [2l, 1l], value: 1000.0, dtype: 5}
}
)";
constexpr int kLinearSteps = 24;

NamedValues linear_feeds(int step) {
  NamedValues feeds;
  auto& ids = feeds["ids"].as<Tensor>();
  auto& x = feeds["x"].as<Tensor>();
  check(ids.resize(DType::kInt64, {3, 1}));
  check(x.resize(DType::kFloat32, {3, 2}));
  for (int i = 0; i < 3; ++i) ids.data<int64_t>()[i] = (step * 5 + i * i) % 12;
  for (int i = 0; i < 6; ++i) x.data<float>()[i] = static_cast<float>((step + i) % 4 - 1);
  return feeds;
}

TEST_F(FleetThreads, ThreadsOfAnAsynchronousTrainerTrainSideBySide) {
  write("main.prog", kLinearMain);
  write("startup.prog", kLinearStartup);
  write("min.json", R"({"losses": ["loss"], "optimizer": [{"type": "sgd", "learning_rate": 1}]})");
  const std::string list = spawn::free_endpoints(2);
  write("fleet.json", fmt::format(R"({{"mode": "async", "pservers": "{}", "trainers": 1}})", list));
  succeed("transpile-program",
          {"--program", at("main.prog"), "--startup", at("startup.prog"), "--minimize",
           at("min.json"), "--fleet", at("fleet.json"), "-o", at("job"), "-q"});
  std::vector<float> rows(24, 100);
  std::vector<float> dense(2, 1000);
  NamedValues all;
  for (int step = 0; step < kLinearSteps; ++step) {
    for (auto& [name, value] : linear_feeds(step)) {
      const auto& tensor = *value.get_if<Tensor>();
      for (int64_t i = 0; i < 3; ++i) {
        for (size_t k = 0; k < 2; ++k) {
          if (name == "x") dense[k] -= tensor.data<float>()[i * 2 + static_cast<int64_t>(k)];
          if (name == "ids") rows[static_cast<size_t>(tensor.data<int64_t>()[i]) * 2 + k] -= 1;
        }
      }
      all[fmt::format("step{}/{}", step, name)] = std::move(value);
    }
  }
  write("feeds_0.npz", *io::npz_bytes(all));
  std::vector<std::unique_ptr<spawn::Process>> processes;
  for (int i = 0; i < 2; ++i)
    processes.push_back(std::make_unique<spawn::Process>(Words{
        spawn::tool("pserver"), "--program", at(fmt::format("job/pserver_{}/__model__", i))}));
  processes.push_back(std::make_unique<spawn::Process>(Words{spawn::tool("run-program"),
                                                             "--role",
                                                             "trainer",
                                                             "--trainer-id",
                                                             "0",
                                                             "--transpiled",
                                                             at("job"),
                                                             "--feed-steps",
                                                             at("feeds_0.npz"),
                                                             "--steps",
                                                             std::to_string(kLinearSteps),
                                                             "--save-persistables",
                                                             at("after.npz"),
                                                             "--worker-threads",
                                                             "3",
                                                             "--fetch",
                                                             "loss",
                                                             "--output",
                                                             at("out.npz"),
                                                             "--stats",
                                                             at("stats.json")}));
  for (const auto& process : processes)
    EXPECT_EQ(process->wait(kTimeoutMs), 0) << process->output();
  const Arrays after = floats_in(at("after.npz"));
  EXPECT_EQ(after.at("emb"), rows);
  EXPECT_EQ(after.at("w"), dense);
  EXPECT_EQ(floats_in(at("out.npz")).size(), static_cast<size_t>(kLinearSteps));
  EXPECT_THAT(testing::bytes_of(at("stats.json")), HasSubstr("\"steps\": 24"));
  NamedValues prefixed;
  for (auto& [name, value] : all) prefixed["t0/" + name] = std::move(value);
  write("feeds.npz", *io::npz_bytes(prefixed));
  succeed("run-program",
          {"--cluster", "inproc", "--transpiled", at("job"), "--feed-steps", at("feeds.npz"),
           "--steps", std::to_string(kLinearSteps), "--fetch", "loss", "--output", at("in.npz"),
           "--save-persistables", at("together.npz"), "--worker-threads", "3", "-q"});
  EXPECT_EQ(floats_in(at("together.npz")), after);
  EXPECT_EQ(floats_in(at("in.npz")).size(), static_cast<size_t>(kLinearSteps));
}

TEST_F(FleetThreads, ThreadsNeedAConstantRate) {
  write("main.prog", kLinearMain);
  write("startup.prog", kLinearStartup);
  write("min.json", R"({"losses": ["loss"], "optimizer": [{"type": "sgd", "schedule":
        {"type": "exponential", "learning_rate": 1, "decay_steps": 2, "decay_rate": 0.5}}]})");
  write("fleet.json", R"({"mode": "async", "pservers": "127.0.0.1:7200", "trainers": 1})");
  succeed("transpile-program",
          {"--program", at("main.prog"), "--startup", at("startup.prog"), "--minimize",
           at("min.json"), "--fleet", at("fleet.json"), "-o", at("job"), "-q"});
  const Ended ended =
      run("run-program", {"--role", "trainer", "--transpiled", at("job"), "--worker-threads", "2"});
  EXPECT_EQ(ended.code, 7);
  EXPECT_THAT(ended.output, HasSubstr("in a fleet job whose learning rate is not a constant"));
}

}  // namespace
}  // namespace millrace::tools
