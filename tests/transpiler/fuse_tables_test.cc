// Lookups of an embedding become one op, also if ids have to be computed first.

#include "transpiler/fleet/fuse_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/read_program.h"

namespace millrace::transpiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kFuseTablesVars = R"(# millrace program 1

block 0 {
  persist emb: f32(100, 4)
  persist rate: f32(1)
  var ids: i64(-1, 1)
  var more: i64(-1, 1)
  var half: i64(-1, 1)
  var a: f32(-1, 4)
  var b: f32(-1, 4)
  var y: f32(-1, 4)
  var emb@GRAD: selected_rows f32(100, 4)
)";
constexpr const char* kUpdate =
    "  sgd Param=emb Grad=emb@GRAD LearningRate=rate -> ParamOut=emb {op_role: 2, op_role_var: "
    "[\"emb\", \"emb@GRAD\"]}\n}\n";

std::unique_ptr<Program> read_fuse_tables(const std::string& ops) {
  auto program = read_program_bytes(kFuseTablesVars + ops + kUpdate, "test", {});
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return *std::move(program);
}

std::string lookup(const std::string& ids, const std::string& out, int padding = -1) {
  return "  lookup_table_v2 Ids=" + ids + " W=emb -> Out=" + out +
         " {padding_idx: " + std::to_string(padding) +
         "l, remote_prefetch: true, is_sparse: true}\n";
}

std::vector<std::string> types(const Program& program) {
  std::vector<std::string> out;
  for (const Op& op : program.root().ops()) out.push_back(op.type().str());
  return out;
}

struct Fused {
  Status status;
  std::vector<std::string> remarks;
};

Fused fuse(Program& program) {
  const auto plan = plan_tables(program);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  Fused out;
  out.status = fuse_tables(program, *plan, out.remarks);
  return out;
}

TEST(FuseTables, OneLookupWhereTheFirstStood) {
  const auto program = read_fuse_tables("  relu X=y -> Out=y\n" + lookup("ids", "a") +
                                        "  relu X=a -> Out=a\n" + lookup("more", "b"));
  EXPECT_TRUE(fuse(*program).status.ok());
  EXPECT_THAT(types(*program), ElementsAre("relu", "distributed_lookup_table", "relu", "sgd"));
  EXPECT_THAT(program->root().op_vector()[1]->input("Ids"), ElementsAre("ids", "more"));
}

TEST(FuseTables, LookupsOfOtherPaddingAreRefused) {
  const auto program = read_fuse_tables(lookup("ids", "a", 3) + lookup("more", "b"));
  EXPECT_THAT(fuse(*program).status.to_string(),
              HasSubstr("the lookups of table 'emb' have padding_idx 3 and -1"));
}

TEST(FuseTables, IdsThatAreComputedLaterMoveForward) {
  const auto program = read_fuse_tables(lookup("ids", "a") + "  relu X=a -> Out=y\n" +
                                        "  cast X=ids -> Out=half {in_dtype: 3, out_dtype: 3}\n" +
                                        "  cast X=half -> Out=more {in_dtype: 3, out_dtype: 3}\n" +
                                        lookup("more", "b"));
  const Fused fused = fuse(*program);
  EXPECT_TRUE(fused.status.ok());
  EXPECT_THAT(fused.remarks, IsEmpty());
  EXPECT_THAT(types(*program),
              ElementsAre("cast", "cast", "distributed_lookup_table", "relu", "sgd"));
}

TEST(FuseTables, IdsThatDependOnRowsKeepLookupsApart) {
  const auto program = read_fuse_tables(
      lookup("ids", "a") + "  arg_max X=a -> Out=more {axis: -1l, keepdims: true, dtype: 3}\n" +
      lookup("more", "b"));
  const Fused fused = fuse(*program);
  EXPECT_TRUE(fused.status.ok());
  EXPECT_THAT(types(*program), ElementsAre("distributed_lookup_table", "arg_max",
                                           "distributed_lookup_table", "sgd"));
  EXPECT_THAT(fused.remarks, ElementsAre(HasSubstr("the lookups of 'emb' stay separate")));
}

TEST(FuseTables, CountsOfAnotherTypeAreRefused) {
  const auto program = read_fuse_tables(
      "  var show: i64(-1, 1)\n  var a@GRAD: f32(-1, 4)\n" + lookup("ids", "a") +
      "  lookup_table_v2_grad Ids=ids W=emb Out@GRAD=a@GRAD -> W@GRAD=emb@GRAD {is_sparse: "
      "true}\n");
  EXPECT_THAT(fuse(*program).status.message(),
              HasSubstr("the counts of the sparse tables need a float32 var 'show'"));
}

TEST(PlanTables, AnEmbeddingWithoutAnOptimizerIsAnError) {
  auto program = read_program_bytes(kFuseTablesVars + lookup("ids", "a") + "}\n", "test", {});
  ASSERT_TRUE(program.ok());
  EXPECT_THAT(fuse(**program).status.message(),
              HasSubstr("'emb' is looked up on the servers, but no optimizer updates it"));
}

}  // namespace
}  // namespace millrace::transpiler
