// Which elements of arrays are read or written twice, as far as gradients need to know.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "framework/text_form/parse.h"
#include "ops/backward/append_backward.h"
#include "ops/backward/array_overwrites.h"
#include "ops/backward/array_reads.h"
#include "ops/backward/versions.h"

namespace millrace::ops::backward {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A program of the blocks in text form; block 0 also declares the arrays a and b.
std::unique_ptr<Program> program_of(const std::string& root, const std::string& others = "") {
  const std::string arrays =
      "  var a: lod_tensor_array f32(-1, 4)\n  var b: lod_tensor_array f32(-1, 4)\n";
  auto program =
      parse_program("# millrace program 1\n\nblock 0 {\n" + arrays + root + "}\n" + others, "test");
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return program.ok() ? *std::move(program) : Program::create();
}

// ---- writes

// Names of the arrays in which an op of any block may overwrite an element.
Names overwritten(const std::string& root, const std::string& others = "") {
  const auto program = program_of(root, others);
  Names arrays;
  for (const Block& block : program->blocks()) arrays.merge(arrays_overwritten(block));
  return arrays;
}

const std::string kZero =
    "  fill_constant -> Out=i {shape: [1l], dtype: 3, value: 0.0, str_value: \"0\"}\n";
const std::string kOne =
    "  fill_constant -> Out=j {shape: [1l], dtype: 3, value: 1.0, str_value: \"1\"}\n";
const std::string kWriteAtI = "  write_to_array X=g I=i -> Out=a\n";
const std::string kWriteAtJ = "  write_to_array X=h I=j -> Out=a\n";

TEST(ArraysOverwrittenTest, KnowsConstantsCopiesAndCounters) {
  EXPECT_THAT(overwritten(kZero + kOne + kWriteAtI + kWriteAtJ), IsEmpty());
  EXPECT_THAT(overwritten(kZero + kWriteAtI + "  assign X=i -> Out=j\n" + kWriteAtJ),
              ElementsAre("a"));
  EXPECT_THAT(overwritten(kZero + kWriteAtI + "  increment X=i -> Out=i {step: 1.0}\n" + kWriteAtI),
              IsEmpty());
  EXPECT_THAT(
      overwritten(kZero + kOne + kWriteAtJ + "  increment X=i -> Out=i {step: 1.0}\n" + kWriteAtI),
      ElementsAre("a"))
      << "both are 1";
  EXPECT_THAT(overwritten(kZero + kWriteAtI + "  assign X=i -> Out=j\n" +
                          "  increment X=j -> Out=j {step: 1.0}\n" + kWriteAtJ),
              IsEmpty())
      << "one more than i";
}

// An index that is neither constant nor counted may be any, also 0 or 1.
TEST(ArraysOverwrittenTest, AnIndexOfAnotherOpMayBeEqual) {
  for (const char* const op :
       {"scale X=i -> Out=i {scale: 1.0, bias: 1.0}", "assign_value -> Out=i {int64_values: [2l]}",
        "fill_constant ValueTensor=n -> Out=i {shape: [1l], dtype: 3, value: 2.0}",
        "increment X=n -> Out=i {step: 1.0}"}) {
    EXPECT_THAT(overwritten(kZero + kOne + kWriteAtI + "  " + op + "\n" + kWriteAtI),
                ElementsAre("a"))
        << op;
    EXPECT_THAT(overwritten(kZero + kOne + kWriteAtJ + "  " + op + "\n" + kWriteAtI),
                ElementsAre("a"))
        << op;
  }
}

TEST(ArraysOverwrittenTest, TwoUnknownIndicesAreNotCompared) {
  EXPECT_THAT(overwritten(kWriteAtI + "  increment X=i -> Out=i {step: 1.0}\n" + kWriteAtI),
              IsEmpty())
      << "one more than before";
  EXPECT_THAT(overwritten(kWriteAtI + "  increment X=j -> Out=j {step: 1.0}\n" + kWriteAtJ),
              ElementsAre("a"))
      << "i may be j + 1";
}

// Without str_value the number is in `value`, which is 0 by default.
TEST(ArraysOverwrittenTest, KnowsConstantsWithoutText) {
  const auto with = [](const std::string& value) {
    return overwritten("  fill_constant -> Out=i {shape: [1l], dtype: 3" + value + "}\n" + kOne +
                       kWriteAtJ + kWriteAtI);
  };
  EXPECT_THAT(with(""), IsEmpty()) << "0 and 1";
  EXPECT_THAT(with(", value: 1.0"), ElementsAre("a"));
  EXPECT_THAT(with(", value: 2.0"), IsEmpty());
}

const std::string kBranch =
    "  conditional_block Cond=c Input=h -> Out=a Scope=s {is_scalar_condition: true, sub_block: ^1}"
    "\n";

TEST(ArraysOverwrittenTest, ABranchKnowsTheIndicesAroundIt) {
  const auto in_branch = [](const std::string& write) {
    return overwritten(kZero + kOne + kWriteAtI + kBranch, "block 1 parent=0 {\n" + write + "}\n");
  };
  EXPECT_THAT(in_branch(kWriteAtJ), IsEmpty());
  EXPECT_THAT(in_branch(kWriteAtI), ElementsAre("a"));
  EXPECT_THAT(in_branch("  var j: i64(1)\n" + kWriteAtJ), ElementsAre("a"))
      << "another var than the j around it";
}

TEST(ArraysOverwrittenTest, ABranchThatDoesNotListAnIndexMayChangeIt) {
  EXPECT_THAT(overwritten(kZero + kOne + kWriteAtI +
                              "  conditional_block Cond=c Input=i -> Scope=s "
                              "{is_scalar_condition: true, sub_block: ^1}\n" +
                              kWriteAtJ,
                          "block 1 parent=0 {\n  assign X=i -> Out=j\n}\n"),
              ElementsAre("a"));
}

// Each time step writes the same element.
TEST(ArraysOverwrittenTest, ATimeStepMayOverwrite) {
  EXPECT_THAT(
      overwritten(kOne + "  recurrent initial_states=h inputs=x parameters=[] -> outputs=y "
                         "step_scopes=s {ex_states: [\"p\"], states: [\"q\"], sub_block: ^1}\n",
                  "block 1 parent=0 {\n" + kWriteAtJ + "}\n"),
      ElementsAre("a"));
}

TEST(ArraysOverwrittenTest, ALoopMustCountTheIndexItself) {
  const auto in_loop = [](const std::string& count) {
    return overwritten(
        kZero +
            "  while Condition=c X=i, j, n -> Out=a, i, j, c StepScopes=s {sub_block: ^1, "
            "is_test: false}\n",
        "block 1 parent=0 {\n" + count + kWriteAtI + "}\n");
  };
  EXPECT_THAT(in_loop("  increment X=i -> Out=i {step: 1.0}\n"), IsEmpty());
  EXPECT_THAT(in_loop("  increment X=j -> Out=j {step: 1.0}\n"), ElementsAre("a"))
      << "each iteration writes element 0";
}

TEST(ArraysOverwrittenTest, ABlockThatNoOpRunsMayOverwrite) {
  EXPECT_THAT(overwritten(kOne, "block 1 parent=0 {\n" + kWriteAtJ + "}\n"), ElementsAre("a"));
}

// The loop counts from 0, so that it comes to element 1, which is written before it.
TEST(ArraysOverwrittenTest, ALoopComesToLaterElements) {
  const auto before = [](const std::string& write) {
    return overwritten(
        kZero + kOne + write +
            "  while Condition=c X=i, n -> Out=a, i, c StepScopes=s {sub_block: ^1, "
            "is_test: false}\n",
        "block 1 parent=0 {\n" + kWriteAtI + "  increment X=i -> Out=i {step: 1.0}\n}\n");
  };
  EXPECT_THAT(before(""), IsEmpty());
  EXPECT_THAT(before(kWriteAtJ), ElementsAre("a"));
}

TEST(ArraysOverwrittenTest, AnArrayThatTheLossDoesNotDependOnIsNotRefused) {
  const auto program = program_of(
      "  param w: f32(3, 4)\n  var x: f32(-1, 3) stop_gradient\n  var h: f32(-1, 4)\n"
      "  var loss: f32()\n  var i: i64(1)\n" +
      kZero +
      "  mul X=x Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}\n"
      "  write_to_array X=h I=i -> Out=a\n"
      "  write_to_array X=h I=i -> Out=a\n"
      "  mean X=h -> Out=loss\n");
  BackwardRequest request;
  request.loss = "loss";
  const Status status = append_backward(*standard_registry(), *program, request).status();
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(GradientOfArrayTest, IsToldByItsWholeName) {
  EXPECT_TRUE(is_gradient_of_array("a@GRAD", "a"));
  EXPECT_TRUE(is_gradient_of_array("a@GRAD@RENAME@block0@1", "a"));
  EXPECT_FALSE(is_gradient_of_array("a@GRAD@GRAD", "a"));
  EXPECT_FALSE(is_gradient_of_array("b@GRAD", "a"));
}

// t is written to a after the only read of a, so that this write has no gradient op. Its write to b
// has one, which is no replacement.
TEST(ArraysOverwrittenTest, EachWriteNeedsAGradientOpItself) {
  const auto program = program_of(
      "  param w: f32(3, 4)\n  var x: f32(-1, 3) stop_gradient\n  var h: f32(-1, 4)\n"
      "  var t: f32(-1, 4)\n  var r: f32(-1, 4)\n  var q: f32(-1, 4)\n  var y: f32(-1, 4)\n"
      "  var loss: f32()\n  var i: i64(1)\n" +
      kZero +
      "  mul X=x Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}\n"
      "  tanh X=h -> Out=t\n"
      "  write_to_array X=h I=i -> Out=a\n"
      "  read_from_array X=a I=i -> Out=r\n"
      "  write_to_array X=t I=i -> Out=b\n"
      "  read_from_array X=b I=i -> Out=q\n"
      "  elementwise_mul X=r Y=q -> Out=y {axis: -1}\n"
      "  mean X=y -> Out=loss\n"
      "  write_to_array X=t I=i -> Out=a\n");
  BackwardRequest request;
  request.loss = "loss";
  const Status status = append_backward(*standard_registry(), *program, request).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(),
              HasSubstr("'t', which has no gradient, is written to the array 'a'"));
  EXPECT_EQ(status.location().op, 9);
}

TEST(ClearTakenElementsTest, WritesZerosOfTheSameType) {
  std::vector<PendingOp> ops;
  GradOp read("read_from_array");
  read.input("X", {"a@GRAD"}).input("I", {"i"}).input("X_W", {"h"}).output("Out", {"h@GRAD"});
  ops.push_back({std::move(read), nullptr});
  clear_taken_elements(ops, {"a"});
  ASSERT_EQ(ops.size(), 3U);
  const auto program = Program::create();
  for (const PendingOp& pending : ops) {
    Op& op = program->root().append_op(pending.op.type);
    for (const auto& [slot, names] : pending.op.inputs)
      op.set_input(slot, llvm::ArrayRef<std::string>(names));
    for (const auto& [slot, names] : pending.op.outputs)
      op.set_output(slot, llvm::ArrayRef<std::string>(names));
    for (const auto& [name, value] : pending.op.attrs) op.set_attr(name, value);
  }
  const Op& fill = *program->root().op_vector()[1];
  EXPECT_EQ(fill.type(), "fill_any_like");
  EXPECT_EQ(fill.first_input("X"), "h@GRAD");
  EXPECT_EQ(get_attr_or<float>(fill, "value", 1), 0.0F);
  EXPECT_EQ(get_attr_or<int32_t>(fill, "dtype", 0), -1) << "that of X";
  const Op& write = program->root().back();
  EXPECT_EQ(write.type(), "write_to_array");
  EXPECT_EQ(write.first_input("X"), fill.first_output("Out"));
  EXPECT_EQ(write.first_input("I"), "i");
  EXPECT_EQ(write.first_output("Out"), "a@GRAD");
}

// ---- reads

const std::string kLoop =
    "  while Condition=c X=i, n -> Out=a, i, c StepScopes=s {sub_block: ^1, is_test: false}\n";
const std::string kReadAtI = "  read_from_array X=a I=i -> Out=r\n";
const std::string kReadAtJ = "  read_from_array X=a I=j -> Out=r\n";
const std::string kCount = "  increment X=i -> Out=i {step: 1.0}\n";

// Names of the arrays that the loop at an index of a block reads apart.
Names apart(const Program& program, size_t block, size_t op) {
  std::vector<Status> warnings;
  const Names names = arrays_read_apart(*program.block(block).op_vector()[op], &warnings);
  EXPECT_THAT(warnings, IsEmpty());
  return names;
}

// A loop reads element i, counts i and writes element i, in a branch. No iteration reads the last
// element.
TEST(ArrayReadsApartTest, ReadsOfOtherElementsAfterTheLoopCount) {
  const auto with = [](const std::string& after) {
    const auto program =
        program_of(kLoop + after, "block 1 parent=0 {\n" + kReadAtI + kCount +
                                      "  conditional_block Cond=d Input=h -> Out=a Scope=s2 "
                                      "{is_scalar_condition: true, sub_block: ^2}\n}\n"
                                      "block 2 parent=1 {\n  write_to_array X=h I=i -> Out=a\n}\n");
    return apart(*program, 0, 0);
  };
  EXPECT_THAT(with(""), IsEmpty());
  EXPECT_THAT(with(kReadAtI), IsEmpty()) << "the last element";
  EXPECT_THAT(with("  assign X=j -> Out=i\n" + kReadAtI), ElementsAre("a")) << "another element";
  EXPECT_THAT(with(kReadAtJ), ElementsAre("a"));
  EXPECT_THAT(with("  tensor_array_to_tensor X=a -> Out=r OutIndex=o {axis: 0}\n"),
              ElementsAre("a"));
  EXPECT_THAT(with("  lod_array_length X=a -> Out=o\n"), IsEmpty()) << "has no gradient";
  EXPECT_THAT(with("  read_from_array X=a I=j -> Out=r {op_role: 1}\n"), IsEmpty())
      << "a gradient op";
}

// The inner loop runs again before the array is read, so that i may be another index by then.
TEST(ArrayReadsApartTest, AReadAfterTheOuterLoopCountsForTheInnerOne) {
  const auto program = program_of(kLoop + kReadAtI,
                                  "block 1 parent=0 {\n"
                                  "  while Condition=d X=i, n -> Out=a, i, d StepScopes=s2 "
                                  "{sub_block: ^2, is_test: false}\n}\n"
                                  "block 2 parent=1 {\n" +
                                      kReadAtI + kCount + "  write_to_array X=h I=i -> Out=a\n}\n");
  EXPECT_THAT(apart(*program, 0, 0), IsEmpty());
  EXPECT_THAT(apart(*program, 1, 0), ElementsAre("a"));
}

// The inner loop runs in each iteration of the outer one, so that it may have written what the read
// before it takes.
TEST(ArrayReadsApartTest, AReadOfTheOuterLoopBeforeTheInnerOneCounts) {
  const auto program =
      program_of(kLoop, "block 1 parent=0 {\n" + kReadAtJ +
                            "  while Condition=d X=i, n -> Out=a, i, d "
                            "StepScopes=s2 {sub_block: ^2, is_test: false}\n}\n"
                            "block 2 parent=1 {\n" +
                            kReadAtI + kCount + "  write_to_array X=h I=i -> Out=a\n}\n");
  EXPECT_THAT(apart(*program, 1, 1), ElementsAre("a"));
}

// What block 0 reads before its loop is of elements that the loop has not written.
TEST(ArrayReadsApartTest, AReadBeforeTheOutermostLoopDoesNotCount) {
  const auto program = program_of(kReadAtJ + kLoop, "block 1 parent=0 {\n" + kReadAtI + kCount +
                                                        "  write_to_array X=h I=i -> Out=a\n}\n");
  EXPECT_THAT(apart(*program, 0, 1), IsEmpty());
}

// Block 1 says that block 2 encloses it, which cannot be. Ops of block 2 do not count.
TEST(ArrayReadsApartTest, AParentThatComesLaterIsNotFollowed) {
  const auto program = Program::create();
  Block& wrong = program->add_block(2);
  Block& later = program->add_block(0);
  Block& body = program->add_block(1);
  VarSpec array = VarSpec::shapeless(VarKind::kLodTensorArray);
  later.declare("a", array);
  Op& loop = wrong.append_op("while").set_output("Out", "a");
  loop.set_attr("sub_block", AttrValue::of_block(body.index()));
  for (Block* const block : {&body, &later})
    block->append_op("read_from_array")
        .set_input("X", "a")
        .set_input("I", "j")
        .set_output("Out", "r");
  EXPECT_THAT(arrays_read_apart(loop, nullptr), IsEmpty());
}

// ---- gradients

// Gradient ops of earlier writes read their elements from the gradient of the array, so a loop that
// only writes the array passes nothing on.
TEST(ArrayGradientsTest, ALoopThatOnlyWritesPassesNothingOn) {
  const auto program = program_of(
      "  param w: f32(3, 4)\n  var x: f32(-1, 3) stop_gradient\n  var h: f32(-1, 4)\n"
      "  var r: f32(-1, 4)\n  var loss: f32()\n  var i: i64(1)\n  var n: i64(1)\n  var c: bool(1)\n"
      "  var s: step_scopes\n" +
          kZero +
          "  mul X=x Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}\n"
          "  write_to_array X=h I=i -> Out=a\n"
          "  while Condition=c X=a, h, i, n -> Out=a, i, c StepScopes=s {sub_block: ^1, is_test: "
          "false}\n"
          "  read_from_array X=a I=i -> Out=r\n"
          "  mean X=r -> Out=loss\n",
      "block 1 parent=0 {\n  var u: f32(-1, 4)\n  square X=h -> Out=u\n"
      "  increment X=i -> Out=i {step: 1.0}\n  write_to_array X=u I=i -> Out=a\n"
      "  less_than X=i Y=n -> Out=c {axis: -1}\n}\n");
  BackwardRequest request;
  request.loss = "loss";
  const auto pairs = append_backward(*standard_registry(), *program, request);
  ASSERT_TRUE(pairs.ok()) << pairs.status().to_string();
  const Op* loop = nullptr;
  for (const Op& op : program->root().ops())
    if (op.type() == "while_grad") loop = &op;
  ASSERT_NE(loop, nullptr);
  EXPECT_THAT(loop->input("Out@GRAD"), ElementsAre("a@GRAD"));
  ASSERT_EQ(loop->input("X").front(), "a");
  EXPECT_EQ(loop->output("X@GRAD").front(), "@EMPTY@");
}

}  // namespace
}  // namespace millrace::ops::backward
