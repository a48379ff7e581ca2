// Loops, branches and arrays as PIR programs, and what of them is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "interchange/pir/export.h"
#include "tests/support/program_builder.h"

namespace millrace::interchange {
namespace {

using millrace::testing::ProgramBuilder;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string pir_text(ProgramBuilder& program) {
  const auto made = export_pir(program.program(), {});
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? made->program : "";
}

std::string pir_error(ProgramBuilder& program) {
  const auto made = export_pir(program.program(), {});
  EXPECT_FALSE(made.ok());
  return made.ok() ? "" : made.status().to_string();
}

// `x` is doubled while the counter `i` is below `n`; the body is block 1.
class PirLoop : public ::testing::Test {
 protected:
  PirLoop() {
    program_.var("x", {-1, 3}).var("n", {1}, DType::kInt64).var("i", {1}, DType::kInt64);
    program_.var("go", {1}, DType::kBool);
    program_.feed("x", 0);
    program_.feed("n", 1);
    program_.op("fill_constant", {}, {{"Out", {"i"}}})
        .set_int("dtype", 3)
        .set_attr("shape", AttrValue::of_longs({1}));
    program_.op("less_than", {{"X", {"i"}}, {"Y", {"n"}}}, {{"Out", {"go"}}});
    body_ = program_.enter_block(0);
  }
  void double_x() {
    program_.op("scale", {{"X", {"x"}}}, {{"Out", {"x"}}}).set_float("scale", 2.0F);
  }
  void count() {
    program_.op("increment", {{"X", {"i"}}}, {{"Out", {"i"}}}).set_float("step", 1.0F);
    program_.op("less_than", {{"X", {"i"}}, {"Y", {"n"}}}, {{"Out", {"go"}}});
  }
  void end_loop() {
    program_.in_block(0);
    program_.holder("scopes", VarKind::kStepScopes);
    program_
        .op("while", {{"X", {"x", "i", "n"}}, {"Condition", {"go"}}},
            {{"Out", {"x", "i"}}, {"StepScopes", {"scopes"}}})
        .set_attr("sub_block", AttrValue::of_block(body_));
  }

  ProgramBuilder program_;
  int32_t body_ = 0;
};

TEST_F(PirLoop, VarsThatTheBodySetsAreCarried) {
  double_x();
  count();
  end_loop();
  program_.fetch("x", 0);
  const std::string text = pir_text(program_);
  // The condition, then i and x in the order of their names.
  EXPECT_THAT(text, HasSubstr(R"({"#":"1.while","A":[],"I":[{"%":4},{"%":3},{"%":1}],)"));
  EXPECT_THAT(text, HasSubstr(R"("args":[{"#":-1,)"));
  EXPECT_THAT(text, HasSubstr(R"({"#":"1.increment",)"));
  EXPECT_THAT(text, HasSubstr(R"({"#":"2.yield",)"));
}

TEST_F(PirLoop, ExtentsThatAnIterationChangesAreUnknown) {
  program_.in_block(0);
  program_.var("y", {2, 3});
  program_.op("fill_constant", {}, {{"Out", {"y"}}})
      .set_int("dtype", 5)
      .set_attr("shape", AttrValue::of_longs({2, 3}));
  program_.in_block(body_);
  program_.op("concat", {{"X", {"y", "y"}}}, {{"Out", {"y"}}}).set_int("axis", 0);
  count();
  end_loop();
  program_.fetch("y", 0);
  EXPECT_THAT(pir_text(program_), HasSubstr(R"("args":[{"#":-1,"TT":{"#":"0.t_dtensor","D":[)"
                                            R"({"#":"0.t_i64"},[1],"NCHW",[],0]}},{"#":-2,"TT":)"
                                            R"({"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[-1,3],)"));
}

TEST_F(PirLoop, ALoopThatDoesNotSetItsConditionIsRefused) {
  double_x();
  end_loop();
  program_.fetch("x", 0);
  EXPECT_THAT(pir_error(program_),
              AllOf(HasSubstr("(while)"),
                    HasSubstr("export to PIR: a loop that does not set its condition")));
}

TEST_F(PirLoop, RanksMayNotChange) {
  program_.op("unsqueeze2", {{"X", {"x"}}}, {{"Out", {"x"}}})
      .set_attr("axes", AttrValue::of_ints({0}));
  count();
  end_loop();
  program_.fetch("x", 0);
  EXPECT_THAT(pir_error(program_), HasSubstr("a loop that changes the rank of 'x'"));
}

TEST_F(PirLoop, SequencesMayNotLeaveALoop) {
  VarSpec spec = VarSpec::tensor(DType::kFloat32, {-1, 3});
  spec.lod_level = 1;
  program_.in_block(0);
  program_.block().find_var("x")->set_spec(spec);
  program_.in_block(body_);
  double_x();
  count();
  end_loop();
  program_.fetch("x", 0);
  EXPECT_THAT(pir_error(program_), HasSubstr("'x' has LoD, which values of blocks lose in PIR"));
}

TEST_F(PirLoop, ArraysAreMadeBeforeTheLoop) {
  program_.in_block(0);
  VarSpec spec = VarSpec::tensor(DType::kFloat32, {-1, 3});
  spec.kind = VarKind::kLodTensorArray;
  spec.form = TensorForm::kTensorArray;
  program_.block().declare("all", spec);
  program_.var("y", {-1, 3}).var("at", {-1}, DType::kInt32);
  program_.in_block(body_);
  program_.op("write_to_array", {{"X", {"x"}}, {"I", {"i"}}}, {{"Out", {"all"}}});
  count();
  end_loop();
  program_.op("tensor_array_to_tensor", {{"X", {"all"}}}, {{"Out", {"y"}}, {"OutIndex", {"at"}}});
  program_.fetch("y", 0);
  const std::string text = pir_text(program_);
  EXPECT_LT(text.find("1.create_array"), text.find("1.while"));
  EXPECT_THAT(text, AllOf(HasSubstr("1.array_write_"), HasSubstr("1.array_to_tensor"),
                          HasSubstr("1.t_dense_tensor_array")));
}

// `y` is set in a branch that depends on the fed var `go`.
class PirBranch : public ::testing::Test {
 protected:
  void build(bool is_scalar) {
    program_.var("go", {1}, DType::kBool).var("x", {2}).var("y", {2});
    program_.feed("go", 0);
    program_.feed("x", 1);
    const int32_t body = program_.enter_block(0);
    program_.op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
    program_.in_block(0);
    program_.op("conditional_block", {{"Cond", {"go"}}, {"Input", {"x"}}}, {{"Out", {"y"}}})
        .set_bool("is_scalar_condition", is_scalar)
        .set_attr("sub_block", AttrValue::of_block(body));
    program_.fetch("y", 0);
  }

  ProgramBuilder program_;
};

TEST_F(PirBranch, WhereItIsSkippedTheVarHasAPlaceholder) {
  build(true);
  const std::string text = pir_text(program_);
  EXPECT_THAT(text, AllOf(HasSubstr(R"({"#":"1.if","A":[],"I":[{"%":1}],)"),
                          HasSubstr(R"("#":"region_2")"), HasSubstr("1.relu")));
}

TEST_F(PirBranch, RanksMayNotChange) {
  program_.var("go", {1}, DType::kBool).var("x", {2});
  program_.feed("go", 0);
  program_.feed("x", 1);
  const int32_t body = program_.enter_block(0);
  program_.op("unsqueeze2", {{"X", {"x"}}}, {{"Out", {"x"}}})
      .set_attr("axes", AttrValue::of_ints({0}));
  program_.in_block(0);
  program_.op("conditional_block", {{"Cond", {"go"}}, {"Input", {"x"}}}, {{"Out", {"x"}}})
      .set_bool("is_scalar_condition", true)
      .set_attr("sub_block", AttrValue::of_block(body));
  program_.fetch("x", 0);
  EXPECT_THAT(pir_error(program_), HasSubstr("a branch that changes the rank of 'x'"));
}

TEST_F(PirBranch, ConditionsOnTheNumberOfElementsAreRefused) {
  build(false);
  EXPECT_THAT(pir_error(program_), HasSubstr("a branch that runs if its inputs have elements"));
}

}  // namespace
}  // namespace millrace::interchange
