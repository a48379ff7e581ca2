// Gradients of programs that overwrite elements of an array, or vars, compared with central
// differences.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/gradients/check_gradients.h"
#include "executor/standard_runtime.h"
#include "framework/read_program.h"
#include "ops/backward/append_backward.h"
#include "ops/verify.h"
#include "tests/executor/values.h"

namespace millrace::executor {
namespace {

using ::testing::HasSubstr;

std::string array_program(const std::string& name) {
  return "tests/data/backward/arrays/" + name + ".txt";
}

void expect_central_differences(const std::string& path) {
  const auto program = read_program(path, {});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  Scope scope;
  const std::vector<float> numbers{0.1F, -0.2F, 0.3F, 0.5F, -0.4F, 0.2F,
                                   0.7F, -0.6F, 0.4F, 0.9F, -0.8F, 0.3F};
  const llvm::ArrayRef<int64_t> dims = (*program)->root().find_var("w")->dims();
  const std::vector<int64_t> shape(dims.begin(), dims.end());
  scope.local("w") = tensor_value(shape, {numbers.begin(), numbers.begin() + shape[0] * shape[1]});
  NamedValues feeds;
  feeds["x"] = tensor_value({2, 3}, {1, -2, 0.5F, 0.3F, 0.7F, -1});
  for (const bool optimize : {false, true}) {
    GradientCheckOptions options;
    options.loss = "loss";
    options.samples = 0;
    options.optimize = optimize;
    const auto report = check_gradients(standard_runtime(), **program, scope, feeds, options);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(report->notes.empty());
    ASSERT_EQ(report->params.size(), 1U);
    const ParamCheck& check = report->params[0];
    EXPECT_TRUE(check.ok) << check.worst.analytical << " " << check.worst.numerical;
  }
}

class ArrayOverwritesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ArrayOverwritesTest, HasTheGradientsOfCentralDifferences) {
  expect_central_differences(array_program(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Programs, ArrayOverwritesTest,
                         ::testing::Values("over_read_between", "over_not_read",
                                           "over_twice_two_indices", "over_self", "index_changes",
                                           "loop_slot", "loop_state", "loop_write_read",
                                           "loop_from_zero", "loop_then_root", "loop_then_root_all",
                                           "two_writes_in_loop", "nested", "nested_read_after",
                                           "branch_not_taken_writes", "read_between_sums",
                                           "counted_between_writes"),
                         [](const auto& net) { return std::string(net.param); });

// Loops, branches and recurrences that read a var and replace it; branches whose condition changes
// between them, or of which the first is not taken. The programs whose parameter has the shape
// [2, 3] are shrunk from tests/differential/make_loops.py.
class VarOverwritesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(VarOverwritesTest, HasTheGradientsOfCentralDifferences) {
  expect_central_differences(std::string("tests/data/backward/vars/") + GetParam() + ".txt");
}

INSTANTIATE_TEST_SUITE_P(Programs, VarOverwritesTest,
                         ::testing::Values("inner_loop_from_assign", "recurrence_replaces_state",
                                           "toggled_condition", "condition_changes_between",
                                           "first_not_taken", "branch_after_branch_not_taken",
                                           "loop_replaces_assigned", "loop_result_read_back",
                                           "loop_in_branch_replaces", "inner_loop_not_run_replaces",
                                           "inner_loop_after_choice", "recurrence_reads_carried",
                                           "inner_loop_reads_carried", "branch_in_loop_then_read",
                                           "branch_reads_array_it_writes",
                                           "inner_loop_reads_persistable",
                                           "loop_reads_array_listed_as_output", "loop_input_twice",
                                           "recurrence_two_states_of_one_var",
                                           "recurrence_sequence_twice", "counter_starts_again",
                                           "branches_without_a_value", "branch_replaces_ids",
                                           "loop_replaces_ids", "loop_replaces_ids_twice"),
                         [](const auto& net) { return std::string(net.param); });

TEST(ArrayOverwritesAreRefusedTest, WhereAValueWithoutGradientComesInBetween) {
  const auto program = read_program(array_program("stopped"), {});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  ops::BackwardRequest request;
  request.loss = "loss";
  const auto pairs = ops::append_backward(*standard_runtime()->ops, **program, request);
  EXPECT_EQ(pairs.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(pairs.status().message(),
              HasSubstr("'t', which has no gradient, is written to the array 'a'"));
  EXPECT_EQ(pairs.status().location().op_type, "write_to_array");
}

TEST(ArrayOverwritesAreRefusedTest, InBranches) {
  for (const char* const name :
       {"branch", "branch_after_read", "branch_in_loop_slot", "branch_in_loop_from_zero"}) {
    const auto program = read_program(array_program(name), {});
    ASSERT_TRUE(program.ok()) << program.status().to_string();
    ops::BackwardRequest request;
    request.loss = "loss";
    const auto pairs = ops::append_backward(*standard_runtime()->ops, **program, request);
    EXPECT_EQ(pairs.status().code(), StatusCode::kUnimplemented) << name;
    EXPECT_THAT(pairs.status().message(),
                HasSubstr("whose elements may be overwritten in a branch"));
  }
}

// Counted indices are known to be distinct, so that usual loops get no more ops than in the
// original.
TEST(ArrayOverwritesAreToldApartTest, WhereIndicesCountUp) {
  for (const char* const net : {"read_twice", "nested_loops", "two_memories",
                                "inner_reads_outer_memory", "cond_reads_memory"}) {
    auto program =
        read_program(std::string("tests/data/backward/control_flow/") + net + ".forward.pb", {});
    ASSERT_TRUE(program.ok());
    ops::BackwardRequest request;
    request.loss = (*program)->root().back().output_names().front().str();
    ASSERT_TRUE(ops::append_backward(*standard_runtime()->ops, **program, request).ok());
    for (const Block& block : (*program)->blocks()) {
      for (const Var& var : block.vars())
        EXPECT_FALSE(var.name().endswith("@ZERO")) << net << " " << var.name().str();
    }
  }
}

}  // namespace
}  // namespace millrace::executor
