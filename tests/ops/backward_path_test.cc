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
using ::testing::IsSupersetOf;
using ::testing::Not;

// p is split into u, from which y and the next state q are made, v, which only a comparison reads,
// and n, which no op reads.
const std::string kOps =
    "  split X=p -> Out=u, v, n {axis: 1, num: 3}\n"
    "  less_than X=v Y=v -> Out=d {axis: -1}\n"
    "  assign X=u -> Out=q\n"
    "  scale X=u -> Out=y {scale: 2.0}\n";

OpPath path_to_y(const std::string& blocks) {
  const auto registry = standard_registry();
  auto program = parse_program("# millrace program 1\n\n" + blocks, "test");
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  auto path = find_op_path(*registry, (*program)->root(), {"y"}, {}, Course::kOnce);
  EXPECT_TRUE(path.ok()) << path.status().to_string();
  return *std::move(path);
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

}  // namespace
}  // namespace millrace::ops::backward
