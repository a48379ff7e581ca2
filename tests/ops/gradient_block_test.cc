#include <gtest/gtest.h>

#include "framework/program.h"
#include "ops/infer_shapes.h"

namespace millrace::ops {
namespace {

// The block of a recurrent op has a row of the sequence "x" and writes a row of "y". Its gradient
// block runs in the same scopes, so "y" and "y@GRAD" are rows there as well, although the outer
// block declares whole sequences with these names.
TEST(GradientBlock, NamesMeanWhatTheyMeanInTheForwardBlock) {
  const auto registry = standard_registry();
  const auto program = Program::create();
  Block& outer = program->root();
  for (const char* const name : {"x", "y", "y@GRAD"})
    outer.declare(name, VarSpec::tensor(DType::kFloat32, {7, 2, 3}));
  Block& step = program->add_block(0);
  for (const char* const name : {"x", "y"})
    step.declare(name, VarSpec::tensor(DType::kFloat32, {2, 3}));
  Block& step_grad = program->add_block(0);
  step_grad.set_forward_block(step.index());
  for (const char* const name : {"x@GRAD", "z"})
    step_grad.declare(name, VarSpec::tensor(DType::kFloat32, {2, 3}));
  Op& backward = step_grad.append_op("tanh_grad");
  backward.set_input("Out", "y").set_input("Out@GRAD", "y@GRAD").set_output("X@GRAD", "x@GRAD");
  Op& scaled = step_grad.append_op("scale");
  scaled.set_input("X", "y@GRAD").set_output("Out", "z");

  std::vector<Status> errors;
  EXPECT_TRUE(check_shapes(*registry, *program, errors).empty());
  EXPECT_TRUE(errors.empty());
  ASSERT_TRUE(infer_op(*registry, backward).ok());
  EXPECT_EQ(step_grad.find_var("x@GRAD")->dims(), llvm::ArrayRef<int64_t>({2, 3}));
}

}  // namespace
}  // namespace millrace::ops
