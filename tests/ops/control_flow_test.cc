#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "framework/program.h"
#include "ops/grad.h"
#include "ops/infer_shapes.h"
#include "tests/ops/op_fixture.h"

namespace millrace::ops {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

const std::unique_ptr<OpRegistry>& registry_control_flow() {
  static const std::unique_ptr<OpRegistry> kRegistry = standard_registry();
  return kRegistry;
}

// Gradient ops of an op; only vars with one of the given names want a gradient.
std::vector<GradOp> grads(const Op& op, const std::vector<std::string>& wanted) {
  const GradContext context(
      op, [&](llvm::StringRef name) { return llvm::is_contained(wanted, name.str()); });
  auto ops = make_grad_ops(*registry_control_flow(), context);
  EXPECT_TRUE(ops.ok());
  return ops.ok() ? std::move(ops).value() : std::vector<GradOp>{};
}

TEST(ControlFlow, WhileGradientNamesOutputGradients) {
  const auto program = Program::create();
  Op& op = program->root().append_op("while");
  op.set_input("X", std::vector<std::string>{"i", "w"});
  op.set_input("Condition", "go");
  op.set_output("Out", std::vector<std::string>{"i", "h"});
  op.set_output("StepScopes", "scopes");
  op.set_attr("sub_block", AttrValue::of_block(1));
  const std::vector<GradOp> ops = grads(op, {"w"});
  ASSERT_EQ(ops.size(), 1U);
  EXPECT_EQ(ops[0].type, "while_grad");
  EXPECT_THAT(ops[0].inputs,
              ElementsAre(Pair("X", ElementsAre("i", "w")), Pair("Out", ElementsAre("i", "h")),
                          Pair("Out@GRAD", ElementsAre("i@GRAD", "h@GRAD")),
                          Pair("StepScopes", ElementsAre("scopes"))));
  EXPECT_THAT(ops[0].outputs, ElementsAre(Pair("X@GRAD", ElementsAre("@EMPTY@", "w@GRAD"))));
  ASSERT_FALSE(ops[0].attrs.empty());
  EXPECT_EQ(ops[0].attrs.back().first, "original_output_grad");
  EXPECT_EQ(ops[0].attrs.back().second, make_attr(std::vector<std::string>{"i@GRAD", "h@GRAD"}));
  EXPECT_THAT(grads(op, {}), IsEmpty());
}

TEST(ControlFlow, RecurrentGradientReadsItsScopesTwice) {
  const auto program = Program::create();
  Op& op = program->root().append_op("recurrent");
  op.set_input("inputs", "x").set_input("initial_states", "h0").set_input("parameters", "w");
  op.set_output("outputs", "h").set_output("step_scopes", "scopes");
  const std::vector<GradOp> ops = grads(op, {"h0", "w"});
  ASSERT_EQ(ops.size(), 1U);
  EXPECT_THAT(
      ops[0].inputs,
      ElementsAre(Pair("inputs", ElementsAre("x")), Pair("initial_states", ElementsAre("h0")),
                  Pair("parameters", ElementsAre("w")), Pair("outputs", ElementsAre("h")),
                  Pair("outputs@GRAD", ElementsAre("h@GRAD")),
                  Pair("step_scopes", ElementsAre("scopes")),
                  Pair("step_scopes@GRAD", ElementsAre("scopes"))));
  EXPECT_THAT(ops[0].outputs, ElementsAre(Pair("inputs@GRAD", IsEmpty()),
                                          Pair("initial_states@GRAD", ElementsAre("h0@GRAD")),
                                          Pair("parameters@GRAD", ElementsAre("w@GRAD"))));
}

TEST(ControlFlow, ConditionsAreOneBool) {
  EXPECT_EQ(infer("while", "Condition=bool[1]", "Out"), "Out=?");
  EXPECT_EQ(infer("while", "Condition=bool[]", "Out"), "Out=?");
  EXPECT_EQ(infer("while", "Condition=bool[2]", "Out"),
            "'Condition' has shape [2], expected one element");
  EXPECT_EQ(
      infer("conditional_block", "Cond=bool[2]", "Out", {{"is_scalar_condition", make_attr(true)}}),
      "'Cond' has shape [2], expected one element");
  EXPECT_EQ(infer("conditional_block", "Cond=f32[2]", "Out"), "Out=?");
  EXPECT_EQ(infer("while_grad", "X=f32[2]+f32[3,4]", "X@GRAD*2"), "X@GRAD=f32[2]+f32[3,4]");
  EXPECT_EQ(infer("recurrent", "initial_states=f32[2,3]", "outputs",
                  {{"has_states", make_attr(true)},
                   {"states", make_attr(std::vector<std::string>{"h"})}}),
            "'initial_states' has 1 vars, attribute 'ex_states' 0 names and 'states' 1, expected "
            "the same number");
  EXPECT_EQ(
      infer("recurrent", "initial_states=f32[2,3]", "outputs", {{"has_states", make_attr(false)}}),
      "attribute 'has_states' is false, but 'initial_states' has 1 vars");
  EXPECT_EQ(infer("recurrent", "initial_states=f32[2,3]", "outputs"), "outputs=?");
}

TEST(Assign, Shapes) {
  EXPECT_EQ(infer("assign", "X=rows:f32[9,4]", "Out"), "Out=rows:f32[9,4]");
  EXPECT_EQ(infer("assign", "X=f32[-1,4]@1", "Out"), "Out=f32[-1,4]@1");
  EXPECT_EQ(infer("memcpy", "X=bool[1]", "Out"), "Out=bool[1]");
  EXPECT_EQ(infer("increment", "X=i64[1]", "Out"), "Out=i64[1]");
  EXPECT_EQ(infer("is_empty", "X=f32[2,3]", "Out"), "Out=bool[]");
  EXPECT_EQ(infer("assign_value", "", "Out",
                  {{"shape", make_attr(std::vector<int32_t>{1, 2})},
                   {"dtype", make_attr(5)},
                   {"fp32_values", make_attr(std::vector<float>{1, 2})}}),
            "Out=f32[1,2]");
  EXPECT_EQ(infer("assign_value", "", "Out",
                  {{"shape", make_attr(std::vector<int32_t>{3})},
                   {"dtype", make_attr(3)},
                   {"int64_values", make_attr(std::vector<int64_t>{1, 2})}}),
            "attribute 'int64_values' has 2 elements, expected 3 for 'shape' [3]");
  EXPECT_EQ(infer("assign_value", "", "Out",
                  {{"shape", make_attr(std::vector<int32_t>{1})}, {"dtype", make_attr(1)}}),
            "attribute 'dtype' is 1, expected bool, int32, int64, float32 or float64");
  EXPECT_EQ(infer("rnn_memory_helper", "X=f32[2]", "Out", {{"dtype", make_attr(5)}}), "Out=f32[2]");
  EXPECT_EQ(infer("rnn_memory_helper", "X=f32[2]", "Out", {{"dtype", make_attr(6)}}),
            "attribute 'dtype' is f64, but 'X' is f32");
}

TEST(Assign, Gradients) {
  EXPECT_EQ(grad("assign", "X", "Out"), "assign(X -> Out)");
  // the counter of a loop is decremented
  EXPECT_EQ(grad("increment", "X", "Out", {{"step", make_attr(2.0F)}}), grad("assign", "X", "Out"))
      << "counters are counted back in place only";
  EXPECT_EQ(grad("rnn_memory_helper", "X", "Out"),
            "rnn_memory_helper_grad(Out@GRAD X Out -> X@GRAD)");
}

TEST(Arrays, Shapes) {
  EXPECT_EQ(infer("lod_array_length", "X=f32[2]", "Out"), "Out=i64[1]");
  EXPECT_EQ(infer("read_from_array", "X=f32[-1,4] I=i64[1]", "Out"), "Out=f32[-1,4]");
  EXPECT_EQ(infer("read_from_array", "X=f32[-1,4] I=i64[2]", "Out"),
            "I must have 1 element, found [2]");
  EXPECT_EQ(infer("tensor_array_to_tensor", "X=f32[2,3]", "Out OutIndex", {{"axis", make_attr(1)}}),
            "Out=f32[2,-1] OutIndex=i32[-1]");
  EXPECT_EQ(infer("tensor_array_to_tensor", "X=f32[2,3]", "Out", {{"use_stack", make_attr(true)}}),
            "Out=f32[-1,2,3]");
  EXPECT_EQ(infer("tensor_array_to_tensor", "X=f32[2,3]", "Out", {{"axis", make_attr(2)}}),
            "attribute 'axis' has axis 2, which is outside of [-2, 2) for rank 2");
}

TEST(Arrays, WritesMakeArrays) {
  const auto program = Program::create();
  Block& block = program->root();
  block.declare("x", VarSpec::tensor(DType::kFloat32, {-1, 4}));
  block.declare("i", VarSpec::tensor(DType::kInt64, {1}));
  Var& array = block.declare("a", VarSpec::shapeless(VarKind::kLodTensor));
  Op& op = block.append_op("write_to_array");
  op.set_input("X", "x").set_input("I", "i").set_output("Out", "a");
  ASSERT_TRUE(infer_op(*registry_control_flow(), op).ok());
  EXPECT_EQ(array.kind(), VarKind::kLodTensorArray);
  EXPECT_EQ(array.dims(), llvm::ArrayRef<int64_t>({-1, 4}));
}

TEST(Arrays, GradientsAreEachOther) {
  EXPECT_EQ(grad("write_to_array", "X I", "Out", {}, "I"), "read_from_array(I X X_W -> Out)");
  EXPECT_EQ(grad("read_from_array", "X I", "Out", {}, "I"), "write_to_array(I X -> Out)");
  EXPECT_EQ(grad("lod_tensor_to_array", "X RankTable", "Out"),
            "array_to_lod_tensor(X RankTable -> Out)");
  EXPECT_EQ(grad("array_to_lod_tensor", "X RankTable", "Out"),
            "lod_tensor_to_array(X RankTable -> Out)");
  EXPECT_EQ(grad("reorder_lod_tensor_by_rank", "X RankTable", "Out"),
            "reorder_lod_tensor_by_rank_grad(X RankTable -> Out)");
  EXPECT_EQ(grad("shrink_rnn_memory", "X RankTable I", "Out", {}, "I"),
            "shrink_rnn_memory_grad(Out@GRAD X -> X@GRAD)");
}

TEST(Branches, ShapesAndGradients) {
  EXPECT_EQ(infer("select_input", "X=f32[2,3]+f32[5,3] Mask=i32[1]", "Out"), "Out=f32[-1,3]");
  EXPECT_EQ(infer("select_input", "X=f32[2,3]+f32[5] Mask=i32[1]", "Out"), "Out=?");
  EXPECT_EQ(infer("select_output", "X=f32[2,3] Mask=i32[1]", "Out*2"), "Out=f32[2,3]+f32[2,3]");
  EXPECT_EQ(infer("split_lod_tensor", "X=f32[4,3] Mask=bool[4,1]", "OutTrue OutFalse"),
            "OutTrue=f32[-1,3] OutFalse=f32[-1,3]");
  EXPECT_EQ(grad("select_input", "X*2 Mask", "Out"), "select_output(X Mask -> Out*2)");
  EXPECT_EQ(grad("select_output", "X Mask", "Out*2"), "select_input(X*2 Mask -> Out)");
  EXPECT_EQ(grad("split_lod_tensor", "X Mask", "OutTrue OutFalse"),
            "merge_lod_tensor(X Mask InTrue InFalse -> Out)");
  EXPECT_EQ(grad("merge_lod_tensor", "X Mask InTrue InFalse", "Out"),
            "split_lod_tensor(X Mask -> OutTrue OutFalse)");
}

TEST(Reports, PrintPassesOn) {
  EXPECT_EQ(infer("print", "In=f32[2,3]@1", "Out"), "Out=f32[2,3]@1");
  EXPECT_EQ(grad("print", "In", "Out", {{"first_n", make_attr(3)}}),
            "print(In -> Out) first_n=3 is_forward=false");
  EXPECT_EQ(infer("assert", "Cond=bool[3]", ""), "Cond must have 1 element, found [3]");
  EXPECT_TRUE(registry_control_flow()->find("print")->has_side_effects());
  EXPECT_TRUE(registry_control_flow()->find("assert")->has_side_effects());
}

}  // namespace
}  // namespace millrace::ops
