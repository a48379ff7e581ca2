// Which ops and vars gradients flow through.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/text_form/parse.h"
#include "ops/backward/pending.h"
#include "ops/registry.h"

namespace millrace::ops::backward {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

// p is split into u, from which y and the next state q are made, v, which only a comparison reads,
// and n, which no op reads.
const std::string kOps =
    "  split X=p -> Out=u, v, n {axis: 1, num: 3}\n"
    "  less_than X=v Y=v -> Out=d {axis: -1}\n"
    "  assign X=u -> Out=q\n"
    "  scale X=u -> Out=y {scale: 2.0}\n";

StatusOr<OpPath> try_path_to(const Names& needed, const std::string& blocks) {
  const auto registry = standard_registry();
  auto program = parse_program("# millrace program 1\n\n" + blocks, "test");
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return find_op_path(*registry, (*program)->root(), needed, {}, Course::kOnce);
}

OpPath path_to(const Names& needed, const std::string& blocks) {
  auto path = try_path_to(needed, blocks);
  EXPECT_TRUE(path.ok()) << path.status().to_string();
  return path.ok() ? *std::move(path) : OpPath();
}

OpPath path_to_y(const std::string& blocks) {
  return path_to({"y"}, blocks);
}

TEST(OpPathTest, EndsAtOutputsThatNoGradientIsNeededOf) {
  const OpPath path = path_to_y("block 0 {\n" + kOps + "}\n");
  EXPECT_EQ(path.ops.size(), 2U) << "split and scale";
  EXPECT_THAT(path.no_grad, IsSupersetOf({"v", "n"}));
}

// In a time step everything that an op reads counts, even if that op has no gradient.
TEST(OpPathTest, GoesThroughAllThatATimeStepReads) {
  const OpPath path = path_to_y(
      "block 0 {\n  recurrent initial_states=h inputs=x parameters=[] -> outputs=y step_scopes=s "
      "{ex_states: [\"p\"], states: [\"q\"], sub_block: ^1}\n}\n"
      "block 1 parent=0 {\n" +
      kOps + "}\n");
  const OpPath& step = path.inner.at(1);
  EXPECT_EQ(step.ops.size(), 3U) << "split, assign and scale";
  EXPECT_THAT(step.no_grad, Contains("n"));
  EXPECT_THAT(step.no_grad, Not(Contains("v")));
}

// The next time step reads a state, even if no op of the time step does.
TEST(OpPathTest, TheGradientOfAStateIsNeeded) {
  const OpPath path = path_to_y(
      "block 0 {\n  recurrent initial_states=h inputs=x parameters=[] -> outputs=y step_scopes=s "
      "{ex_states: [\"p\"], states: [\"q\"], sub_block: ^1}\n}\n"
      "block 1 parent=0 {\n"
      "  split X=p -> Out=u, q, n {axis: 1, num: 3}\n"
      "  scale X=u -> Out=y {scale: 2.0}\n}\n");
  const OpPath& step = path.inner.at(1);
  EXPECT_EQ(step.ops.size(), 2U);
  EXPECT_THAT(step.no_grad, ElementsAre("n"));
}

// An output of a branch counts with all that its op reads, even if that op has no gradient.
TEST(OpPathTest, GoesThroughWhatAnOutputOfABranchIsComputedFrom) {
  const std::string blocks =
      "block 0 {\n  conditional_block Cond=c Input=p -> Out=y, d Scope=s "
      "{is_scalar_condition: true, sub_block: ^1}\n}\n"
      "block 1 parent=0 {\n" +
      kOps + "}\n";
  const OpPath both = path_to({"y", "d"}, blocks);
  EXPECT_EQ(both.inner.at(1).ops.size(), 2U) << "split and scale";
  EXPECT_THAT(both.inner.at(1).no_grad, ElementsAre("n"));
  EXPECT_THAT(path_to_y(blocks).inner.at(1).no_grad, ElementsAre("n", "v"));
}

TEST(OpPathTest, RefusesAnUnknownOp) {
  const auto path = try_path_to({"y"},
                                "block 0 {\n  assign X=p -> Out=q\n"
                                "  no_such_op X=q -> Out=y\n}\n");
  EXPECT_EQ(path.status().code(), StatusCode::kInvalidProgram);
  EXPECT_THAT(path.status().message(), HasSubstr("unknown op type; it has no gradient"));
  EXPECT_EQ(path.status().location().op_type, "no_such_op");
  EXPECT_EQ(path.status().location().op, 1);
}

}  // namespace
}  // namespace millrace::ops::backward
