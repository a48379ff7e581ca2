// Which parameters are in which table, and the names of the gradients of a table.
#include "transpiler/distribute/table_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/read_program.h"

namespace millrace::transpiler {
namespace {

// The statistics of data_norm have a table of their own; powers of adam's betas belong to the
// update of w, which stays one parameter of the table.
TEST(TablePlan, ListsEachParameterOnce) {
  const auto program = read_program_bytes(R"(# millrace program 1

block 0 {
  param w: f32(20, 10)
  param n.batch_size: f32(10)
  persist m1: f32(20, 10)
  persist m2: f32(20, 10)
  persist p1: f32(1)
  persist p2: f32(1)
  persist lr: f32(1)
  var w@GRAD: f32(20, 10)
  var n.batch_size@GRAD: f32(10)

  adam Param=w Grad=w@GRAD LearningRate=lr Moment1=m1 Moment2=m2 Beta1Pow=p1 Beta2Pow=p2 -> ParamOut=w Moment1Out=m1 Moment2Out=m2 {op_role: 2, op_role_var: ["w", "w@GRAD"]}
  scale X=p1 -> Out=p1 {scale: 0.9, op_role: 2, op_role_var: ["w", "w@GRAD"]}
  scale X=p2 -> Out=p2 {scale: 0.999, op_role: 2, op_role_var: ["w", "w@GRAD"]}
  sgd Param=n.batch_size Grad=n.batch_size@GRAD LearningRate=lr -> ParamOut=n.batch_size {op_role: 2, op_role_var: ["n.batch_size", "n.batch_size@GRAD"]}
}
)",
                                          "test", {});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  const StatusOr<TablePlan> plan = plan_tables(**program);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  ASSERT_EQ(plan->dense.size(), 2U);
  EXPECT_EQ(plan->dense[0].context_name(), "Dense@GRAD_0");
  EXPECT_EQ(plan->dense[0].elements, 200);
  ASSERT_EQ(plan->dense[0].vars.size(), 1U);
  EXPECT_EQ(plan->dense[0].vars[0].param, "w");
  EXPECT_EQ(plan->dense[1].context_name(), "DataNorm@GRAD_1");
  EXPECT_EQ(plan->dense[1].elements, 10);
  EXPECT_EQ(plan->barrier_id, 2);
}

}  // namespace
}  // namespace millrace::transpiler
