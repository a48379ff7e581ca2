// Every rule about ops fires on a program that violates it, and accepts the most similar legal
// program.

#include <limits>

#include <gmock/gmock.h>

#include "tests/ops/verify_fixture.h"

namespace millrace::ops {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(VerifyTest, AcceptsASmallNet) {
  build_small_net();
  EXPECT_EQ(all(), "");
  EXPECT_TRUE(check_program(*registry_, b_.program()).ok());
}

TEST_F(VerifyTest, SuggestsTheNearestOpType) {
  build_small_net();
  op_at(1).set_type("mull");
  EXPECT_EQ(all(),
            "error: block 0, op 1 (mull): unknown op type 'mull' [op-type]\n"
            "  hint: did you mean 'mul'?\n");
}

TEST_F(VerifyTest, RefusesAnEmptyOpType) {
  build_small_net();
  op_at(1).set_type("");
  EXPECT_THAT(found("op-type"), ElementsAre("error: block 0, op 1: op type is empty"));
}

TEST_F(VerifyTest, NamesTheUsersSourceLine) {
  build_small_net();
  op_at(1).set_type("mull");
  op_at(1).set_strings("op_callstack", {"  File \"net.py\", line 12, in f"});
  EXPECT_THAT(all(), HasSubstr("note: created at File \"net.py\", line 12, in f"));
}

// ---- slots

TEST_F(VerifyTest, RequiresRequiredSlots) {
  build_small_net();
  op_at(1).remove_input("Y");
  EXPECT_THAT(found("slot-missing"),
              ElementsAre("error: block 0, op 1 (mul), input Y: required input slot 'Y' is missing "
                          "(expected exactly one name, found 0)"));
  op_at(1).set_input("Y", "w");
  EXPECT_EQ(all(), "");
}

TEST_F(VerifyTest, ThePlaceholderDoesNotFillARequiredSlot) {
  build_small_net();
  op_at(1).set_input("Y", "@EMPTY@");
  EXPECT_THAT(found("slot-missing"), ElementsAre(HasSubstr("slot 'Y' is missing")));
}

TEST_F(VerifyTest, RequiresRequiredOutputs) {
  build_small_net();
  op_at(1).remove_output("Out");
  EXPECT_THAT(found("slot-missing"), ElementsAre(HasSubstr("required output slot 'Out'")));
}

TEST_F(VerifyTest, AllowsOneNameWhereOneIsExpected) {
  build_small_net();
  const std::vector<std::string> two = {"x", "x"};
  op_at(1).set_input("X", llvm::ArrayRef<std::string>(two));
  EXPECT_THAT(found("slot-count"),
              ElementsAre("error: block 0, op 1 (mul), input X: slot 'X' has 2 names (expected "
                          "exactly one)"));
}

TEST_F(VerifyTest, AllowsManyNamesWhereManyAreExpected) {
  b_.param("a", {2}).param("b", {2}).var("y", {2, 2});
  Op& op = b_.op("stack", {{"X", {"a", "b"}}}, {{"Y", {"y"}}});
  EXPECT_EQ(all(), "");  // the intermediate output is not required either
  op.set_input("X", llvm::ArrayRef<llvm::StringRef>());
  EXPECT_THAT(found("slot-missing"), ElementsAre(HasSubstr("expected at least one name, found 0")));
}

TEST_F(VerifyTest, RefusesUnknownSlotsWithNames) {
  b_.param("a", {2}).var("y", {2, 2});
  b_.op("stack", {{"X", {"a"}}, {"XX", {"a"}}}, {{"Y", {"y"}}, {"Old", {}}});
  EXPECT_THAT(found("slot-unknown"),
              ElementsAre("error: block 0, op 0 (stack), input XX: op type 'stack' has no input "
                          "slot 'XX'"));
}

TEST_F(VerifyTest, GradientAndPluginOpsMayHaveMoreSlots) {
  build_small_net();
  b_.var("g", {3, 2});
  b_.op("mul_grad", {{"X", {"x"}}, {"Y", {"w"}}, {"Old", {"y"}}}, {{"Y@GRAD", {"g"}}});
  b_.op("plugin", {{"Anything", {"x"}}}, {{"Out", {"y"}}});
  EXPECT_EQ(all(), "");
  options_.lint = true;
  EXPECT_THAT(found("slot-unknown"), ElementsAre(HasSubstr("warning: block 0, op 3 (mul_grad)")));
}

TEST_F(VerifyTest, RefusesRepeatedSlots) {
  build_small_net();
  op_at(1).add_slot(false, "X", {"x"});
  EXPECT_THAT(found("slot-twice"),
              ElementsAre("error: block 0, op 1 (mul), input X: slot 'X' occurs twice"));
}

TEST_F(VerifyTest, ChecksTheKindOfVars) {
  build_small_net();
  b_.holder("list", VarKind::kFetchList);
  op_at(1).set_input("Y", "list");
  EXPECT_THAT(found("slot-kind"),
              ElementsAre("error: block 0, op 1 (mul), input Y[0] 'list': var 'list' is a "
                          "fetch_list (expected lod_tensor or selected_rows)"));
}

TEST_F(VerifyTest, RefusesAnOutputToAFeedHolder) {
  build_small_net();
  op_at(1).set_output("Out", "feed");
  EXPECT_THAT(found("slot-kind"), ElementsAre(HasSubstr("output Out[0] 'feed'")));
}

// ---- declarations

TEST_F(VerifyTest, RefusesUndeclaredVars) {
  build_small_net();
  op_at(1).set_input("Y", "weights").set_output("Out", "z");
  EXPECT_THAT(found("undeclared-var"),
              ElementsAre("error: block 0, op 1 (mul), input Y[0] 'weights': var 'weights' is not "
                          "declared in block 0 or an enclosing block",
                          HasSubstr("output Out[0] 'z'")));
}

TEST_F(VerifyTest, RefusesEmptyNames) {
  build_small_net();
  op_at(1).set_input("Y", "");
  EXPECT_THAT(found("undeclared-var"), ElementsAre(HasSubstr("argument has an empty name")));
}

TEST_F(VerifyTest, FindsVarsOfEnclosingBlocksOnly) {
  build_small_net();
  b_.op("cond", {}, {}).set_attr("sub_block", AttrValue::of_block(1));
  b_.enter_block(0);
  b_.var("inner", {-1, 2});
  b_.op("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"inner"}}});
  EXPECT_EQ(all(), "");
  b_.in_block(0);
  op_at(1).set_input("X", "inner");
  EXPECT_THAT(found("undeclared-var"), ElementsAre(HasSubstr("block 0, op 1 (mul), input X[0]")));
}

TEST_F(VerifyTest, GradientBlocksSeeTheirForwardBlock) {
  build_small_net();
  b_.op("cond", {}, {}).set_attr("sub_block", AttrValue::of_block(1));
  b_.op("cond_grad", {}, {}).set_attr("sub_block", AttrValue::of_block(2));
  b_.enter_block(0);
  b_.var("inner", {3, 2});
  b_.enter_block(0);
  b_.var("out", {-1, 2});
  b_.op("mul", {{"X", {"x"}}, {"Y", {"inner"}}}, {{"Out", {"out"}}});
  EXPECT_THAT(found("undeclared-var"), ElementsAre(HasSubstr("block 2, op 0 (mul)")));
  b_.block().set_forward_block(1);
  EXPECT_EQ(all(), "");
}

TEST_F(VerifyTest, UndeclaredVarsOfUnreachableBlocksAreWarnings) {
  build_small_net();
  b_.enter_block(0);
  b_.op("mul", {{"X", {"gone"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  EXPECT_THAT(found("undeclared-var"), ElementsAre(HasSubstr("warning: block 1, op 0 (mul)")));
}

TEST_F(VerifyTest, AGradientNobodyDeclaredIsAWarning) {
  build_small_net();
  b_.op("mul_grad", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Y@GRAD", {"w@GRAD"}}});
  EXPECT_THAT(found("undeclared-var"), ElementsAre(HasSubstr("warning: block 0, op 3")));
}

// ---- attributes

TEST_F(VerifyTest, ChecksTheTypeOfAttributes) {
  build_small_net();
  op_at(1).set_string("x_num_col_dims", "1");
  EXPECT_THAT(found("attr-type"),
              ElementsAre("error: block 0, op 1 (mul), attr x_num_col_dims: attribute "
                          "'x_num_col_dims' has the wrong type (expected int, found string)"));
  op_at(1).set_attr("x_num_col_dims", AttrValue::of_long(1));
  EXPECT_EQ(all(), "");
  op_at(1).set_attr("x_num_col_dims", AttrValue::of_long(int64_t{1} << 40));
  EXPECT_THAT(found("attr-type"), ElementsAre(HasSubstr("of type long does not fit")));
}

TEST_F(VerifyTest, ChecksTheRangeOfAttributes) {
  build_small_net();
  op_at(1).set_int("x_num_col_dims", -1);
  EXPECT_THAT(found("attr-range"),
              ElementsAre("error: block 0, op 1 (mul), attr x_num_col_dims: attribute "
                          "'x_num_col_dims' is -1 (expected at least 1)"));
}

TEST_F(VerifyTest, NotANumberIsOutsideOfEveryRange) {
  b_.var("y", {2});
  Op& op = b_.op("fill", {}, {{"Out", {"y"}}}).set_attr("shape", AttrValue::of_longs({2}));
  op.set_float("value", 0.5F);
  EXPECT_EQ(all(), "");
  op.set_float("value", std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(found("attr-range"),
              ElementsAre(HasSubstr("'value' is nan (expected from -1 to 1)")));
}

TEST_F(VerifyTest, ChecksChoices) {
  b_.var("y", {2});
  Op& op = b_.op("fill", {}, {{"Out", {"y"}}}).set_attr("shape", AttrValue::of_longs({2}));
  op.set_string("mode", "fancy");
  EXPECT_EQ(all(), "");
  op.set_string("mode", "wild");
  EXPECT_THAT(found("attr-choice"),
              ElementsAre(HasSubstr("'mode' is 'wild' (expected one of 'plain', 'fancy')")));
}

TEST_F(VerifyTest, RequiresRequiredAttributes) {
  b_.var("y", {2});
  b_.op("fill", {}, {{"Out", {"y"}}});
  EXPECT_THAT(found("attr-missing"),
              ElementsAre("error: block 0, op 0 (fill), attr shape: attribute 'shape' is missing "
                          "(expected longs)"));
}

TEST_F(VerifyTest, RefusesRepeatedAttributes) {
  build_small_net();
  Op& op = op_at(1);
  op.set_int("x_num_col_dims", 1).set_bool("use_mkldnn", false);
  auto repeat = [&](const char* name, AttrValue value) {
    op.add_attr(Attr{b_.program().names().intern(name), std::move(value), false, nullptr});
  };
  repeat("use_mkldnn", AttrValue::of_bool(false));  // occurs in real programs
  EXPECT_EQ(all(), "");
  repeat("x_num_col_dims", AttrValue::of_int(1));
  EXPECT_THAT(found("attr-twice"), ElementsAre(HasSubstr("'x_num_col_dims' occurs twice")));
  repeat("use_mkldnn", AttrValue::of_bool(true));
  EXPECT_THAT(found("attr-twice"),
              ElementsAre(HasSubstr("'x_num_col_dims' occurs twice"),
                          HasSubstr("'use_mkldnn' occurs twice with different values")));
}

TEST_F(VerifyTest, RefusesAttributesUnderTheirOldNames) {
  build_small_net();
  Op& op = b_.program().root().append_op("roll");
  op.set_input("X", "x").set_output("Out", "x");
  op.set_attr("shifts", AttrValue::of_longs({1})).set_attr("dims", AttrValue::of_longs({0}));
  EXPECT_THAT(found("attr-renamed"),
              ElementsAre(HasSubstr("attribute 'dims' is called 'axis' since release 2.0")));
  op.set_attr("axis", AttrValue::of_longs({0}));
  EXPECT_TRUE(found("attr-renamed").empty());
}

TEST_F(VerifyTest, RefusesFormulasOfOlderReleases) {
  build_small_net();
  Op& op = b_.program().root().append_op("leaky_relu");
  op.set_input("X", "x").set_output("Out", "x").set_float("alpha", 2);
  EXPECT_TRUE(found("old-formula").empty());
  b_.program().set_version(true, 1006001);
  EXPECT_THAT(found("old-formula"),
              ElementsAre(HasSubstr("leaky_relu with alpha 2 has another formula in release "
                                    "1006001")));
  op.set_float("alpha", 0.5F);
  EXPECT_TRUE(found("old-formula").empty());
  b_.program().set_version(true, 2000000);
  op.set_float("alpha", 2);
  EXPECT_TRUE(found("old-formula").empty());
}

TEST_F(VerifyTest, AttributesNeedTheirValue) {
  build_small_net();
  const NameId name = b_.program().names().intern("x_num_col_dims");
  op_at(1).add_attr(Attr{name, AttrValue::of_int(1), true, nullptr});
  EXPECT_THAT(found("attr-value"), ElementsAre(HasSubstr("is of type int but has no value")));
}

TEST_F(VerifyTest, VarsMayHoldTheValueOfAnAttribute) {
  build_small_net();
  op_at(1).set_attr("x_num_col_dims", AttrValue::of_var("x"));
  EXPECT_EQ(all(), "");
  op_at(1).set_attr("x_num_col_dims", AttrValue::of_var("nowhere"));
  EXPECT_THAT(found("undeclared-var"), ElementsAre(HasSubstr("names var 'nowhere'")));
}

// ---- roles

TEST_F(VerifyTest, ChecksRoles) {
  build_small_net();
  for (const int role : {0, 1, 2, 4, 8, 16, 18, 256, 257, 4096}) {
    op_at(1).set_int("op_role", role);
    EXPECT_EQ(all(), "") << role;
  }
  op_at(1).set_int("op_role", 3);
  EXPECT_THAT(found("op-role"), ElementsAre(HasSubstr("warning: block 0, op 1 (mul), attr op_role: "
                                                      "op_role 3 is an unusual combination")));
  for (const int role : {-1, 32, 7777}) {
    op_at(1).set_int("op_role", role);
    EXPECT_THAT(found("op-role"), ElementsAre(HasSubstr("has unknown bits"))) << role;
  }
}

TEST_F(VerifyTest, ChecksRoleVars) {
  build_small_net();
  op_at(1).set_strings("op_role_var", {"w", "w@GRAD"});
  EXPECT_EQ(all(), "");  // transpiled trainers drop gradients
  op_at(1).set_strings("op_role_var", {"w"});
  EXPECT_THAT(found("op-role-var"), ElementsAre(HasSubstr("op_role_var has 1 names")));
  op_at(1).set_strings("op_role_var", {"v", "w@GRAD"});
  EXPECT_THAT(found("op-role-var"),
              ElementsAre(HasSubstr("names param 'v', which is not declared")));
}

TEST_F(VerifyTest, LetsLossScalingListGradientsAlone) {
  const std::vector<std::string> grads = {"a@GRAD", "b@GRAD", "c@GRAD"};
  for (const std::string& grad : grads) b_.var(grad, {2});
  b_.var("scale", {1}).var("found", {1}, DType::kBool);
  Op& op = b_.op("check_finite_and_unscale", {{"X", grads}, {"Scale", {"scale"}}},
                 {{"Out", grads}, {"FoundInfinite", {"found"}}});
  op.set_strings("op_role_var", grads);
  EXPECT_THAT(found("op-role-var"), ElementsAre());
  op.set_strings("op_role_var", {"a@GRAD"});
  EXPECT_THAT(found("op-role-var"), ElementsAre(HasSubstr("op_role_var has 1 names")));
}

// ---- capabilities

TEST_F(VerifyTest, KeepsPathsInside) {
  b_.param("w", {2});
  Op& op = b_.op("save", {{"X", {"w"}}}, {});
  for (const char* good : {"model/w", "w", "a..b/c", "./w"}) {
    op.set_string("file_path", good);
    EXPECT_EQ(all(), "") << good;
  }
  for (const char* bad : {"../../x", "a/../../x", "/etc/x", "..", "C:\\x"}) {
    op.set_string("file_path", bad);
    EXPECT_THAT(found("path"), ElementsAre(HasSubstr("op 0 (save), attr file_path: path '")))
        << bad;
  }
  options_.allow_outside_paths = true;
  EXPECT_EQ(all(), "");
}

TEST_F(VerifyTest, RefusesWhatTheRoleMayNotDo) {
  b_.op("serve", {}, {}).set_attr("optimize_blocks", AttrValue::of_blocks({}));
  b_.op("script", {}, {});
  EXPECT_EQ(all(), "");
  options_.allow_network = false;
  options_.allow_host_code = false;
  EXPECT_THAT(found("network"), ElementsAre(HasSubstr("'serve' opens sockets")));
  EXPECT_THAT(found("host-code"), ElementsAre(HasSubstr("'script' runs code")));
}

// ---- shapes

TEST_F(VerifyTest, ReportsImpossibleShapes) {
  build_small_net();
  b_.block().find_var("w")->set_dims({4, 2});
  EXPECT_THAT(found("shape"), ElementsAre("error: block 0, op 1 (mul): X has 3 columns, Y has 4 "
                                          "rows (expected the same)"));
  options_.check_shapes = false;
  EXPECT_EQ(all(), "");
}

TEST_F(VerifyTest, NamesTheInputsOfAnOpWhoseShapesAreImpossible) {
  build_small_net();
  b_.block().find_var("w")->set_dims({4, 2});
  EXPECT_THAT(all(), HasSubstr("\n  note: inputs are X 'x' f32 [-1, 3], Y 'w' f32 [4, 2]\n"));
  EXPECT_THAT(check_program(*registry_, b_.program()).to_string(), HasSubstr("Y 'w' f32 [4, 2]"));
}

TEST_F(VerifyTest, InputsOfOneOpHaveOneDataType) {
  build_small_net();
  b_.param("w", {3, 2}, DType::kInt64);
  EXPECT_THAT(
      found("shape"),
      ElementsAre("error: block 0, op 1 (mul), input Y[0] 'w': X is of f32, but Y is of i64 "
                  "(expected the same data type)"));
  VarSpec rows = VarSpec::tensor(DType::kFloat32, {3, 2});
  rows.kind = VarKind::kSelectedRows;
  b_.block().declare("w", rows);
  EXPECT_THAT(found("shape"),
              ElementsAre(HasSubstr("Y holds sparse rows (expected a dense tensor)")));
}

TEST_F(VerifyTest, ReportsInferredTensorsThatAreTooLarge) {
  b_.var("y", {-1, -1});
  Op& op = b_.op("fill", {}, {{"Out", {"y"}}});
  op.set_attr("shape", AttrValue::of_longs({1024, 1024}));
  EXPECT_EQ(all(), "");
  op.set_attr("shape", AttrValue::of_longs({int64_t{1} << 40, int64_t{1} << 40}));
  EXPECT_THAT(found("inferred-bytes"),
              ElementsAre(HasSubstr("op 0 (fill), 'y': var 'y' would be")));
  op.set_attr("shape", AttrValue::of_longs({2, -7}));
  EXPECT_THAT(found("inferred-bytes"), ElementsAre(HasSubstr("[2, -7]")));
}

TEST_F(VerifyTest, ADifferentDeclarationIsAMatterOfStyle) {
  build_small_net();
  b_.block().find_var("y")->set_dims({5, 7});
  EXPECT_EQ(all(), "");
  options_.lint = true;
  EXPECT_THAT(found("shape-declared"), ElementsAre(HasSubstr("declared [5, 7] but inference says "
                                                             "[-1, 2]")));
}

// The original declares batch times channels, which is below -1 for an unknown batch.
TEST_F(VerifyTest, DimsBelowMinusOneAreProductsOfUnknownDims) {
  build_small_net();
  b_.block().find_var("y")->set_dims({-6, 2});
  EXPECT_EQ(all(), "");
  b_.block().find_var("y")->set_dims({-1, -2});
  EXPECT_THAT(found("var-dims"), ElementsAre(HasSubstr("var 'y' has dim -2 at position 1 (expected "
                                                       "[-1, 2] by inference)")));
  b_.block().find_var("y")->set_dims({-1, 2});
  b_.block().find_var("x")->set_dims({-1, -3});  // fed, so no op infers it
  EXPECT_THAT(found("var-dims"), ElementsAre(HasSubstr("var 'x' has dim -3 at position 1 (expected "
                                                       "-1 or more)")));
}

TEST_F(VerifyTest, InferenceSeesNoOpThatIsAtFault) {
  build_small_net();
  b_.block().find_var("w")->set_dims({4, 2});
  op_at(1).set_int("x_num_col_dims", 0);
  EXPECT_THAT(found("attr-range"), ElementsAre(HasSubstr("x_num_col_dims")));
  EXPECT_THAT(found("shape"), IsEmpty());
}

}  // namespace
}  // namespace millrace::ops
