// Placement of the ops between gradients and updates, and programs that cannot be divided.

#include <algorithm>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/read_program.h"
#include "ops/registry.h"
#include "tests/transpiler/small_net.h"
#include "transpiler/distribute/transpilation.h"
#include "transpiler/distribute_transpiler.h"

namespace millrace::transpiler {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::unique_ptr<Program> read_divided(const std::string& text) {
  auto program =
      read_program_bytes("# millrace program 1\n\nblock 0 {\n" + text + "}\n", "test", {});
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return *std::move(program);
}

constexpr const char* kVars = R"(
  param w: f32(200, 100)
  param b: f32(100)
  param mean: f32(100)
  persist lr: f32(1)
  persist step: f32(1)
  persist decay: f32(1)
  persist w_ema: f32(200, 100)
  persist mean_ema: f32(100)
  var x: f32(-1, 200)
  var h: f32(-1, 100)
  var h@GRAD: f32(-1, 100)
  var w@GRAD: f32(200, 100)
  var b@GRAD: f32(100)
  var g: f32(200, 100)
  var t: f32(100)
  var tmp: f32(100)
)";
constexpr const char* kBackward = R"(
  scale X=mean -> Out=mean {scale: 0.9, op_role: 0}
  elementwise_add_grad X=h Y=b Out@GRAD=h@GRAD -> Y@GRAD=b@GRAD {axis: 1, op_role: 1, op_role_var: ["b", "b@GRAD"]}
  mul_grad X=x Y=w Out@GRAD=h@GRAD -> Y@GRAD=w@GRAD {op_role: 1, op_role_var: ["w", "w@GRAD"]}
)";
constexpr const char* kUpdateW =
    "sgd Param=w Grad=w@GRAD LearningRate=lr -> ParamOut=w {op_role: 2, op_role_var: [\"w\", "
    "\"w@GRAD\"]}\n";
constexpr const char* kUpdateB =
    "sgd Param=b Grad=b@GRAD LearningRate=lr -> ParamOut=b {op_role: 2, op_role_var: [\"b\", "
    "\"b@GRAD\"]}\n";

struct Divided {
  Status status;
  std::shared_ptr<const Program> trainer;
  std::vector<std::shared_ptr<const Program>> servers;
  std::vector<std::shared_ptr<const Program>> server_startups;
};

Divided divide(const std::string& ops, DistributeTranspilerConfig config = {}, bool sync = true,
               const std::string& vars = kVars,
               const std::string& startup = "  persist lr: f32(1)\n") {
  config.wait_port = false;
  DistributeTranspiler t(config);
  TranspileArguments arguments;
  arguments.pservers = "h:1,h:2";
  arguments.trainers = "2";
  arguments.sync_mode = sync;
  Divided out;
  const auto main = read_divided(vars + std::string(kBackward) + ops);
  const auto first = read_divided(startup);
  out.status = t.transpile(*main, *first, arguments);
  if (!out.status.ok()) return out;
  auto trainer = t.get_trainer_program();
  if (!trainer.ok()) {
    out.status = trainer.status();
    return out;
  }
  out.trainer = *std::move(trainer);
  for (const char* const server : {"h:1", "h:2"}) {
    auto made = t.get_pserver_programs(server);
    if (!made.ok()) {
      out.status = made.status();
      return out;
    }
    out.servers.push_back(std::move(made->first));
    out.server_startups.push_back(std::move(made->second));
  }
  return out;
}

// As transpile-program --verify=false does it. The registry must outlive the result.
StatusOr<std::unique_ptr<Transpilation>> unverified(const std::string& transpiler,
                                                    const std::string& ops,
                                                    const ops::OpRegistry& registry) {
  const auto main = read_divided(std::string(kVars) + kBackward + ops);
  const auto startup = read_divided("  persist lr: f32(1)\n");
  DistributeTranspilerConfig config;
  config.wait_port = false;
  TranspileArguments arguments;
  arguments.pservers = "h:1,h:2";
  arguments.trainers = "2";
  return Transpilation::create(transpiler, *main, *startup, config, arguments, registry);
}

std::string refused(const std::string& ops, const DistributeTranspilerConfig& config = {},
                    bool sync = true) {
  return divide(ops, config, sync).status.message();
}

std::vector<std::string> all_lines(const Program& program) {
  std::vector<std::string> lines;
  for (const Block& block : program.blocks()) {
    for (std::string& line : op_lines(block)) lines.push_back(std::move(line));
  }
  return lines;
}

TEST(DivideUpdates, AveragesOfUntrainedVarsStayOnTheTrainer) {
  const Divided made = divide(std::string(kUpdateW) + kUpdateB + R"(
  elementwise_mul X=mean_ema Y=decay -> Out=tmp {axis: -1, op_role: 2, op_role_var: ["mean", "tmp"]}
  elementwise_add X=tmp Y=mean -> Out=t {axis: -1, op_role: 2, op_role_var: ["mean", "tmp"]}
  assign X=t -> Out=mean_ema {op_role: 2, op_role_var: ["mean", "tmp"]}
  scale X=b -> Out=b_ema {scale: 0.5, op_role: 2, op_role_var: ["b", "tmp"]}
)",
                              {}, true, std::string(kVars) + "  persist b_ema: f32(100)\n");
  ASSERT_TRUE(made.status.ok()) << made.status.to_string();
  EXPECT_THAT(all_lines(*made.trainer), Contains("assign(X=t) -> Out=mean_ema #1"));
  EXPECT_THAT(all_lines(*made.trainer), Not(Contains(HasSubstr("b_ema"))));
  std::vector<std::string> lines = all_lines(*made.servers[0]);
  for (std::string& line : all_lines(*made.servers[1])) lines.push_back(std::move(line));
  EXPECT_THAT(lines, Contains("scale(X=b) -> Out=b_ema #2"));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("mean"))));
}

// Release 2.6 names the param as output W_Out, which its update has to read from the server.
TEST(DivideUpdates, HierarchicalSigmoidDoesNotChangeItsParam) {
  const Divided made = divide(
      "  hierarchical_sigmoid X=h W=w Label=label -> Out=cost PreOut=paths W_Out=w "
      "{num_classes: 201, op_role: 0}\n" +
          std::string(kUpdateW) + kUpdateB,
      {}, true,
      std::string(kVars) +
          "  var label: i64(-1, 1)\n  var cost: f32(-1, 1)\n  var paths: f32(-1, 8)\n");
  EXPECT_TRUE(made.status.ok()) << made.status.to_string();
}

TEST(DivideUpdates, GeoServesWhatIsUpdatedAndNothingElse) {
  const auto registry = ops::standard_registry();
  const auto made = unverified("geo",
                               std::string(kUpdateW) + kUpdateB +
                                   "  scale X=mean -> Out=mean_ema {scale: 0.5, op_role: 2, "
                                   "op_role_var: [\"mean\", \"tmp\"]}\n",
                               *registry);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  for (const DistributedVar& var : (*made)->overview().vars())
    EXPECT_THAT(var.origin.name, ::testing::AnyOf("w", "b"));
}

// The decay of the average follows a schedule, which the trainer then also computes.
TEST(DivideUpdates, ATrainerKeepsTheScheduleThatItReads) {
  const std::string ops = R"(
  increment X=step -> Out=step {step: 1.0, op_role: 16}
  scale X=step -> Out=decay {scale: 0.1, op_role: 16}
  elementwise_mul X=mean_ema Y=decay -> Out=mean_ema {axis: -1, op_role: 2, op_role_var: ["mean", "tmp"]}
)";
  const Divided made = divide(ops + kUpdateW + kUpdateB);
  ASSERT_TRUE(made.status.ok()) << made.status.to_string();
  EXPECT_THAT(all_lines(*made.trainer), Contains(HasSubstr("increment(X=step)")));
  DistributeTranspilerConfig config;
  config.sync_mode = false;
  EXPECT_THAT(divide(ops + kUpdateW + kUpdateB, config, false).status.message(),
              HasSubstr("only servers know the common step"));
}

TEST(DivideUpdates, AParamThatIsUpdatedTwiceIsRefused) {
  EXPECT_THAT(refused(std::string(kUpdateW) + kUpdateB + kUpdateW),
              HasSubstr("param 'w' is updated twice in a step"));
}

TEST(DivideUpdates, AnOpThatNamesNoParamHasNoServer) {
  const std::string updates = std::string(kUpdateW) + kUpdateB;
  EXPECT_THAT(refused(updates + "scale X=b -> Out=t {scale: 0.5, op_role: 2}\n"),
              HasSubstr("op_role_var of an optimize op is empty: cannot determine which "
                        "server runs it"));
  const std::string unpaired =
      "scale X=b -> Out=t {scale: 0.5, op_role: 2, op_role_var: [\"b\"]}\n";
  EXPECT_THAT(refused(updates + unpaired),
              HasSubstr("op_role_var has 1 names (expected pairs of param and grad)"));
  const auto registry = ops::standard_registry();
  const auto made = unverified("distribute", updates + unpaired, *registry);
  EXPECT_THAT(made.status().message(), HasSubstr("needs a param and its gradient (found 1 names)"));
}

TEST(DivideUpdates, ReadersOfWhatOnlyServersComputeAreRefused) {
  EXPECT_THAT(refused(std::string(kUpdateW) + kUpdateB + "scale X=w -> Out=g {op_role: 0}\n"),
              HasSubstr("it reads 'w' after 'sgd', which runs on a server"));
  EXPECT_THAT(
      refused(std::string("scale X=h@GRAD -> Out=h@GRAD {op_role: 1}\n  reduce_mean X=h@GRAD -> "
                          "Out=lr {reduce_all: true, op_role: 16}\n") +
              kUpdateW + kUpdateB),
      HasSubstr("reads 'h@GRAD', which 'scale' computes on the trainer"));
  EXPECT_THAT(refused(std::string(kUpdateW) + kUpdateB + R"(
  elementwise_add X=w Y=w@GRAD -> Out=w_ema {op_role: 2, op_role_var: ["mean", "tmp"]}
)"),
              HasSubstr("reads 'w', which 'sgd' computes on a server"));
}

TEST(DivideUpdates, NamesOfSlicesAndCopiesAreRefused) {
  for (const std::string name : {"net.block1.w", "w.trainer_0", "w.pserver_1"}) {
    std::string vars = kVars;
    vars += "  param " + name + ": f32(100)\n  var " + name + "@GRAD: f32(100)\n";
    const Divided made =
        divide("mul_grad X=x Y=" + name + " Out@GRAD=h@GRAD -> Y@GRAD=" + name +
                   "@GRAD {op_role: 1}\n  sgd Param=" + name + " Grad=" + name +
                   "@GRAD LearningRate=lr -> ParamOut=" + name + " {op_role: 2, op_role_var: [\"" +
                   name + "\", \"" + name + "@GRAD\"]}\n",
               {}, true, vars);
    EXPECT_THAT(made.status.message(), HasSubstr("the name '" + name + "' has the form")) << name;
  }
}

TEST(DivideUpdates, ASharedCounterNeedsServersThatDoNotWorkInSteps) {
  const std::string ops = R"(
  increment X=step -> Out=step {step: 1.0, op_role: 16}
  scale X=step -> Out=lr {scale: 0.1, op_role: 16}
)";
  EXPECT_THAT(refused(ops + kUpdateW + kUpdateB, {}, false),
              HasSubstr("config_sync_mode true makes servers work in steps (distributed_mode 0)"));
}

TEST(DivideUpdates, AnInitializerOfValuesIsCutWithItsParam) {
  std::string values;
  for (int i = 0; i < 20000; ++i) values += (i == 0 ? "" : ", ") + std::to_string(i % 8192) + ".0";
  const std::string startup =
      "  param w: f32(200, 100)\n  param b: f32(100)\n  persist lr: f32(1)\n" +
      std::string(
          "  assign_value -> Out=w {shape: [200, 100], dtype: 5, "
          "fp32_values: [") +
      values + "]}\n";
  const Divided made = divide(std::string(kUpdateW) + kUpdateB, {}, true, kVars, startup);
  ASSERT_TRUE(made.status.ok()) << made.status.to_string();
  int seen = 0;
  for (const auto& program : made.server_startups) {
    for (const Op& op : program->root().ops()) {
      if (op.type() != "assign_value") continue;
      ++seen;
      const bool first = op.first_output("Out") == "w.block0";
      EXPECT_EQ(op.find_attr("shape")->ints(), llvm::ArrayRef<int32_t>({100, 100}));
      const auto cut = op.find_attr("fp32_values")->floats();
      ASSERT_EQ(cut.size(), 10000U);
      EXPECT_EQ(cut.front(), first ? 0.0F : 10000 % 8192);
      EXPECT_EQ(cut.back(), first ? 9999 % 8192 : 19999 % 8192);
    }
  }
  EXPECT_EQ(seen, 2);
  const std::string odd =
      "  param w: f32(200, 100)\n  persist lr: f32(1)\n  eye -> Out=w {num_rows: 200l, "
      "num_columns: 100l, dtype: 5}\n";
  EXPECT_THAT(divide(std::string(kUpdateW) + kUpdateB, {}, true, kVars, odd).status.message(),
              HasSubstr("'eye' initializes 'w' as a whole, but this server holds a slice"));
  const std::string derived =
      "  param b: f32(100)\n  var seed: f32(100)\n  persist lr: f32(1)\n  assign X=seed -> Out=b\n";
  EXPECT_THAT(divide(std::string(kUpdateW) + kUpdateB, {}, true, kVars, derived).status.message(),
              HasSubstr("'assign' initializes 'b' from 'seed', which this server does not have"));
}

// ---- tables

SmallNet sparse_net(bool distributed) {
  return small_net({.rows = 200, .columns = 100, .is_distributed = distributed, .is_sparse = true});
}

Status transpile_net(const SmallNet& net, DistributeTranspiler& t, bool sync = true) {
  TranspileArguments arguments;
  arguments.pservers = "h:1,h:2";
  arguments.trainers = "2";
  arguments.sync_mode = sync;
  return t.transpile(*net.main, *net.startup, arguments);
}

DistributeTranspilerConfig not_waiting() {
  DistributeTranspilerConfig config;
  config.wait_port = false;
  return config;
}

Op& lookup_in(const SmallNet& net) {
  for (Op& op : net.main->root().ops()) {
    if (op.type() == "lookup_table") return op;
  }
  return net.main->root().front();
}

// A row of zeros is updated on the servers as well, for both ways of sending rows.
TEST(DivideUpdates, PaddingIsThatOfTheLookups) {
  for (const bool distributed : {true, false}) {
    SCOPED_TRACE(distributed);
    const SmallNet net = sparse_net(distributed);
    lookup_in(net).set_attr("padding_idx", AttrValue::of_long(7));
    DistributeTranspiler t(not_waiting());
    const Status done = transpile_net(net, t);
    ASSERT_TRUE(done.ok()) << done.to_string();
    if (!distributed) {
      const auto trainer = t.get_trainer_program();
      ASSERT_TRUE(trainer.ok()) << trainer.status().to_string();
      EXPECT_THAT(
          op_lines((*trainer)->root(), {"padding_idx"}),
          Contains(AllOf(HasSubstr("distributed_lookup_table"), HasSubstr("padding_idx=7"))));
      continue;
    }
    const auto server = t.get_pserver_program("h:1");
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    std::vector<std::string> lines;
    for (const Block& block : (*server)->blocks()) {
      for (std::string& line : op_lines(block, {"padding_idx"})) lines.push_back(std::move(line));
    }
    EXPECT_THAT(lines,
                Contains(AllOf(HasSubstr("lookup_sparse_table"), HasSubstr("padding_idx=7"))));
  }
}

TEST(DivideUpdates, LookupsOfOtherPaddingAreRefused) {
  for (const bool distributed : {true, false}) {
    const SmallNet net = sparse_net(distributed);
    Op& first = lookup_in(net);
    first.set_attr("padding_idx", AttrValue::of_long(7));
    Op& second = net.main->root().insert_after(first, "lookup_table");
    second.set_input("Ids", "x").set_input("W", "w").set_output("Out", "h");
    second.set_bool("is_distributed", distributed).set_bool("remote_prefetch", true);
    second.set_bool("is_sparse", true);
    DistributeTranspiler t(not_waiting());
    EXPECT_THAT(transpile_net(net, t).to_string(),
                HasSubstr("the lookups of table 'w' have padding_idx 7 and -1"));
  }
}

TEST(DivideUpdates, ADistributedTableCountsBeforeRemotePrefetch) {
  const SmallNet net = sparse_net(true);
  DistributeTranspiler t(not_waiting());
  const Status done = transpile_net(net, t);
  ASSERT_TRUE(done.ok()) << done.to_string();
  const auto trainer = t.get_trainer_program();
  ASSERT_TRUE(trainer.ok()) << trainer.status().to_string();
  const std::vector<std::string> lines = op_lines((*trainer)->root());
  EXPECT_THAT(lines, Contains(HasSubstr("prefetch(X=prefetch_compress_in_tmp_0,")));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("distributed_lookup_table"))));
}

TEST(DivideUpdates, ADistributedTableSaysThatItsOptimizerIsSgd) {
  const SmallNet net = sparse_net(true);
  for (Op& op : net.main->root().ops()) {
    if (op.type() == "sgd" && op.first_input("Param") == "w") op.set_type("adagrad");
  }
  const auto registry = ops::standard_registry();
  TranspileArguments arguments;
  arguments.pservers = "h:1,h:2";
  arguments.trainers = "2";
  const auto made = Transpilation::create("distribute", *net.main, *net.startup, not_waiting(),
                                          arguments, *registry);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_THAT((*made)->remarks(),
              ElementsAre(HasSubstr("'w' are summed over the trainers, not averaged"),
                          HasSubstr("'w' is updated by sgd on its servers, not by 'adagrad'")));
}

TEST(DivideUpdates, ADistributedTableCanBeNeitherRegularisedNorAveraged) {
  const SmallNet net = sparse_net(true);
  Block& block = net.main->root();
  VarSpec spec = block.find_var("w")->spec();
  spec.is_parameter.reset();
  block.declare("w_ema", std::move(spec));
  Op& average = block.append_op("assign");
  average.set_input("X", "w").set_output("Out", "w_ema").set_int("op_role", 2);
  average.set_strings("op_role_var", {"w", "w@GRAD"});
  DistributeTranspiler t(not_waiting());
  EXPECT_THAT(transpile_net(net, t).message(),
              HasSubstr("'assign' is run in addition to the update of the distributed table"));
}

TEST(DivideUpdates, AveragesAreCutWithTheirParamsAndListed) {
  const auto main = read_divided(std::string(kVars) + kBackward + kUpdateW + kUpdateB + R"(
  elementwise_mul X=w_ema Y=decay -> Out=g {axis: -1, op_role: 2, op_role_var: ["w", "g"]}
  assign X=g -> Out=w_ema {op_role: 2, op_role_var: ["w", "g"]}
)");
  const auto startup = read_divided(
      "  persist lr: f32(1)\n  persist w_ema: f32(200, 100)\n"
      "  fill_constant -> Out=w_ema {shape: [200l, 100l], value: 0.0, dtype: 5}\n");
  DistributeTranspiler t(not_waiting());
  TranspileArguments arguments;
  arguments.pservers = "h:1,h:2";
  arguments.trainers = "2";
  const Status done = t.transpile(*main, *startup, arguments);
  ASSERT_TRUE(done.ok()) << done.to_string();
  std::map<std::string, int> listed;
  int64_t rows = 0;
  for (const char* const server : {"h:1", "h:2"}) {
    for (const DistributedVar* const var :
         t.vars_overview().get_distributed_vars_by_ep(server, "Optimizer")) {
      ++listed[var->origin.name];
      if (var->origin.name != "w_ema") continue;
      EXPECT_TRUE(var->is_slice);
      EXPECT_EQ(var->offset, rows * 100);
      rows += var->slice.shape[0];
      const auto made = t.get_pserver_programs(server);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      for (const auto& program : {made->first, made->second})
        EXPECT_EQ(program->root().find_var("w_ema")->dims().vec(), var->slice.shape);
    }
  }
  EXPECT_EQ(rows, 200);
  EXPECT_EQ(listed, (std::map<std::string, int>{{"w_ema", 2}, {"decay", 1}}));
}

TEST(DivideUpdates, ClippedRowsOfACutTableAreSentAsRows) {
  const SmallNet net = sparse_net(false);
  Block& block = net.main->root();
  for (Op& op : block.ops()) {
    if (op.type() != "sgd" || op.first_input("Param") != "w") continue;
    block.declare("clipped", VarSpec::tensor(DType::kFloat32, {200, 100}));
    Op& clip = block.insert_before(&op, "clip");
    clip.set_input("X", "w@GRAD").set_output("Out", "clipped").set_int("op_role", 2);
    clip.set_float("min", -1).set_float("max", 1).set_strings("op_role_var", {"w", "w@GRAD"});
    op.set_input("Grad", "clipped").set_strings("op_role_var", {"w", "clipped"});
    break;
  }
  DistributeTranspiler t(not_waiting());
  const Status done = transpile_net(net, t);
  ASSERT_TRUE(done.ok()) << done.to_string();
  const auto trainer = t.get_trainer_program();
  ASSERT_TRUE(trainer.ok()) << trainer.status().to_string();
  EXPECT_THAT(
      op_lines((*trainer)->root()),
      Contains(HasSubstr("split_selected_rows(X=clipped) -> Out=clipped.block0.trainer_0")));
  const auto server = t.get_pserver_program("h:1");
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  for (const Var& var : (*server)->root().vars()) {
    if (!var.name().startswith("clipped")) continue;
    EXPECT_EQ(var.kind(), VarKind::kSelectedRows) << var.name().str();
  }
}

TEST(DivideUpdates, DelayCompensationOfRowsIsRefusedBeforeTraining) {
  DistributeTranspilerConfig config = not_waiting();
  config.enable_dc_asgd = true;
  config.sync_mode = false;
  DistributeTranspiler sparse(config);
  EXPECT_THAT(transpile_net(sparse_net(false), sparse, false).message(),
              HasSubstr("enable_dc_asgd: param 'w' has a sparse gradient"));
  DistributeTranspiler dense(config);
  EXPECT_TRUE(transpile_net(small_net({.rows = 200, .columns = 100}), dense, false).ok());
}

TEST(DivideUpdates, StateIsListedInProgramOrderWhenSlicingIsOff) {
  std::string vars = kVars;
  std::string ops;
  for (int i = 0; i < 6; ++i) {
    const std::string p = "p" + std::to_string(i);
    vars += "  param " + p + ": f32(100)\n  persist " + p + "_v: f32(100)\n  var " + p +
            "@GRAD: f32(100)\n";
    ops += "  scale X=b@GRAD -> Out=" + p + "@GRAD {op_role: 1}\n  momentum Param=" + p +
           " Grad=" + p + "@GRAD Velocity=" + p + "_v LearningRate=lr -> ParamOut=" + p +
           " VelocityOut=" + p + "_v {mu: 0.9, op_role: 2, op_role_var: [\"" + p + "\", \"" + p +
           "@GRAD\"]}\n";
  }
  DistributeTranspilerConfig config = not_waiting();
  config.slice_var_up = false;
  DistributeTranspiler t(config);
  TranspileArguments arguments;
  arguments.pservers = "h:1,h:2";
  arguments.trainers = "2";
  arguments.random_seed = 42;
  const auto main = read_divided(vars + std::string(kBackward) + ops);
  const auto startup = read_divided("  persist lr: f32(1)\n");
  const Status done = t.transpile(*main, *startup, arguments);
  ASSERT_TRUE(done.ok()) << done.to_string();
  for (const char* const server : {"h:1", "h:2"}) {
    std::vector<std::string> names;
    for (const DistributedVar* const var :
         t.vars_overview().get_distributed_vars_by_ep(server, "Optimizer"))
      names.push_back(var->origin.name);
    EXPECT_EQ(names.size(), 3U);
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end())) << ::testing::PrintToString(names);
  }
}

}  // namespace
}  // namespace millrace::transpiler
