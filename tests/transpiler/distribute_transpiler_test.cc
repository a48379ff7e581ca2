// The C++ API of the transpiler, on a small net: the programs of each role, errors, and
// independence of the order of calls.
#include "transpiler/distribute_transpiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/program_file.h"
#include "ops/registry.h"
#include "tests/transpiler/small_net.h"
#include "transpiler/distribute/transpilation.h"
#include "transpiler/distribute/wait_ports.h"

namespace millrace::transpiler {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kServers = "127.0.0.1:6174,127.0.0.1:6175";

TranspileArguments two_by_two() {
  TranspileArguments arguments;
  arguments.pservers = kServers;
  arguments.trainers = "2";
  return arguments;
}

DistributeTranspilerConfig no_waiting() {
  DistributeTranspilerConfig config;
  config.wait_port = false;
  return config;
}

std::string message(const DistributeTranspilerConfig& config, const TranspileArguments& arguments) {
  const SmallNet net = small_net({.rows = 200, .columns = 100});
  DistributeTranspiler t(config);
  return t.transpile(*net.main, *net.startup, arguments).message();
}

TEST(DistributeTranspiler, TrainerSendsGradientsAndFetchesParams) {
  const SmallNet net = small_net({.rows = 200, .columns = 100});
  DistributeTranspiler t(no_waiting());
  ASSERT_TRUE(t.transpile(*net.main, *net.startup, two_by_two()).ok());
  const auto trainer = t.get_trainer_program();
  ASSERT_TRUE(trainer.ok()) << trainer.status().to_string();
  const std::vector<std::string> lines = op_lines((*trainer)->root());
  EXPECT_THAT(
      lines,
      Contains("split_byref(X=w@GRAD) -> Out=w@GRAD.block0.trainer_0,w@GRAD.block1.trainer_0 #8"));
  EXPECT_THAT(lines, Contains("send(X=b@GRAD.trainer_0) -> Out=__control_var@1 #4"));
  EXPECT_THAT(lines, Contains("concat(X=w.block0,w.block1) -> Out=w #8"));
  for (const std::string& line : lines) EXPECT_THAT(line, Not(HasSubstr("sgd")));
  const auto startup = t.get_trainer_startup_program();
  ASSERT_TRUE(startup.ok());
  EXPECT_THAT(op_lines((*startup)->root()), Contains("recv() -> Out=w.block0,w.block1 #4"));
}

TEST(Transpilation, TakenTrainerEqualsTheCopy) {
  const SmallNet net = small_net({.rows = 200, .columns = 100});
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  for (const char* transpiler : {"distribute", "geo"}) {
    TranspileArguments arguments = two_by_two();
    arguments.sync_mode = std::string_view(transpiler) == "distribute";
    EXPECT_EQ(Transpilation::count_trainers(transpiler, no_waiting(), arguments), 2);
    auto plan = Transpilation::create(transpiler, *net.main, *net.startup, no_waiting(), arguments,
                                      *registry);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const auto copy = (*plan)->trainer();
    const auto taken = (*plan)->take_trainer();
    ASSERT_TRUE(copy.ok() && taken.ok());
    EXPECT_EQ(program_bytes(*copy->main), program_bytes(*taken->main));
    EXPECT_EQ(program_bytes(*copy->startup), program_bytes(*taken->startup));
  }
}

TEST(Transpilation, CountsTrainersAsTheModeStatesThem) {
  TranspileArguments arguments;
  arguments.trainers = "h:1,h:2,h:3";
  DistributeTranspilerConfig config;
  EXPECT_EQ(Transpilation::count_trainers("distribute", config, arguments), 1);
  config.mode = "collective";
  EXPECT_EQ(Transpilation::count_trainers("distribute", config, arguments), 3);
  arguments.trainers = "h:1,";
  EXPECT_EQ(Transpilation::count_trainers("distribute", config, arguments), 1);
}

TEST(Transpilation, PropertiesSayHowAndByWhatParamsAreTrained) {
  const SmallNet net = small_net();
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  const auto plan = Transpilation::create("distribute", *net.main, *net.startup, no_waiting(),
                                          two_by_two(), *registry);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_THAT((*plan)->properties().training,
              ElementsAre("sync with 2 trainers", "sgd updates b", "sgd updates w"));
}

TEST(DistributeTranspiler, ServersUpdateTheirSlices) {
  const SmallNet net = small_net({.rows = 200, .columns = 100});
  DistributeTranspiler t(no_waiting());
  ASSERT_TRUE(t.transpile(*net.main, *net.startup, two_by_two()).ok());
  const auto programs = t.get_pserver_programs("127.0.0.1:6175");
  ASSERT_TRUE(programs.ok()) << programs.status().to_string();
  const Program& server = *programs->first;
  ASSERT_GE(server.block_count(), 2U);
  EXPECT_EQ(op_lines(server.root()).size(), 1U);
  EXPECT_THAT(
      op_lines(server.block(1)),
      ElementsAre(
          "sum(X=w@GRAD.block1.trainer_0,w@GRAD.block1.trainer_1) -> Out=w@GRAD.block1 #0",
          "scale(X=w@GRAD.block1) -> Out=w@GRAD.block1 #0",
          "sgd(Param=w.block1 Grad=w@GRAD.block1 LearningRate=lr) -> ParamOut=w.block1 #2"));
  EXPECT_NE(programs->second->root().find_var("w.block1"), nullptr);
}

TEST(DistributeTranspiler, ResultsDoNotDependOnTheOrderOfCalls) {
  const SmallNet net = small_net({.rows = 200, .columns = 100});
  const std::string before = program_bytes(*net.main);
  DistributeTranspiler a(no_waiting());
  DistributeTranspiler b(no_waiting());
  ASSERT_TRUE(a.transpile(*net.main, *net.startup, two_by_two()).ok());
  ASSERT_TRUE(b.transpile(*net.main, *net.startup, two_by_two()).ok());
  const auto trainer_first = a.get_trainer_program();
  const auto server_second = a.get_pserver_programs("127.0.0.1:6174");
  const auto server_first = b.get_pserver_programs("127.0.0.1:6174");
  const auto startup_again = b.get_startup_program("127.0.0.1:6174");
  const auto trainer_last = b.get_trainer_program();
  ASSERT_TRUE(trainer_first.ok() && server_second.ok() && server_first.ok() && trainer_last.ok());
  EXPECT_EQ(program_bytes(**trainer_first), program_bytes(**trainer_last));
  EXPECT_EQ(program_bytes(*server_second->first), program_bytes(*server_first->first));
  EXPECT_EQ(program_bytes(*server_second->second), program_bytes(**startup_again));
  EXPECT_EQ(program_bytes(*net.main), before) << "transpile() must not touch its input";
}

TEST(DistributeTranspiler, OverviewAnswersTheLookUpsOfTheSeeds) {
  const SmallNet net = small_net({.rows = 200, .columns = 100});
  DistributeTranspiler t(no_waiting());
  EXPECT_TRUE(t.vars_overview().vars().empty());
  ASSERT_TRUE(t.transpile(*net.main, *net.startup, two_by_two()).ok());
  const VarsDistributed& overview = t.vars_overview();
  EXPECT_THAT(t.pserver_endpoints(), ElementsAre("127.0.0.1:6174", "127.0.0.1:6175"));
  const DistributedVar* const slice = overview.get_distributed_var_by_slice("w.block1");
  ASSERT_NE(slice, nullptr);
  EXPECT_EQ(slice->origin.name, "w");
  EXPECT_EQ(slice->offset, 100 * 100);
  EXPECT_EQ(slice->block_id, 1);
  EXPECT_EQ(overview.get_distributed_var_by_slice("nothing"), nullptr);
  const DistributedVar* const at =
      overview.get_distributed_var_by_origin_and_ep("w", slice->endpoint);
  ASSERT_NE(at, nullptr);
  EXPECT_EQ(at->slice.name, "w.block1");
  const auto groups = overview.get_distributed_vars_by_vtypes({"Param"});
  ASSERT_EQ(groups.size(), 2U);
  size_t held = 0;
  for (const std::string& endpoint : t.pserver_endpoints()) {
    held += overview.get_distributed_vars_by_ep(endpoint, "Param").size();
    EXPECT_EQ(overview.get_distributed_vars_by_ep(endpoint).size(),
              overview.get_distributed_vars_by_ep(endpoint, "Param").size());
  }
  EXPECT_EQ(held, 3U);
  EXPECT_TRUE(VarsDistributed::equal(slice->slice, slice->slice));
  EXPECT_FALSE(VarsDistributed::equal(slice->slice, slice->origin));
  EXPECT_THAT(overview.overview(),
              HasSubstr("w [200, 100] -> w.block1 [100, 100], block 1, offset 10000, Param"));
  EXPECT_THAT(t.slices_json(), HasSubstr("\"w.block1\""));
}

TEST(DistributeTranspiler, BadFieldsAreRefusedByName) {
  DistributeTranspilerConfig config = no_waiting();
  TranspileArguments arguments = two_by_two();
  config.min_block_size = 100;
  EXPECT_THAT(message(config, arguments),
              HasSubstr("min_block_size must be at least 8192 elements (found 100)"));
  config = no_waiting();
  config.runtime_split_send_recv = true;
  EXPECT_THAT(message(config, arguments),
              HasSubstr("runtime_split_send_recv needs config_sync_mode false"));
  config = no_waiting();
  config.sync_mode = false;
  EXPECT_THAT(message(config, arguments), HasSubstr("sync_mode true needs config_sync_mode true"));
  config = no_waiting();
  config.split_method = "Hash";
  EXPECT_THAT(message(config, arguments), HasSubstr("split_method 'Hash' is unknown"));
  config = no_waiting();
  config.mode = "ring";
  EXPECT_THAT(message(config, arguments), HasSubstr("mode 'ring' is unknown"));
  config = no_waiting();
  arguments.trainers = "none";
  EXPECT_THAT(message(config, arguments), HasSubstr("trainers must be a positive number"));
  arguments = two_by_two();
  arguments.trainer_id = 2;
  EXPECT_THAT(message(config, arguments), HasSubstr("trainer_id must be in 0..1 (found 2)"));
  arguments = two_by_two();
  arguments.pservers = "127.0.0.1";
  EXPECT_THAT(message(config, arguments),
              HasSubstr("pservers has '127.0.0.1' (expected host:port"));
  arguments.pservers = "h:1,h:1";
  EXPECT_THAT(message(config, arguments), HasSubstr("pservers names 'h:1' twice"));
}

TEST(DistributeTranspiler, NumbersThatNoProgramCanCarryAreRefused) {
  DistributeTranspilerConfig config = no_waiting();
  config.rpc_send_thread_num = 0;
  EXPECT_THAT(message(config, two_by_two()),
              HasSubstr("rpc_send_thread_num must be at least 1 (found 0)"));
  config = no_waiting();
  config.nccl_comm_num = 1025;
  EXPECT_THAT(message(config, two_by_two()),
              HasSubstr("nccl_comm_num must be at most 1024 (found 1025)"));
  TranspileArguments arguments = two_by_two();
  arguments.trainer_id = INT64_MAX;
  EXPECT_THAT(message(no_waiting(), arguments),
              HasSubstr("trainer_id must be at most 2147483647 (found 9223372036854775807)"));
  arguments = two_by_two();
  arguments.trainers = "99999999999";
  EXPECT_THAT(message(no_waiting(), arguments),
              HasSubstr("trainers must be at most 65536 (found 99999999999)"));
}

TEST(DistributeTranspiler, DelayCompensationNeedsAsynchronousTraining) {
  const SmallNet net = small_net({.rows = 200, .columns = 100});
  DistributeTranspilerConfig config = no_waiting();
  config.enable_dc_asgd = true;
  DistributeTranspiler t(config);
  ASSERT_TRUE(t.transpile(*net.main, *net.startup, two_by_two()).ok());
  EXPECT_THAT(t.get_pserver_program("127.0.0.1:6174").status().message(),
              HasSubstr("sync_mode false"));
}

// The classes are drawn before nce, so that their rows can be fetched.
TEST(DistributeTranspiler, NceFetchesTheRowsOfItsClasses) {
  const SmallNet net = small_net({.rows = 200, .columns = 100, .is_sparse = true});
  Block& root = net.main->root();
  root.declare("classes", VarSpec::tensor(DType::kInt64, {-1, 11}));
  for (Op& op : root.ops()) {
    if (op.type() == "lookup_table") {
      op.remove_input("W");
      op.remove_input("Ids");
      op.remove_output("Out");
      op.set_type("nce");
      op.set_input("Input", "y").set_input("Weight", "w").set_input("Label", "x");
      op.set_output("Cost", "h").set_output("SampleLabels", "classes");
      op.set_int("num_total_classes", 200);
    } else if (op.type() == "lookup_table_grad") {
      op.set_type("nce_grad");
      op.remove_input("W");
      op.remove_input("Ids");
      op.remove_output("W@GRAD");
      op.set_input("Weight", "w").set_output("Weight@GRAD", "w@GRAD");
    }
  }
  DistributeTranspiler t(no_waiting());
  const Status status = t.transpile(*net.main, *net.startup, two_by_two());
  ASSERT_TRUE(status.ok()) << status.to_string();
  const auto trainer = t.get_trainer_program();
  ASSERT_TRUE(trainer.ok()) << trainer.status().to_string();
  const std::vector<std::string> lines =
      op_lines((*trainer)->root(), {"num_total_classes", "table_names", "height_sections"});
  EXPECT_THAT(lines, Contains("sample_classes(Label=x) -> SampleLabels=classes #0 "
                              "num_total_classes=200"));
  EXPECT_THAT(lines, Contains("distributed_lookup_table(Ids=classes W=w) -> Outputs=w@ROWS #0 "
                              "table_names=[w.block0,w.block1] height_sections=[100,100]"));
  EXPECT_THAT(lines, Contains("nce(Input=y Label=x Rows=w@ROWS Classes=classes) -> Cost=h #0 "
                              "num_total_classes=200 height_sections=[100,100]"));
  EXPECT_THAT(lines, Contains(HasSubstr("nce_grad(Out@GRAD=h@GRAD Rows=w@ROWS)")));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("recv() -> Out=w"))));
}

// A dense gradient has no ids by which it could be distributed.
TEST(DistributeTranspiler, RefusesDenseGradientsOfDistributedTables) {
  const SmallNet net = small_net({.rows = 200, .columns = 100, .is_distributed = true});
  DistributeTranspiler t(no_waiting());
  EXPECT_THAT(t.transpile(*net.main, *net.startup, two_by_two()).message(),
              HasSubstr("the gradient 'w@GRAD' of the distributed table 'w' is dense; all its "
                        "lookups need is_sparse"));
}

TEST(DistributeTranspiler, SaysWhichServersItKnows) {
  const SmallNet net = small_net({.rows = 200, .columns = 100});
  DistributeTranspiler t(no_waiting());
  EXPECT_THAT(t.get_trainer_program().status().message(),
              HasSubstr("no program has been transpiled"));
  ASSERT_TRUE(t.transpile(*net.main, *net.startup, two_by_two()).ok());
  EXPECT_THAT(t.get_pserver_program("10.0.0.1:1").status().message(),
              HasSubstr("'10.0.0.1:1' is not one of the 2"));
}

TEST(DistributeTranspiler, LocalSgdWithoutUpdatesIsRefused) {
  SmallNet net = small_net();
  Block& block = net.main->root();
  for (Op* const op : block.op_vector()) {
    if (op->type() == "sgd") block.erase(*op);
  }
  DistributeTranspilerConfig config = no_waiting();
  config.mode = "collective";
  config.collective_mode = "local_sgd";
  DistributeTranspiler t(config);
  TranspileArguments arguments;
  arguments.trainers = "h:1,h:2";
  arguments.current_endpoint = "h:1";
  EXPECT_THAT(t.transpile(*net.main, *net.startup, arguments).message(),
              HasSubstr("local_sgd averages the changes of updates, but the program has no"));
}

TEST(DistributeTranspiler, VerifiesBothPrograms) {
  SmallNet net = small_net({.rows = 200, .columns = 100});
  DistributeTranspiler t(no_waiting());
  Op& product = net.main->root().front();
  product.remove_input("Y");
  EXPECT_THAT(t.transpile(*net.main, *net.startup, two_by_two()).to_string(),
              AllOf(HasSubstr("main: block 0, op 0 (mul), input Y"),
                    HasSubstr("required input slot 'Y' is missing")));
  product.set_input("Y", "w");
  ASSERT_TRUE(t.transpile(*net.main, *net.startup, two_by_two()).ok());
  net.startup->root().front().set_output("Out", "nobody");
  EXPECT_THAT(t.transpile(*net.main, *net.startup, two_by_two()).to_string(),
              AllOf(HasSubstr("startup: block 0, op 0 (fill_constant)"), HasSubstr("nobody")));
  EXPECT_THAT(t.get_trainer_program().status().message(),
              HasSubstr("no program has been transpiled"));
}

TEST(WaitPorts, NamesTheServersThatDoNotAnswer) {
  const Status status = wait_ports({"127.0.0.1:1"}, 50);
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_THAT(status.message(), HasSubstr("127.0.0.1:1 (Connection refused)"));
  EXPECT_TRUE(wait_ports({}, 50).ok());
}

}  // namespace
}  // namespace millrace::transpiler
