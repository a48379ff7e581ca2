// The gradient ops of two losses that use the same loops, branches and recurrences, in one run.
// Those of the second loss run after those of the first, which count counters down.

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "framework/read_program.h"
#include "io/npz.h"
#include "ops/backward/append_backward.h"
#include "ops/verify.h"
#include "tests/executor/values.h"

namespace millrace::executor {
namespace {

class SecondLossTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string base = std::string("tests/data/backward/control_flow/") + GetParam();
    auto program = read_program(base + ".forward.pb", {});
    ASSERT_TRUE(program.ok()) << program.status().to_string();
    program_ = *std::move(program);
    auto values = io::read_values(base + ".npz");
    ASSERT_TRUE(values.ok()) << values.status().to_string();
    for (auto& [name, value] : *values) {
      const auto [group, var] = llvm::StringRef(name).split('/');
      if (group == "feed") feeds_[var.str()] = std::move(value);
      if (group == "param") scope_.local(var) = std::move(value);
    }
  }

  // Appends the gradient ops of a loss. Returns the names of the gradients.
  std::vector<std::string> backward(const std::string& loss, int earlier_calls) {
    ops::BackwardRequest request;
    request.loss = loss;
    request.earlier_calls = earlier_calls;
    const auto pairs = ops::append_backward(*runtime_->ops, *program_, request);
    EXPECT_TRUE(pairs.ok()) << pairs.status().to_string();
    std::vector<std::string> grads;
    if (!pairs.ok()) return grads;
    for (const ops::ParamGrad& pair : *pairs) grads.push_back(pair.grad);
    return grads;
  }

  std::shared_ptr<const Runtime> runtime_ = standard_runtime();
  std::unique_ptr<Program> program_;
  Scope scope_;
  NamedValues feeds_;
};

// The gradient of the square of a loss is the gradient of the loss times twice the loss.
TEST_P(SecondLossTest, OfASquareHasProportionalGradients) {
  Block& root = program_->root();
  const std::string loss = root.back().output_names().front().str();
  root.declare("second_loss", root.find_var(loss)->spec());
  root.append_op("square").set_input("X", loss).set_output("Out", "second_loss");
  const std::vector<std::string> first = backward(loss, 0);
  const std::vector<std::string> second = backward("second_loss", 1);
  ASSERT_FALSE(first.empty());
  ASSERT_EQ(first.size(), second.size());
  const Status status = ops::check_program(*runtime_->ops, *program_);
  EXPECT_TRUE(status.ok()) << status.to_string();

  std::vector<std::string> fetches{loss};
  fetches.insert(fetches.end(), first.begin(), first.end());
  fetches.insert(fetches.end(), second.begin(), second.end());
  const auto prepared = Executor(runtime_, {}).prepare(*program_, scope_);
  ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
  std::vector<Value> results;
  const Status run = (*prepared)->run(feeds_, fetches, results);
  ASSERT_TRUE(run.ok()) << run.to_string();
  const float factor = 2 * floats(results[0]).at(0);
  for (size_t k = 0; k < first.size(); ++k) {
    const std::vector<float> once = floats(results[1 + k]);
    const std::vector<float> twice = floats(results[1 + first.size() + k]);
    ASSERT_FALSE(once.empty()) << first[k];
    ASSERT_EQ(once.size(), twice.size());
    for (size_t i = 0; i < once.size(); ++i)
      EXPECT_NEAR(twice[i], factor * once[i], 1e-5 + 1e-4 * std::abs(once[i])) << second[k];
  }
}

INSTANTIATE_TEST_SUITE_P(
    Nets, SecondLossTest,
    ::testing::Values(
        "two_memories", "read_twice", "nested_loops", "inner_reads_outer_memory", "cond_in_loop",
        "cond_writes_memory", "cond_reads_memory", "carried_by_assign", "carried_value_overwritten",
        "carried_chain", "never_fetched", "loop_in_branch_assigns", "assigned_unused",
        "recurrent_two_states", "recurrent_state_apart", "recurrent_output_unused",
        "cond_in_recurrent", "recurrent_outputs_read_inside", "two_losses_of_recurrence",
        "two_losses_of_loops", "two_losses_of_carried", "two_losses_of_branches",
        "recurrent_last_state", "recurrent_in_loop", "cond_unused_output", "nested_cond",
        "loop_in_cond", "while_loop_api", "loop_only_inside_written", "branch_assigns",
        "branch_assigns_not_taken", "branch_replaces", "branch_replaces_not_taken",
        "branch_puts_back", "branch_overwrites_used", "branch_within_branch", "switch_assigns",
        "switch_fills", "assigned_twice", "in_place_square", "in_place_on_feed", "increment_apart",
        "loop_uses_assigned", "loop_assigns_twice", "loop_scales_in_place", "loop_factor_in_place",
        "loop_between_writes", "branch_in_loop_assigns", "loops_carry", "cond_reads_carried",
        "branch_swaps", "memory_read_outside", "memory_two_back", "memory_in_one_slot"),
    [](const auto& net) { return std::string(net.param); });

}  // namespace
}  // namespace millrace::executor
