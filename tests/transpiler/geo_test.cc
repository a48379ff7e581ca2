// Geo mode: the programs of trainers and servers, op by op.

#include "transpiler/distribute/geo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transpiler/small_net.h"

namespace millrace::transpiler {
namespace {

using ::testing::ElementsAre;

class GeoTest : public ::testing::Test {
 protected:
  GeoTest() {
    arguments_.pservers = "h:1,h:2";
    arguments_.trainers = "3";
    arguments_.current_endpoint = "h:1";
  }
  StatusOr<GeoPrograms> transpile() {
    const SmallNet net = small_net(options_);
    return transpile_geo(*net.main, *net.startup, config_, arguments_, *registry_);
  }
  GeoPrograms must_transpile() {
    StatusOr<GeoPrograms> result = transpile();
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return std::move(*result);
  }
  std::string refusal() { return transpile().status().message(); }

  SmallNetOptions options_{.rows = 10000, .columns = 2, .is_sparse = true};
  DistributeTranspilerConfig config_;
  TranspileArguments arguments_;
  std::unique_ptr<ops::OpRegistry> registry_ = ops::standard_registry();
};

TEST_F(GeoTest, TheTrainerKeepsItsOptimizerAndHandsOverTheIds) {
  const GeoPrograms out = must_transpile();
  const Block& block = out.trainer.main->root();
  EXPECT_EQ(block.op_count(), small_net(options_).main->root().op_count() + 1);
  EXPECT_EQ(op_lines(block, {"send_varnames"}).back(),
            "send(X=x) -> Out=__control_var@0 #0 send_varnames=[w]");
  EXPECT_EQ(op_line(*block.first_writer("h"), {"remote_prefetch"}),
            "lookup_table(Ids=x W=w) -> Out=h #0 remote_prefetch=0");
  EXPECT_EQ(block.find_var("w.delta")->kind(), VarKind::kSelectedRows);
  EXPECT_EQ(block.find_var("w.block1.delta")->kind(), VarKind::kSelectedRows);
  EXPECT_EQ(block.find_var("b.delta")->kind(), VarKind::kLodTensor);
  EXPECT_THAT(block.find_var("w.block1")->dims(), ElementsAre(5000, 2));
}

TEST_F(GeoTest, RowsThatNoIdsNameAreThoseOfTheGradient) {
  const auto last_line = [&](const SmallNet& net) {
    auto result = transpile_geo(*net.main, *net.startup, config_, arguments_, *registry_);
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return op_lines(result->trainer.main->root(), {"send_varnames"}).back();
  };
  // nce draws rows itself
  const SmallNet drawn = small_net(options_);
  Block& root = drawn.main->root();
  root.insert_before(&root.front(), "nce").set_input("Weight", "w").set_output("Cost", "cost");
  root.declare("cost", VarSpec::tensor(DType::kFloat32, {-1, 1}));
  EXPECT_EQ(last_line(drawn), "send(X=x,w@GRAD) -> Out=__control_var@0 #0 send_varnames=[w,w]");
  // at the end of the step the ids are other ones
  const SmallNet changed = small_net(options_);
  changed.main->root().append_op("increment").set_input("X", "x").set_output("Out", "x");
  EXPECT_EQ(last_line(changed), "send(X=x,w@GRAD) -> Out=__control_var@0 #0 send_varnames=[w,w]");
}

TEST_F(GeoTest, StartupFetchesDenseParametersAndReportsThem) {
  const std::vector<std::string> lines =
      op_lines(must_transpile().trainer.startup->root(), {"epmap", "endpoints", "send_varnames"});
  ASSERT_EQ(lines.size(), 5u);  // after the two initializers
  EXPECT_EQ(lines[2], "recv() -> Out=b #4 epmap=[h:1]");
  EXPECT_EQ(lines[3], "fetch_barrier() -> Out=__control_var@0 #4 endpoints=[h:1,h:2]");
  EXPECT_EQ(lines[4], "send(X=param_init) -> Out=__control_var@1 #0 send_varnames=[param_init]");
}

TEST_F(GeoTest, CutParametersAreJoinedAtStartup) {
  options_.is_sparse = false;
  const std::vector<std::string> lines =
      op_lines(must_transpile().trainer.startup->root(), {"epmap", "axis"});
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines[2], "recv() -> Out=w.block0,w.block1 #4 epmap=[h:1,h:2]");
  EXPECT_EQ(lines[5], "concat(X=w.block0,w.block1) -> Out=w #0 axis=0");
}

TEST_F(GeoTest, ServersAddWhatChanged) {
  const GeoPrograms out = must_transpile();
  ASSERT_EQ(out.pservers.size(), 2u);
  const Program& first = *out.pservers[0].main;
  EXPECT_THAT(op_lines(first.root(), {"optimize_blocks", "endpoint", "Fanin", "distributed_mode",
                                      "grad_to_block_id", "sparse_grad_to_param"}),
              ElementsAre("listen_and_serv() #0 optimize_blocks=[1,2] endpoint=h:1 Fanin=3 "
                          "distributed_mode=3 grad_to_block_id=[w.block0.delta:1,b.delta:2] "
                          "sparse_grad_to_param=[w.block0.delta:w.block0]"));
  EXPECT_THAT(op_lines(first.block(1)),
              ElementsAre("sum(X=w.block0,w.block0.delta) -> Out=w.block0 #0"));
  EXPECT_THAT(op_lines(first.block(2)), ElementsAre("sum(X=b,b.delta) -> Out=b #0"));
  EXPECT_EQ(first.block(1).parent(), 0);
  EXPECT_THAT(op_lines(out.pservers[1].startup->root(), {"shape"}),
              ElementsAre("fill_constant() -> Out=w.block1 #0 shape=[5000,2]"));
}

TEST_F(GeoTest, TheCommunicatorLearnsWhereSlicesAre) {
  const GeoPrograms out = must_transpile();
  ASSERT_TRUE(out.properties.geo.has_value());
  EXPECT_EQ(out.properties.geo->trainers, 3);
  EXPECT_EQ(out.properties.geo->push_nums, 100);
  const std::vector<GeoVar>& vars = out.properties.geo->vars;
  ASSERT_EQ(vars.size(), 2u);
  EXPECT_EQ(vars[0].origin, "w");
  EXPECT_THAT(vars[0].var_names, ElementsAre("w.block0", "w.block1"));
  EXPECT_THAT(vars[0].sections, ElementsAre(5000, 5000));
  EXPECT_THAT(vars[0].epmap, ElementsAre("h:1", "h:2"));
  EXPECT_TRUE(vars[0].is_sparse);
  EXPECT_FALSE(vars[1].is_sparse);
  EXPECT_THAT(vars[1].sections, ElementsAre(2));
  EXPECT_EQ(out.overview.vars().size(), 3u);
  EXPECT_TRUE(out.properties.is_distributed);
  EXPECT_TRUE(out.properties.is_chief);
}

TEST_F(GeoTest, BadArgumentsAreRefused) {
  arguments_.trainers = "h:1,h:2";
  EXPECT_EQ(refusal(), "trainers must be a positive number with servers (found \"h:1,h:2\")");
  arguments_.trainers = "0";
  EXPECT_EQ(refusal(), "trainers must be a positive number with servers (found \"0\")");
  arguments_.trainers = "65537";
  EXPECT_EQ(refusal(), "trainers must be at most 65536 (found 65537)");
  arguments_.trainers = "3";
  arguments_.trainer_id = 3;
  EXPECT_EQ(refusal(), "trainer_id must be in 0..2 (found 3)");
  arguments_.trainer_id = 0;
  config_.min_block_size = 100;
  EXPECT_EQ(refusal(), "min_block_size must be at least 8192 elements (found 100)");
}

TEST_F(GeoTest, BrokenRoleVarsAreReportedWithTheirPlace) {
  const SmallNet net = small_net(options_);
  Op& sgd = *net.main->root().first_writer("w");
  auto result = [&] {
    return transpile_geo(*net.main, *net.startup, config_, arguments_, *registry_).status();
  };
  sgd.set_strings("op_role_var", {"w"});
  EXPECT_EQ(result().message(), "op_role_var has 1 name, expected a parameter and its gradient");
  EXPECT_EQ(result().location().op_type, "sgd");
  EXPECT_THAT(result().notes(), ElementsAre("in pass 'geo-collect'"));
  sgd.set_strings("op_role_var", {"w", "gone"});
  EXPECT_EQ(result().message(), "op_role_var names \"gone\", which block 0 does not declare");
}

TEST_F(GeoTest, AProgramWithoutUpdatesIsRefused) {
  const SmallNet net = small_net(options_);
  Block& block = net.main->root();
  for (Op& op : llvm::make_early_inc_range(block.ops()))
    if (op.type() == "sgd") block.erase(op);
  const StatusOr<GeoPrograms> result =
      transpile_geo(*net.main, *net.startup, config_, arguments_, *registry_);
  EXPECT_EQ(result.status().message(),
            "the program updates no parameter, so trainers have nothing to exchange");
}

TEST_F(GeoTest, PushesNeedAPeriod) {
  config_.geo_sgd_need_push_nums = 0;
  EXPECT_EQ(refusal(), "geo_sgd_need_push_nums must be at least 1 (found 0)");
}

}  // namespace
}  // namespace millrace::transpiler
