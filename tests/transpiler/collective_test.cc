// The programs that collective mode must generate, op by op, and every refusal with its message.

#include "transpiler/distribute/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/export.h"
#include "framework/names.h"
#include "tests/transpiler/small_net.h"

namespace millrace::transpiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CollectiveTest : public ::testing::Test {
 protected:
  CollectiveTest() {
    arguments_.trainers = "h1:1,h1:2,h2:1,h2:2";
    arguments_.current_endpoint = "h1:1";
    arguments_.parameter_order = {"w", "b"};
    config_.mode = "collective";
    config_.collective_mode = "grad_allreduce";
  }

  StatusOr<RolePrograms> transpile(const SmallNetOptions& options = {}) {
    const SmallNet net = small_net(options);
    return transpile_collective(*net.main, *net.startup, config_, arguments_, *registry_,
                                &properties_);
  }
  RolePrograms must_transpile(const SmallNetOptions& options = {}) {
    StatusOr<RolePrograms> result = transpile(options);
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return std::move(*result);
  }
  /// Lines of the ops that the transpiler added to one of the programs.
  static std::vector<std::string> added(const Program& program) {
    std::vector<std::string> out;
    for (const Op& op : program.root().ops()) {
      if (op.has_attr("op_namescope")) {
        out.push_back(op_line(op, {"ring_id", "scale", "root", "nranks", "rank", "endpoint"}));
      }
    }
    return out;
  }
  std::string refusal() { return transpile().status().message(); }

  DistributeTranspilerConfig config_;
  TranspileArguments arguments_;
  ProgramProperties properties_;
  std::unique_ptr<ops::OpRegistry> registry_ = ops::standard_registry();
};

TEST_F(CollectiveTest, GradAllreduceRewritesMainOpByOp) {
  config_.nccl_comm_num = 2;
  const RolePrograms out = must_transpile();
  EXPECT_THAT(
      op_lines(out.main->root(), {"ring_id", "scale"}),
      ElementsAre("mul(X=x Y=w) -> Out=h #0", "elementwise_add(X=h Y=b) -> Out=y #0",
                  "mean(X=y) -> Out=loss #256", "fill_constant() -> Out=loss@GRAD #257",
                  "scale(X=loss@GRAD) -> Out=loss@GRAD #1 scale=0.250000",
                  "elementwise_add_grad(Out@GRAD=loss@GRAD) -> X@GRAD=h@GRAD Y@GRAD=b@GRAD #1",
                  "c_sync_calc_stream(X=b@GRAD) -> Out=b@GRAD #1",
                  "c_allreduce_sum(X=b@GRAD) -> Out=b@GRAD #1 ring_id=1",
                  "mul_grad(Out@GRAD=h@GRAD) -> Y@GRAD=w@GRAD #1",
                  "c_sync_calc_stream(X=w@GRAD) -> Out=w@GRAD #1",
                  "c_allreduce_sum(X=w@GRAD) -> Out=w@GRAD #1 ring_id=0",
                  "c_sync_comm_stream(X=b@GRAD) -> Out=b@GRAD #1 ring_id=0",
                  "c_sync_comm_stream(X=b@GRAD) -> Out=b@GRAD #1 ring_id=1",
                  "sgd(Param=w Grad=w@GRAD LearningRate=lr) -> ParamOut=w #2",
                  "sgd(Param=b Grad=b@GRAD LearningRate=lr) -> ParamOut=b #2"));
}

TEST_F(CollectiveTest, StartupBroadcastsInOrderOfCreation) {
  config_.nccl_comm_num = 2;
  EXPECT_THAT(added(*must_transpile().startup),
              ElementsAre("c_broadcast(X=w) -> Out=w #0 ring_id=0 root=0",
                          "c_broadcast(X=b) -> Out=b #0 ring_id=1 root=0",
                          "c_sync_comm_stream(X=b) -> Out=b #0 ring_id=0",
                          "c_sync_comm_stream(X=b) -> Out=b #0 ring_id=1"));
  arguments_.parameter_order.clear();  // the declarations name b first
  EXPECT_EQ(added(*must_transpile().startup).front(),
            "c_broadcast(X=b) -> Out=b #0 ring_id=0 root=0");
}

TEST_F(CollectiveTest, CommunicatorsAreSetUpOnlyWhereThereAreDevices) {
  arguments_.device_count = 1;
  arguments_.trainer_id = 2;
  arguments_.current_endpoint = "h2:1";
  const RolePrograms out = must_transpile();
  const std::vector<std::string> lines = added(*out.startup);
  ASSERT_GE(lines.size(), 2u);
  EXPECT_EQ(lines[0], "c_gen_nccl_id() -> Out=nccl_id_0 #0 rank=2 endpoint=h2:1");
  EXPECT_EQ(lines[1], "c_comm_init(X=nccl_id_0) #0 ring_id=0 nranks=4 rank=2");
  for (const Op& op : out.startup->root().ops()) {
    if (op.type() != "c_gen_nccl_id") continue;
    EXPECT_THAT(op.find_attr("other_endpoints")->strings(), ElementsAre("h1:1", "h1:2", "h2:2"));
  }
  const Var* const id = out.startup->root().find_var(names::comm_id(0));
  ASSERT_NE(id, nullptr);
  EXPECT_EQ(id->kind(), VarKind::kRaw);
  EXPECT_TRUE(id->persistable());
}

TEST_F(CollectiveTest, AnOpWithTwoGradientsWaitsOnceAndReducesTheLaterPairFirst) {
  EXPECT_THAT(added(*must_transpile({.two_pairs = true}).main),
              ElementsAre("scale(X=loss@GRAD) -> Out=loss@GRAD #1 scale=0.250000",
                          "c_sync_calc_stream(X=w@GRAD) -> Out=w@GRAD #1",
                          "c_allreduce_sum(X=b@GRAD) -> Out=b@GRAD #1 ring_id=0",
                          "c_allreduce_sum(X=w@GRAD) -> Out=w@GRAD #1 ring_id=0",
                          "c_sync_comm_stream(X=b@GRAD) -> Out=b@GRAD #1 ring_id=0"));
}

TEST_F(CollectiveTest, DistributedTablesAreNeitherBroadcastNorReduced) {
  const RolePrograms out = must_transpile({.is_distributed = true, .is_sparse = true});
  EXPECT_THAT(added(*out.main),
              ElementsAre("scale(X=loss@GRAD) -> Out=loss@GRAD #1 scale=0.250000",
                          "c_sync_calc_stream(X=b@GRAD) -> Out=b@GRAD #1",
                          "c_allreduce_sum(X=b@GRAD) -> Out=b@GRAD #1 ring_id=0",
                          "c_sync_comm_stream(X=b@GRAD) -> Out=b@GRAD #1 ring_id=0"));
  EXPECT_THAT(added(*out.startup), ElementsAre("c_broadcast(X=b) -> Out=b #0 ring_id=0 root=0",
                                               "c_sync_comm_stream(X=b) -> Out=b #0 ring_id=0"));
}

TEST_F(CollectiveTest, LocalSgdAveragesWhatEachStepChanged) {
  config_.collective_mode = "local_sgd";
  const RolePrograms out = must_transpile();
  EXPECT_THAT(
      added(*out.main),
      ElementsAre(
          "elementwise_sub(X=w@SNAPSHOT Y=w) -> Out=w #2", "c_sync_calc_stream(X=w) -> Out=w #2",
          "c_allreduce_sum(X=w) -> Out=w #2 ring_id=0",
          "elementwise_sub(X=b@SNAPSHOT Y=b) -> Out=b #2", "c_sync_calc_stream(X=b) -> Out=b #2",
          "c_allreduce_sum(X=b) -> Out=b #2 ring_id=0",
          "c_sync_comm_stream(X=w) -> Out=w #2 ring_id=0", "scale(X=w) -> Out=w #2 scale=0.250000",
          "elementwise_sub(X=w@SNAPSHOT Y=w) -> Out=w #2", "assign(X=w) -> Out=w@SNAPSHOT #2",
          "scale(X=b) -> Out=b #2 scale=0.250000", "elementwise_sub(X=b@SNAPSHOT Y=b) -> Out=b #2",
          "assign(X=b) -> Out=b@SNAPSHOT #2"));
  EXPECT_THAT(added(*out.startup),
              ElementsAre("c_broadcast(X=w) -> Out=w #0 ring_id=0 root=0",
                          "c_broadcast(X=b) -> Out=b #0 ring_id=0 root=0",
                          "c_sync_comm_stream(X=b) -> Out=b #0 ring_id=0",
                          "assign(X=w) -> Out=w@SNAPSHOT #0", "assign(X=b) -> Out=b@SNAPSHOT #0"));
  for (const Program* program : {out.main.get(), out.startup.get()}) {
    const Var* const snapshot = program->root().find_var("w@SNAPSHOT");
    ASSERT_NE(snapshot, nullptr);
    EXPECT_TRUE(snapshot->persistable());
    EXPECT_THAT(snapshot->dims(), ElementsAre(4, 2));
  }
}

TEST_F(CollectiveTest, TheGivenProgramsStayAsTheyAre) {
  const SmallNet net = small_net();
  const std::string main = export_program(*net.main);
  const std::string startup = export_program(*net.startup);
  ASSERT_TRUE(
      transpile_collective(*net.main, *net.startup, config_, arguments_, *registry_, nullptr).ok());
  EXPECT_EQ(export_program(*net.main), main);
  EXPECT_EQ(export_program(*net.startup), startup);
}

TEST_F(CollectiveTest, BadArgumentsAreRefused) {
  config_.collective_mode = "bmuf";
  EXPECT_EQ(refusal(),
            "collective_mode \"bmuf\" is unknown, expected grad_allreduce, local_sgd or "
            "single_process_multi_thread");
  config_.collective_mode = "grad_allreduce";
  arguments_.trainer_id = -1;
  EXPECT_EQ(refusal(), "trainer_id is -1, expected 0 or more");
  arguments_.trainer_id = 0;
  config_.nccl_comm_num = 0;
  EXPECT_EQ(refusal(), "nccl_comm_num is 0, expected 1 or more");
  config_.nccl_comm_num = 1;
  config_.fuse_allreduce = 3;
  EXPECT_EQ(refusal(), "fuse_allreduce is 3, expected 0, 1 or 2");
  config_.fuse_allreduce = 1;
  arguments_.current_endpoint = "h9:1";
  EXPECT_EQ(refusal(), "current_endpoint \"h9:1\" is not one of the 4 trainers");
  arguments_.current_endpoint = "h1:2";
  EXPECT_EQ(refusal(), "current_endpoint \"h1:2\" is that of trainer 1, but trainer_id is 0");
  arguments_.trainers = "h1:1";
  EXPECT_EQ(refusal(),
            "collective_mode grad_allreduce needs at least 2 endpoints in 'trainers', found 1");
  arguments_.trainers = "h1:1,,h2:1";
  EXPECT_EQ(refusal(), "trainers has '' (expected host:port with a port up to 65535)");
  arguments_.trainers = "h1:1;h1:2";  // not one trainer at port 2
  EXPECT_EQ(refusal(), "trainers has 'h1:1;h1:2' (expected host:port with a port up to 65535)");
  arguments_.trainers = "h1:1,h1:1";
  EXPECT_EQ(refusal(), "trainers names 'h1:1' twice");
  arguments_.trainers = "h1:1,h2:1";
  arguments_.current_endpoint = "h1:1";
  arguments_.parameter_order = {"w", "v"};
  EXPECT_EQ(refusal(), "parameter_order: the program declares no var 'v' in block 0");
}

TEST_F(CollectiveTest, BrokenRoleVarsAreReportedWithTheirPlace) {
  SmallNet net = small_net();
  Op& grad = *net.main->root().first_writer("w@GRAD");
  grad.set_strings("op_role_var", {"w"});
  auto result = [&] {
    return transpile_collective(*net.main, *net.startup, config_, arguments_, *registry_, nullptr)
        .status();
  };
  EXPECT_EQ(result().message(),
            "op_role_var has 1 names, expected pairs of parameter and gradient");
  EXPECT_EQ(result().location().op, 5);
  EXPECT_EQ(result().code(), StatusCode::kInvalidProgram);
  grad.set_strings("op_role_var", {"w", "gone"});
  EXPECT_EQ(result().message(), "op_role_var names \"gone\", which the block does not declare");

  net = small_net();
  net.main->root().erase(*net.main->root().find_var("w"));
  config_.collective_mode = "local_sgd";
  net.main->root().first_writer("w@GRAD")->remove_attr("op_role_var");
  EXPECT_EQ(result().message(), "the op updates \"w\", which the block does not declare");
  EXPECT_THAT(result().notes(), ElementsAre("in pass 'collective-average-updates'"));
}

TEST_F(CollectiveTest, AnUpdateWhoseGradientIsNotStatedIsRefused) {
  for (const char* const mode : {"grad_allreduce", "single_process_multi_thread"}) {
    config_.collective_mode = mode;
    const auto refused = [&](const std::vector<std::string>& unstated) {
      SmallNet net = small_net();
      for (const std::string& grad : unstated)
        net.main->root().first_writer(grad)->remove_attr("op_role_var");
      return transpile_collective(*net.main, *net.startup, config_, arguments_, *registry_, nullptr)
          .status();
    };
    EXPECT_TRUE(refused({}).ok()) << mode;
    // One of the two is enough: otherwise ranks would diverge.
    EXPECT_EQ(refused({"b@GRAD"}).message(),
              "the op updates \"b\", but no backward op lists its gradient in op_role_var, so "
              "it would not be reduced");
    const Status neither = refused({"w@GRAD", "b@GRAD"});
    EXPECT_THAT(neither.message(), HasSubstr("the op updates \"w\""));
    EXPECT_EQ(neither.code(), StatusCode::kInvalidProgram);
    EXPECT_EQ(neither.location().op, 6);
  }
}

}  // namespace
}  // namespace millrace::transpiler
