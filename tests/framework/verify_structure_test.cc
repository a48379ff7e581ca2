// Rules that need no op schema: block tree, declarations, names, version.

#include "framework/verify_structure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/program_builder.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class VerifyStructureTest : public ::testing::Test {
 protected:
  std::vector<std::string> found() {
    FindingList findings(100);
    facts_ = verify_structure(b_.program(), limits_, findings);
    std::vector<std::string> out;
    for (const Finding& finding : findings.take()) {
      out.push_back(std::string(finding.rule) + ": " + finding.status.message());
    }
    return out;
  }

  testing::ProgramBuilder b_;
  StructureLimits limits_;
  StructureFacts facts_;
};

TEST_F(VerifyStructureTest, AcceptsNestedBlocks) {
  b_.var("x", {-1, 3}).enter_block(0);
  b_.var("x", {2}).enter_block(1);
  b_.enter_block(0);
  EXPECT_THAT(found(), IsEmpty());
  EXPECT_TRUE(facts_.is_tree);
  EXPECT_TRUE(facts_.shapes_are_sane);
}

TEST_F(VerifyStructureTest, NeedsABlock) {
  Program empty;
  FindingList findings(10);
  EXPECT_FALSE(verify_structure(empty, limits_, findings).is_tree);
  EXPECT_EQ(findings.take().at(0).status.message(), "program has no block");
}

TEST_F(VerifyStructureTest, IndicesEqualPositions) {
  b_.block().set_stated_index(2);
  EXPECT_THAT(found(), ElementsAre("block-index: block at position 0 states index 2 (expected 0, "
                                   "found 2)"));
  EXPECT_FALSE(facts_.is_tree);
}

TEST_F(VerifyStructureTest, TheRootHasNoParent) {
  b_.block().set_parent(3);
  EXPECT_THAT(found(), ElementsAre("block-parent: root block has parent 3 (expected -1)"));
}

TEST_F(VerifyStructureTest, ParentsComeFirst) {
  b_.enter_block(0);
  b_.enter_block(0);
  for (const int32_t bad : {1, 2, -1, 7}) {
    b_.program().block(1).set_parent(bad);
    EXPECT_THAT(found(), ElementsAre("block-parent: parent of block 1 is " + std::to_string(bad) +
                                     " (expected a block from 0 to 0)"));
    EXPECT_FALSE(facts_.is_tree);
  }
}

TEST_F(VerifyStructureTest, NestingIsBounded) {
  for (int32_t i = 0; i < 256; ++i) b_.enter_block(i);
  EXPECT_THAT(found(), IsEmpty());
  b_.enter_block(256);
  b_.enter_block(257);
  EXPECT_THAT(found(), ElementsAre("block-depth: blocks are nested deeper than 256"));
  EXPECT_FALSE(facts_.is_tree);
}

TEST_F(VerifyStructureTest, ForwardBlocksExist) {
  b_.block().set_forward_block(0);
  b_.enter_block(0);
  for (const int32_t good : {0, 1}) {
    b_.block().set_forward_block(good);
    EXPECT_THAT(found(), IsEmpty()) << "gradient merge of the original writes the block itself";
  }
  for (const int32_t bad : {2, -2}) {
    b_.block().set_forward_block(bad);
    EXPECT_THAT(found(),
                ElementsAre(HasSubstr("forward block of block 1 is " + std::to_string(bad))));
  }
}

TEST_F(VerifyStructureTest, NamesAreDeclaredOnce) {
  b_.var("b", {1});
  b_.block().add_declaration("b", VarSpec::tensor(DType::kInt64, {2}));
  EXPECT_THAT(found(), ElementsAre("var-twice: var 'b' is declared twice"));
}

TEST_F(VerifyStructureTest, DimsAreUnknownOrNotNegative) {
  b_.var("w", {3, -1, 0});
  EXPECT_THAT(found(), IsEmpty());
  b_.var("w", {3, -2});
  EXPECT_THAT(found(),
              ElementsAre("var-dims: var 'w' has dim -2 at position 1 (expected -1 or more)"));
  EXPECT_FALSE(facts_.shapes_are_sane);
}

// The original multiplies an unknown batch by the channels.
TEST_F(VerifyStructureTest, DimsThatARunComputesAreLeftToInference) {
  b_.var("mean", {-8}).var("fed", {-8});
  b_.op("anything", {}, {{"Out", {"mean"}}});
  EXPECT_THAT(found(),
              ElementsAre("var-dims: var 'fed' has dim -8 at position 0 (expected -1 or more)"));
}

TEST_F(VerifyStructureTest, RankIsBounded) {
  b_.var("w", {1, 1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_THAT(found(), IsEmpty());
  b_.var("w", {1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_THAT(found(), ElementsAre("var-rank: var 'w' has 10 dims (at most 9)"));
}

TEST_F(VerifyStructureTest, ProductsFitAndTensorsAreBounded) {
  b_.var("w", {int64_t{1} << 40, int64_t{1} << 40});
  EXPECT_THAT(found(),
              ElementsAre("var-bytes: var 'w' has dims whose product does not fit 64 bits"));
  b_.var("w", {-1, int64_t{1} << 62});  // 2^62 elements of 4 bytes each
  EXPECT_THAT(found(), ElementsAre(HasSubstr("does not fit 64 bits")));
  b_.var("w", {int64_t{1} << 38});
  EXPECT_THAT(found(), IsEmpty());
  b_.var("w", {(int64_t{1} << 38) + 1});
  EXPECT_THAT(found(), ElementsAre("var-bytes: var 'w' takes 1099511627780 bytes, above the limit "
                                   "of 1099511627776 bytes for a tensor"));
  VarSpec table = VarSpec::tensor(DType::kFloat32, {int64_t{1} << 40, 8});
  table.kind = VarKind::kSelectedRows;
  table.form = TensorForm::kSelectedRows;
  b_.block().declare("w", table);
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(VerifyStructureTest, NumbersAreKnown) {
  b_.var("w", {1}, static_cast<DType>(200));
  EXPECT_THAT(found(), ElementsAre("var-dtype: var 'w' has unknown data type 200"));
  b_.var("w", {1}, static_cast<DType>(7));  // a kind of var is no data type
  EXPECT_THAT(found(), ElementsAre(HasSubstr("unknown data type 7")));
  b_.var("w", {1}).holder("h", static_cast<VarKind>(5));
  EXPECT_THAT(found(), ElementsAre("var-kind: var 'h' has unknown kind 5"));
}

TEST_F(VerifyStructureTest, WhatIsKeptHasAShape) {
  b_.block().declare("control", VarSpec::shapeless(VarKind::kLodTensor));
  b_.holder("id", VarKind::kRaw);
  EXPECT_THAT(found(), IsEmpty());
  b_.holder("w", VarKind::kLodTensor);
  EXPECT_THAT(found(), ElementsAre("var-shape: var 'w' is a persistable tensor without data type "
                                   "and dims"));
}

TEST_F(VerifyStructureTest, LodLevelsAreBounded) {
  VarSpec spec = VarSpec::tensor(DType::kFloat32, {1});
  for (const int32_t level : {0, 1, 3}) {
    spec.lod_level = level;
    b_.block().declare("w", spec);
    EXPECT_THAT(found(), IsEmpty());
  }
  for (const int32_t level : {-1, 1000}) {
    spec.lod_level = level;
    b_.block().declare("w", spec);
    EXPECT_THAT(found(), ElementsAre(HasSubstr("has LoD level " + std::to_string(level))));
  }
}

TEST_F(VerifyStructureTest, NamesAreSane) {
  b_.var("\xff any byte \n but NUL \x1b", {1});
  EXPECT_THAT(found(), IsEmpty());
  b_.var(std::string("a\0b", 3), {1});
  EXPECT_THAT(found(), ElementsAre(HasSubstr("contains a NUL byte")));
  b_.op("t", {{"X", {std::string("a\0b", 3)}}}, {});
  EXPECT_THAT(found(), ElementsAre(HasSubstr("name: var name"), HasSubstr("name: argument")));
}

TEST_F(VerifyStructureTest, NamesAreNeitherEmptyNorEndless) {
  b_.var("", {1});
  EXPECT_THAT(found(), ElementsAre("name: var '' has an empty name"));
  b_.block().erase(*b_.block().find_var(""));
  b_.var(std::string(4096, 'a'), {1});
  EXPECT_THAT(found(), IsEmpty());
  b_.op(std::string(4097, 'b'), {}, {});
  EXPECT_THAT(found(), ElementsAre(HasSubstr("is too long (4097 bytes, limit 4096)")));
}

TEST_F(VerifyStructureTest, VersionsAreSane) {
  b_.program().set_version(true, 2006002);
  EXPECT_THAT(found(), IsEmpty());
  b_.program().set_version(true, -5);
  EXPECT_THAT(found(), ElementsAre("version: program version -5 is negative"));
  b_.program().set_version(true, int64_t{1} << 50);
  EXPECT_THAT(found(), ElementsAre(HasSubstr("matches no known release")));
}

TEST(TensorBytes, CountsUnknownDimsAsOne) {
  EXPECT_EQ(tensor_bytes(DType::kFloat32, {-1, 3}), 12);
  EXPECT_EQ(tensor_bytes(DType::kFloat64, {}), 8);
  EXPECT_EQ(tensor_bytes(DType::kInt8, {0, 3}), 0);
  EXPECT_EQ(tensor_bytes(DType::kInt8, {-2}), std::nullopt);
}

}  // namespace
}  // namespace millrace
