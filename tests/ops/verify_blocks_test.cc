// Rules about sub-blocks, feed and fetch columns, warnings, and the report as a whole.

#include <gmock/gmock.h>

#include "tests/ops/verify_fixture.h"

namespace millrace::ops {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// ---- sub-blocks

TEST_F(VerifyTest, SubBlocksMustExist) {
  build_small_net();
  Op& op = b_.op("cond", {}, {});
  for (const int32_t target : {9, -1, 1}) {
    op.set_attr("sub_block", AttrValue::of_block(target));
    EXPECT_THAT(found("sub-block"),
                ElementsAre("error: block 0, op 3 (cond), attr sub_block: 'cond' refers to block " +
                            std::to_string(target) +
                            " in 'sub_block' (expected a child of block 0; the program has 1 "
                            "blocks)"));
  }
}

TEST_F(VerifyTest, SubBlocksAreChildrenOfTheirOp) {
  build_small_net();
  Op& op = b_.op("cond", {}, {});
  b_.op("cond", {}, {}).set_attr("sub_block", AttrValue::of_block(1));
  b_.enter_block(0);
  b_.enter_block(1);
  op.set_attr("sub_block", AttrValue::of_block(0));
  EXPECT_THAT(found("sub-block"), ElementsAre(HasSubstr("block 0 in 'sub_block', whose parent is "
                                                        "block -1")));
  op.set_attr("sub_block", AttrValue::of_block(2));
  EXPECT_THAT(found("sub-block"), ElementsAre(HasSubstr("block 2 in 'sub_block', whose parent is "
                                                        "block 1 (expected a child of block 0)")));
}

TEST_F(VerifyTest, ABlockHasOneOwner) {
  build_small_net();
  b_.op("cond", {}, {}).set_attr("sub_block", AttrValue::of_block(1));
  Op& second = b_.op("cond", {}, {}).set_attr("sub_block", AttrValue::of_block(1));
  b_.enter_block(0);
  EXPECT_THAT(found("sub-block"),
              ElementsAre(HasSubstr("op 4 (cond), attr sub_block: 'cond' refers "
                                    "to block 1 in 'sub_block', which op 3 "
                                    "(cond) of block 0 already owns")));
  second.set_type("cond_grad");  // gradient ops of old programs share the forward block
  EXPECT_THAT(found("sub-block"), IsEmpty());
}

TEST_F(VerifyTest, ServersMayOwnBlocksNestedInEachOther) {
  Op& op = b_.op("serve", {}, {});
  b_.enter_block(0);
  b_.enter_block(1);
  b_.enter_block(1);
  op.set_attr("optimize_blocks", AttrValue::of_blocks({1, 2, 3}));
  EXPECT_EQ(all(), "");
  op.set_attr("optimize_blocks", AttrValue::of_blocks({1, 2, 2}));
  EXPECT_THAT(found("sub-block"), ElementsAre(HasSubstr("already owns")));
  op.set_attr("optimize_blocks", AttrValue::of_blocks({1, 4}));
  EXPECT_THAT(found("sub-block"), ElementsAre(HasSubstr("refers to block 4")));
}

TEST_F(VerifyTest, RequiresTheBlockAttribute) {
  b_.op("cond", {}, {});
  EXPECT_THAT(found("attr-missing"),
              ElementsAre(HasSubstr("'sub_block' is missing (expected block)")));
  b_.op("cond", {}, {}).set_int("sub_block", 1);
  b_.enter_block(0);
  EXPECT_THAT(found("attr-type"), ElementsAre(HasSubstr("expected block, found int")));
}

TEST_F(VerifyTest, ABrokenTreeEndsTheCheck) {
  build_small_net();
  op_at(1).set_type("mull");
  b_.enter_block(0);
  b_.block().set_parent(1);
  EXPECT_EQ(all(),
            "error: block 1: parent of block 1 is 1 (expected a block from 0 to 0) "
            "[block-parent]\n");
}

// ---- feed and fetch

TEST_F(VerifyTest, ColumnsAreGapless) {
  build_small_net();
  b_.var("x2", {-1, 3});
  Op& second = b_.feed("x2", 1);
  EXPECT_EQ(all(), "");
  second.set_int("col", 2);
  EXPECT_THAT(found("feed-fetch-col"),
              ElementsAre("error: block 0, op 3 (feed), attr col: feed col is 2, but col 1 is "
                          "missing (expected each of 0 to 1 once)"));
  second.set_int("col", 0);
  EXPECT_THAT(found("feed-fetch-col"), ElementsAre(HasSubstr("feed col 0 occurs twice")));
}

TEST_F(VerifyTest, ColumnsAreBounded) {
  build_small_net();
  for (const int32_t col : {500000000, 65536, -1}) {
    op_at(2).set_int("col", col);
    EXPECT_THAT(found("feed-fetch-col"),
                ElementsAre("error: block 0, op 2 (fetch), attr col: fetch col is " +
                            std::to_string(col) + " (expected 0 to 65535)"));
  }
}

TEST_F(VerifyTest, BothFetchOpsShareTheColumnsOfAHolder) {
  build_small_net();
  Op& second = b_.op("fetch_v2", {{"X", {"y"}}}, {{"Out", {"fetch"}}});
  second.set_int("col", 1);
  EXPECT_EQ(all(), "");
  second.set_int("col", 0);
  EXPECT_THAT(found("feed-fetch-col"), ElementsAre(HasSubstr("fetch col 0 occurs twice")));
}

TEST_F(VerifyTest, EachHolderCountsItsOwnColumns) {
  build_small_net();
  b_.holder("feed2", VarKind::kFeedMinibatch);
  b_.op("feed", {{"X", {"feed2"}}}, {{"Out", {"x"}}}).set_int("col", 0);
  EXPECT_EQ(all(), "");
}

TEST_F(VerifyTest, FeedReadsAFeedList) {
  build_small_net();
  op_at(0).set_input("X", "fetch");
  EXPECT_THAT(found("slot-kind"),
              ElementsAre("error: block 0, op 0 (feed), input X[0] 'fetch': var "
                          "'fetch' is a fetch_list (expected feed_minibatch)"));
}

TEST_F(VerifyTest, FetchMayWriteATensorArray) {
  build_small_net();
  VarSpec array = VarSpec::tensor(DType::kFloat32, {});
  array.kind = VarKind::kLodTensorArray;
  b_.block().declare("fetch", array);
  EXPECT_EQ(all(), "");
  b_.var("plain", {1});
  op_at(2).set_output("Out", "plain");
  EXPECT_THAT(found("slot-kind"), ElementsAre(HasSubstr("'plain' is a lod_tensor (expected")));
}

// ---- warnings

TEST_F(VerifyTest, LintFindsWhatIsSeldomMeant) {
  build_small_net();
  b_.var("spare", {1}).enter_block(0);
  b_.in_block(0);
  op_at(1).set_int("op_role", 0).set_int("no_such", 1);
  EXPECT_EQ(all(), "");
  options_.lint = true;
  EXPECT_THAT(found("unused-var"),
              ElementsAre("warning: block 0, 'spare': var 'spare' is never used"));
  EXPECT_THAT(found("unreachable-block"),
              ElementsAre("warning: block 1: no reachable op owns block 1 with its 0 ops"));
  EXPECT_THAT(found("op-role-missing"), SizeIs(2));
  EXPECT_THAT(
      found("attr-unknown"),
      ElementsAre("warning: block 0, op 1 (mul), attr no_such: attribute 'no_such' is not in "
                  "the schema of 'mul'"));
  EXPECT_TRUE(check_program(*registry_, b_.program(), options_).ok());
}

TEST_F(VerifyTest, LintFindsDeadStores) {
  b_.var("x", {2}).var("y", {2});
  auto fill = [&] {
    b_.op("fill", {}, {{"Out", {"y"}}}).set_attr("shape", AttrValue::of_longs({2}));
  };
  options_.lint = true;
  fill();
  b_.op("stack", {{"X", {"y"}}}, {{"Y", {"x"}}});
  fill();
  EXPECT_THAT(found("dead-store"), IsEmpty());
  fill();
  EXPECT_THAT(found("dead-store"),
              ElementsAre("warning: block 0, op 2 (fill), 'y': value of 'y' is "
                          "replaced by op 3 before anything reads it"));
}

// ---- the report

TEST_F(VerifyTest, ReportsEverythingInProgramOrder) {
  build_small_net();
  op_at(2).set_int("col", 7);
  op_at(1).set_int("x_num_col_dims", 0).set_input("Y", "nowhere");
  op_at(0).set_type("fed");
  b_.block().find_var("w")->set_dims({-5});
  std::vector<std::string> rules;
  for (const Finding& finding : verify()) rules.emplace_back(finding.rule);
  EXPECT_THAT(rules,
              ElementsAre("var-dims", "op-type", "undeclared-var", "attr-range", "feed-fetch-col"));
  const Status status = check_program(*registry_, b_.program());
  EXPECT_EQ(status.code(), StatusCode::kInvalidProgram);
  EXPECT_THAT(status.message(), HasSubstr("has dim -5"));
  EXPECT_THAT(status.notes(), SizeIs(4));
  EXPECT_THAT(status.notes()[0], HasSubstr("also block 0, op 0 (fed): unknown op type 'fed'"));
}

TEST_F(VerifyTest, ListsTwentyErrorsAndCountsTheRest) {
  for (int i = 0; i < 30; ++i) b_.op("nothing_like_it", {}, {});
  EXPECT_THAT(verify(), SizeIs(30));
  const Status status = check_program(*registry_, b_.program());
  EXPECT_THAT(status.notes(), SizeIs(20));
  EXPECT_EQ(status.notes().back(), "and 10 more errors");
  options_.max_findings = 5;
  const std::vector<Finding> few = verify();
  ASSERT_THAT(few, SizeIs(6));
  EXPECT_EQ(few.back().status.message(), "25 more errors and 0 more warnings are not listed");
}

TEST_F(VerifyTest, EscapesNames) {
  build_small_net();
  op_at(1).set_input("Y", "\x1b[31mw");
  EXPECT_THAT(all(), HasSubstr("'\\x1b[31mw'"));
  EXPECT_EQ(all().find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace millrace::ops
