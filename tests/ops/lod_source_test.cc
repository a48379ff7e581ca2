#include "ops/lod_source.h"

#include <gtest/gtest.h>

#include "framework/text_form/parse.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

// The source of the LoD of `out` in the last op of a program with tensors x, y, w, ids.
std::optional<std::string> source(const std::string& op, const std::string& out = "out") {
  auto program = parse_program(
      "# millrace program 1\n\nblock 0 {\n"
      "  var x: f32(-1, 4) lod=1\n  var y: f32(-1, 4)\n  param w: f32(4, 4)\n"
      "  var ids: i64(-1, 1)\n  var out: f32(-1, 4)\n  var shape: f32(0, -1, 4)\n  " +
          op + "\n}\n",
      "test");
  if (!program.ok()) {
    ADD_FAILURE() << program.status().message();
    return std::nullopt;
  }
  static const std::unique_ptr<OpRegistry> kRegistry = standard_registry();
  const auto found = lod_source(*kRegistry, (*program)->root().back(), out);
  return found ? std::optional(found->str()) : std::nullopt;
}

TEST(LodSource, IsTheFirstOperandOfASum) {
  EXPECT_EQ(source("elementwise_add X=x Y=y -> Out=out"), "x");
  EXPECT_EQ(source("elementwise_add X=y Y=x -> Out=out"), "y");
}

TEST(LodSource, IsThatOfTheForwardInputForAGradient) {
  EXPECT_EQ(source("relu_grad Out=x Out@GRAD=y -> X@GRAD=out"), "x");
}

TEST(LodSource, IsEmptyForOpsThatDropIt) {
  EXPECT_EQ(source("mul X=x Y=w -> Out=out"), "x");
  EXPECT_EQ(source("matmul_v2 X=x Y=w -> Out=out"), "");
  EXPECT_EQ(source("abs X=x -> Out=out"), "");
  EXPECT_EQ(source("transpose2 X=x -> Out=out XShape=shape {axis: [0, 1]}"), "");
}

TEST(LodSource, OfAnOpInPlaceIsItsInput) {
  EXPECT_EQ(source("relu X=x -> Out=x", "x"), "x");
}

TEST(LodSource, IsUnknownWhereInferenceFailsOrTheOpIsUnknown) {
  EXPECT_EQ(source("elementwise_add X=x Y=ids -> Out=out {axis: 7}"), std::nullopt);
  EXPECT_EQ(source("nobody_knows_it X=x -> Out=out"), std::nullopt);
  EXPECT_EQ(source("relu X=x -> Out=out", "not_a_var"), std::nullopt);
}

}  // namespace
}  // namespace millrace::ops
