// Gradients of nets with loops, branches and recurrences on the emulated device, whose sub-blocks
// run there, beside those of the processor. A value that control flow passes on from the wrong
// memory crashes the test.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "framework/names.h"
#include "framework/read_program.h"
#include "io/npz.h"
#include "kernels/gpu/context.h"
#include "kernels/gpu/host_device.h"
#include "tests/executor/values.h"

namespace millrace::executor {
namespace {

constexpr const char* kNets = "tests/data/backward/control_flow/";

// The nets of tests/data/backward/control_flow_nets.py, by name.
std::vector<std::string> net_names() {
  std::vector<std::string> names;
  const std::string ending = ".backward.pb";
  for (const auto& entry : std::filesystem::directory_iterator(kNets)) {
    const std::string file = entry.path().filename().string();
    if (file.ends_with(ending)) names.push_back(file.substr(0, file.size() - ending.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// One net with its parameters and feeds.
struct ControlFlowJob {
  explicit ControlFlowJob(const std::string& name, std::shared_ptr<gpu::Context> gpu) {
    auto read = read_program(kNets + name + ".backward.pb", {});
    EXPECT_TRUE(read.ok()) << read.status().to_string();
    program = *std::move(read);
    auto values = io::read_values(kNets + name + ".npz");
    EXPECT_TRUE(values.ok()) << values.status().to_string();
    for (auto& [key, value] : *values) {
      const auto [group, var] = llvm::StringRef(key).split('/');
      if (group == "feed") feeds[var.str()] = std::move(value);
      if (group == "param") scope.local(var) = std::move(value);
      if (group == "numerical" && writes(names::grad(var))) fetches.push_back(names::grad(var));
    }
    auto made = Executor(standard_runtime(), {.gpu = std::move(gpu)}).prepare(*program, scope);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (made.ok()) prepared = *std::move(made);
  }
  [[nodiscard]] bool writes(llvm::StringRef var) const {
    for (const Block& block : program->blocks()) {
      for (const Op& op : block.ops()) {
        if (op.writes(var)) return true;
      }
    }
    return false;
  }
  std::vector<std::vector<float>> step() {
    std::vector<Value> results;
    const Status status = prepared->run(feeds, fetches, results);
    EXPECT_TRUE(status.ok()) << status.to_string();
    std::vector<std::vector<float>> numbers;
    for (const Value& result : results) numbers.push_back(floats(result));
    return numbers;
  }
  std::unique_ptr<Program> program;
  Scope scope;
  NamedValues feeds;
  std::vector<std::string> fetches;
  std::unique_ptr<PreparedProgram> prepared;
};

void expect_alike(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 2e-5F + 2e-4F * std::abs(expected[i]));
}

TEST(GpuControlFlow, GradientsOfSubBlocksAreThoseOfTheProcessor) {
  int compared = 0;
  for (const std::string& name : net_names()) {
    SCOPED_TRACE(name);
    const auto context = std::make_shared<gpu::Context>(gpu::open_host_device());
    ControlFlowJob there(name, context);
    ControlFlowJob here(name, nullptr);
    ASSERT_TRUE(there.prepared != nullptr && here.prepared != nullptr);
    for (int step = 0; step < 3; ++step) {
      const std::vector<std::vector<float>> expected = here.step();
      const std::vector<std::vector<float>> found = there.step();
      ASSERT_EQ(found.size(), expected.size());
      for (size_t k = 0; k < found.size(); ++k) expect_alike(found[k], expected[k]);
      compared += static_cast<int>(found.size());
    }
    // the device computed something: sub-blocks hold most ops of these nets
    EXPECT_GT(context->memory().traffic().copies_in, 0);
  }
  EXPECT_GT(compared, 200);
}

}  // namespace
}  // namespace millrace::executor
