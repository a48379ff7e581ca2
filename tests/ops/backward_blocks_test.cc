// Which vars the blocks of gradients declare.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/read_program.h"
#include "framework/text_form/parse.h"
#include "ops/backward/append_backward.h"
#include "ops/registry.h"

namespace millrace::ops::backward {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

// Calls append_backward() for each loss.
void append_gradients(Program& program, const std::vector<std::string>& losses) {
  int calls = 0;
  for (const std::string& loss : losses) {
    BackwardRequest request;
    request.loss = loss;
    request.earlier_calls = calls++;
    const auto pairs = append_backward(*standard_registry(), program, request);
    EXPECT_TRUE(pairs.ok()) << pairs.status().to_string();
  }
}

// Names of the vars that the blocks with the gradients of a block declare, for each of them.
std::vector<std::vector<std::string>> declared_for(const Program& program, int32_t forward) {
  std::vector<std::vector<std::string>> found;
  for (const Block& block : program.blocks()) {
    if (block.forward_block() != forward) continue;
    found.emplace_back();
    for (const Var& var : block.vars()) found.back().push_back(var.name().str());
  }
  return found;
}

// As in the original, reading a gradient that the loop got as an input declares nothing, even if
// the gradient has another name outside, as that of a second loss.
TEST(GradientBlocksTest, ALoopDeclaresOnlyWhatItsOpsWrite) {
  auto program = parse_program(
      "# millrace program 1\n\nblock 0 {\n"
      "  param w: f32(3, 4)\n  var x: f32(-1, 3) stop_gradient\n  var g: f32(-1, 4)\n"
      "  var h: f32(-1, 4)\n  var loss: f32()\n  var loss2: f32()\n  var i: i64(1)\n"
      "  var n: i64(1)\n  var c: bool(1)\n  var s: step_scopes\n"
      "  mul X=x Y=w -> Out=g {x_num_col_dims: 1, y_num_col_dims: 1}\n"
      "  tanh X=g -> Out=h\n"
      "  while Condition=c X=g, i, n -> Out=h, i, c StepScopes=s {sub_block: ^1, is_test: false}\n"
      "  mean X=h -> Out=loss\n"
      "  square X=loss -> Out=loss2\n}\n"
      "block 1 parent=0 {\n  assign X=g -> Out=h\n  increment X=i -> Out=i {step: 1.0}\n"
      "  less_than X=i Y=n -> Out=c {axis: -1}\n}\n",
      "test");
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  append_gradients(**program, {"loss", "loss2"});
  EXPECT_THAT(declared_for(**program, 1),
              ElementsAre(ElementsAre("g@GRAD"), ElementsAre("g@GRAD")));
}

// The inner loop adds a term to the gradient of h, which block 0 declares, too.
TEST(GradientBlocksTest, ALoopDeclaresItsTermOfAGradientThatAnOuterBlockDeclares) {
  auto program = read_program("tests/data/backward/vars/inner_loop_reads_persistable.txt", {});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  append_gradients(**program, {"loss"});
  EXPECT_NE((*program)->root().find_var("h@GRAD"), nullptr);
  EXPECT_THAT(declared_for(**program, 2), ElementsAre(Contains("h@GRAD")));
}

// The first loss is computed from z, the second one from y only. The recurrence must not take the
// gradient that the first loss has left of z.
TEST(GradientBlocksTest, ARecurrenceDoesNotReadGradientsOfAnEarlierLoss) {
  auto program = parse_program(
      "# millrace program 1\n\nblock 0 {\n"
      "  param w: f32(2, 2)\n  var x: f32(3, 2) stop_gradient\n  var a: f32(2)\n"
      "  var g: f32(3, 2)\n  var y: f32(3, 2)\n  var z: f32(3, 2)\n  var loss: f32()\n"
      "  var loss2: f32()\n  var s: step_scopes\n"
      "  mul X=x Y=w -> Out=g {x_num_col_dims: 1, y_num_col_dims: 1}\n"
      "  recurrent initial_states=a inputs=g parameters=[] -> outputs=y, z step_scopes=s "
      "{ex_states: [\"p\"], states: [\"y\"], sub_block: ^1, reverse: false, has_states: true, "
      "is_train: true}\n"
      "  mean X=z -> Out=loss\n  mean X=y -> Out=loss2\n}\n"
      "block 1 parent=0 {\n  var g: f32(2)\n  var p: f32(2)\n  var y: f32(2)\n  var z: f32(2)\n"
      "  elementwise_add X=g Y=p -> Out=y {axis: -1}\n  square X=y -> Out=z\n}\n",
      "test");
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  append_gradients(**program, {"loss", "loss2"});
  ASSERT_NE((*program)->root().find_var("z@GRAD"), nullptr);
  std::vector<std::vector<std::string>> given;
  for (const Op& op : (*program)->root().ops()) {
    if (op.type() != "recurrent_grad") continue;
    given.emplace_back();
    for (const llvm::StringRef name : op.input("outputs@GRAD")) given.back().push_back(name.str());
  }
  EXPECT_THAT(given, ElementsAre(ElementsAre("y@GRAD", "z@GRAD"),
                                 ElementsAre("grad/grad/y@GRAD", "grad/grad/z@GRAD")));
}

}  // namespace
}  // namespace millrace::ops::backward
