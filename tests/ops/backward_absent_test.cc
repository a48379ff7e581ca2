// Gradients that gradient ops name and no op computes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llvm/ADT/STLExtras.h>

#include "framework/read_program.h"
#include "ops/absent_gradients.h"
#include "ops/backward/append_backward.h"
#include "ops/verify.h"

namespace millrace::ops {
namespace {

using ::testing::HasSubstr;

// A program of the original: the gradient of an output without readers is an argument, but not
// declared.
TEST(AbsentGradientTest, IsTakenAsAbsent) {
  const auto registry = standard_registry();
  auto program =
      read_program("tests/data/backward/control_flow/recurrent_state_unused.backward.pb", {});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  const Status status = check_program(*registry, **program);
  EXPECT_TRUE(status.ok()) << status.to_string();
  const std::vector<Status> lost = lost_state_gradients(**program);
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].location().op_type, "recurrent_grad");
  EXPECT_THAT(lost[0].message(), HasSubstr("no op after the recurrence reads this output"));
  VerifyOptions options;
  options.lint = true;
  const auto findings = verify_program(*registry, **program, options);
  EXPECT_TRUE(llvm::any_of(findings,
                           [](const Finding& finding) { return finding.rule == "lost-gradient"; }));
}

TEST(AbsentGradientTest, IsAnErrorWhereAnOpWritesIt) {
  const auto registry = standard_registry();
  auto program =
      read_program("tests/data/backward/control_flow/recurrent_state_unused.backward.pb", {});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  Block& root = (*program)->root();
  const std::string state = lost_state_gradients(**program).at(0).location().var;
  for (Op* const op : root.op_vector()) {
    if (op->type() == "recurrent_grad")
      root.insert_before(op, "scale").set_input("X", state).set_output("Out", state + "@GRAD");
  }
  EXPECT_THAT(check_program(*registry, **program).message(),
              HasSubstr("var '" + state + "@GRAD' is not declared in block 0"));
}

TEST(AbsentGradientTest, OfAStateThatAnotherOpReadsIsLost) {
  auto program =
      read_program("tests/data/backward/control_flow/recurrent_output_unused.backward.pb", {});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  const std::vector<Status> lost = lost_state_gradients(**program);
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_THAT(lost[0].message(), HasSubstr("another op of the time step reads the state"));
}

// mean(Hidden * Y) of an lstm: lstm_grad does not read the gradient of Cell.
std::vector<Status> warnings_of_lstm(const char* y) {
  const auto registry = standard_registry();
  const auto program = Program::create();
  Block& root = program->root();
  for (const char* const name : {"hidden", "cell", "gates", "cells", "product"})
    root.declare(name, VarSpec::tensor(DType::kFloat32, {-1, 1}));
  for (const char* const name : {"x", "w"}) {
    VarSpec spec = VarSpec::tensor(DType::kFloat32, {1, 4});
    spec.is_parameter = spec.persistable = true;
    root.declare(name, spec);
  }
  root.declare("loss", VarSpec::tensor(DType::kFloat32, {}));
  Op& lstm = root.append_op("lstm").set_input("Input", "x").set_input("Weight", "w");
  lstm.set_output("Hidden", "hidden").set_output("Cell", "cell");
  lstm.set_output("BatchGate", "gates").set_output("BatchCellPreAct", "cells");
  Op& mul = root.append_op("elementwise_mul").set_input("X", "hidden").set_input("Y", y);
  mul.set_output("Out", "product");
  root.append_op("mean").set_input("X", "product").set_output("Out", "loss");
  std::vector<Status> warnings;
  BackwardRequest request;
  request.loss = "loss";
  request.warnings = &warnings;
  const auto made = append_backward(*registry, *program, request);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return warnings;
}

TEST(AbsentGradientTest, OfAnOutputThatTheGradientOpDoesNotRead) {
  const std::vector<Status> warnings = warnings_of_lstm("cell");
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0].location().var, "cell");
  EXPECT_THAT(warnings[0].message(), HasSubstr("lstm_grad does not read it"));
  EXPECT_THAT(warnings_of_lstm("hidden"), ::testing::IsEmpty()) << "no op reads the cell";
}

}  // namespace
}  // namespace millrace::ops
