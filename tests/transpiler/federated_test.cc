// Federated mode: three programs per trainer, one server that averages.

#include "transpiler/distribute/federated.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transpiler/small_net.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FederatedTest : public ::testing::Test {
 protected:
  FederatedTest() {
    arguments_.pservers = "h:1";
    arguments_.trainers = "2";
    arguments_.trainer_id = 1;
  }
  StatusOr<FederatedPrograms> transpile() {
    return transpile_federated(*net_.main, *net_.startup, config_, arguments_, *registry_);
  }
  FederatedPrograms must_transpile() {
    StatusOr<FederatedPrograms> result = transpile();
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return std::move(*result);
  }

  SmallNet net_ = small_net();
  DistributeTranspilerConfig config_;
  TranspileArguments arguments_;
  std::unique_ptr<ops::OpRegistry> registry_ = ops::standard_registry();
};

TEST_F(FederatedTest, ATrainerReceivesComputesAndSends) {
  const FederatedPrograms out = must_transpile();
  EXPECT_THAT(op_lines(out.recv->root(), {"epmap", "sync_mode", "op_role_var", "trainer_id"}),
              ElementsAre("recv() -> Out=w #4 epmap=[h:1] sync_mode=0 "
                          "op_role_var=[w,w.opti.trainer_1] trainer_id=1",
                          "recv() -> Out=b #4 epmap=[h:1] sync_mode=0 "
                          "op_role_var=[b,b.opti.trainer_1] trainer_id=1",
                          "fetch_barrier() -> Out=w,b #4 trainer_id=1"));
  std::vector<std::string> compute = op_lines(net_.main->root());
  compute.push_back("scale(X=w) -> Out=w.opti.trainer_1 #0");
  compute.push_back("scale(X=b) -> Out=b.opti.trainer_1 #0");
  EXPECT_EQ(op_lines(out.compute->root()), compute);
  EXPECT_THAT(
      op_lines(out.send->root(), {"epmap", "sync_mode", "op_role_var", "endpoints", "trainer_id"}),
      ElementsAre("send(X=w.opti.trainer_1) -> Out=__control_var@0 #4 epmap=[h:1] sync_mode=0 "
                  "op_role_var=[w,w.opti.trainer_1]",
                  "send(X=b.opti.trainer_1) -> Out=__control_var@1 #4 epmap=[h:1] sync_mode=0 "
                  "op_role_var=[b,b.opti.trainer_1]",
                  "send_barrier(X=__control_var@0,__control_var@1) -> Out=__control_var@2 #4 "
                  "sync_mode=1 endpoints=[h:1] trainer_id=1"));
  EXPECT_EQ(out.recv->root().find_var("__control_var@0"), nullptr);
  EXPECT_TRUE(out.send->root().find_var("w.opti.trainer_1")->persistable());
  EXPECT_EQ(op_lines(out.startup->root()), op_lines(net_.startup->root()));
}

TEST_F(FederatedTest, TheServerAverages) {
  const FederatedPrograms out = must_transpile();
  const Program& server = *out.pservers[0].main;
  EXPECT_THAT(op_lines(server.root(), {"optimize_blocks", "endpoint", "Fanin", "sync_mode"}),
              ElementsAre("fl_listen_and_serv(X=w.opti.trainer_0,w.opti.trainer_1,"
                          "b.opti.trainer_0,b.opti.trainer_1) #0 optimize_blocks=[1,2] "
                          "endpoint=h:1 Fanin=2 sync_mode=1"));
  EXPECT_THAT(op_lines(server.block(1), {"scale"}),
              ElementsAre("sum(X=w.opti.trainer_0,w.opti.trainer_1) -> Out=w #0",
                          "scale(X=w) -> Out=w #0 scale=0.500000"));
  EXPECT_EQ(server.block(2).parent(), 0);
  EXPECT_THAT(op_lines(out.pservers[0].startup->root()),
              ElementsAre("fill_constant() -> Out=w #0", "fill_constant() -> Out=b #0"));
}

TEST_F(FederatedTest, WithoutAverageParametersAreReceivedAsTheyAre) {
  for (const bool sync : {false, true}) {
    arguments_.sync_mode = sync;
    arguments_.trainers = sync ? "1" : "2";
    arguments_.trainer_id = 0;
    const FederatedPrograms out = must_transpile();
    const Program& server = *out.pservers[0].main;
    EXPECT_THAT(server.root().front().input("X"), ElementsAre("w", "b"));
    EXPECT_THAT(op_lines(server.block(1)), IsEmpty());
    EXPECT_EQ(op_lines(out.recv->root()).size(), sync ? 3u : 2u);
    EXPECT_EQ(op_lines(out.send->root()).size(), sync ? 3u : 2u);
  }
}

TEST_F(FederatedTest, LearningRateOpsRunInABlockOfTheServer) {
  Op& op = net_.main->root().insert_before(&net_.main->root().front(), "increment");
  op.set_input("X", "lr").set_output("Out", "lr").set_int("op_role", role::kLrSched);
  const FederatedPrograms out = must_transpile();
  const Program& server = *out.pservers[0].main;
  EXPECT_THAT(op_lines(server.block(1)), ElementsAre("increment(X=lr) -> Out=lr #16"));
  EXPECT_THAT(server.root().front().find_attr("optimize_blocks")->ints(), ElementsAre(1, 2, 3));
  EXPECT_NE(server.root().find_var("lr"), nullptr);
}

TEST_F(FederatedTest, WhatSgdDoesNotUpdateStaysLocal) {
  net_.main->root().last_writer("b")->set_type("momentum");
  const FederatedPrograms out = must_transpile();
  EXPECT_THAT(out.remarks, ElementsAre("b stays local: federated training sends only parameters "
                                       "that sgd updates, not momentum"));
  EXPECT_EQ(out.recv->root().front().first_output("Out"), "w");
  EXPECT_EQ(out.recv->root().op_count(), 2u);
}

TEST_F(FederatedTest, WhatCannotWorkIsRefused) {
  arguments_.pservers = "h:1,h:2";
  EXPECT_EQ(transpile().status().message(),
            "federated training works with one server, 'pservers' lists 2: every server would have "
            "to hold every parameter");
  EXPECT_EQ(transpile().status().code(), StatusCode::kInvalidArgument);
  arguments_.pservers = "h:1";
  net_.main->root().erase(*net_.main->root().find_var("w"));
  EXPECT_EQ(transpile().status().message(), "the op updates \"w\", which block 0 does not declare");
}

}  // namespace
}  // namespace millrace::transpiler
