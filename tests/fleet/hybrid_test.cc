// Hybrid jobs: workers average dense gradients by all-reduce and update dense parameters
// themselves, servers have embeddings only. Such a job trains as one process that gets the batches
// of all workers at once, and what it cannot do is refused by name.

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "framework/text_form/print.h"
#include "tests/fleet/equal_job.h"

namespace millrace::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The loss is the sum of one of rows and one of a layer, so that each half is trained on its own.
constexpr const char* kRowsBesideLayer[2] = {R"(# millrace program 1

block 0 {
  param emb: f32(12, 4)
  param w: f32(4, 3)
  param b: f32(3)
  var ids: i64(-1, 1)
  var x: f32(-1, 4)
  var e: f32(-1, 4)
  var r: f32(-1, 4)
  var s: f32(1)
  var h: f32(-1, 3)
  var o: f32(-1, 3)
  var q: f32(-1, 3)
  var t: f32(1)
  var loss: f32(1)
  lookup_table Ids=ids W=emb -> Out=e {is_sparse: true, remote_prefetch: true, padding_idx: -1l}
  square X=e -> Out=r
  mean X=r -> Out=s
  mul X=x Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}
  elementwise_add X=h Y=b -> Out=o {axis: 1}
  square X=o -> Out=q
  mean X=q -> Out=t
  elementwise_add X=s Y=t -> Out=loss {axis: -1}
}
)",
                                             kRowsAndLayer[1]};

JobSpec hybrid_spec(int workers, int servers = 2) {
  JobSpec spec = equal_spec(workers, servers);
  spec.all_reduces_dense = true;
  return spec;
}

EqualParams train_hybrid(const TrainingNet& net, int workers, int servers, int steps = 5) {
  EqualJob job(net, hybrid_spec(workers, servers));
  EqualParams params = job.train(steps);
  for (const auto& [worker, own] : job.of_workers)
    EXPECT_EQ(own, job.of_workers.at(0)) << "worker " << worker;
  return params;
}

EqualParams dense_of(EqualParams params) {
  params.erase("emb");
  return params;
}

class HybridEqual : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(HybridEqual, SgdTrainsAsOneProcess) {
  const auto [workers, servers] = GetParam();
  for (const auto& texts : {kRowsAndLayer, kPaddedLookups}) {
    const TrainingNet net({texts[0], texts[1]}, optimizer_of(Sgd{}, kEqualRate));
    const EqualParams found = train_hybrid(net, workers, servers);
    if (texts == kRowsAndLayer) {
      expect_equal_params(found, train_together(net, workers, 5));
    } else {
      // padding rows are not on the servers, and no lookup reads them
      expect_equal_params(dense_of(found), dense_of(train_together(net, workers, 5)));
    }
  }
}

// Rows count their own steps, on the servers of all jobs; so they are those of an ordinary job.
TEST_P(HybridEqual, AdamTrainsAsOneProcess) {
  const auto [workers, servers] = GetParam();
  const TrainingNet net(kRowsBesideLayer, optimizer_of(Adam{}, kEqualRate));
  const EqualParams found = train_hybrid(net, workers, servers);
  expect_equal_params(dense_of(found), dense_of(train_together(net, workers, 5)));
  EqualJob ordinary(net, workers, servers);
  expect_equal_params(found, ordinary.train(5));
}

INSTANTIATE_TEST_SUITE_P(Jobs, HybridEqual,
                         ::testing::Values(std::pair(1, 1), std::pair(1, 2), std::pair(2, 1),
                                           std::pair(2, 2), std::pair(4, 1), std::pair(4, 2)));

TEST(Hybrid, AdamOfOneNetworkIsThatOfAnOrdinaryJob) {
  const TrainingNet net(kRowsAndLayer, optimizer_of(Adam{}, kEqualRate));
  EqualJob ordinary(net, 2, 2);
  expect_equal_params(train_hybrid(net, 2, 2), ordinary.train(5));
}

TEST(Hybrid, TheSameJobEndsWithTheSameBits) {
  const TrainingNet net(kRowsAndLayer, optimizer_of(Adam{}, kEqualRate));
  EXPECT_EQ(train_hybrid(net, 3, 2), train_hybrid(net, 3, 2));
}

// Servers of ordinary jobs have no such update, or average what each worker has clipped.
TEST(Hybrid, DenseParametersMayHaveAnyUpdate) {
  std::vector<std::pair<const char*, MinimizeOptions>> all;
  all.emplace_back("momentum", optimizer_of(Momentum{.momentum = 0.5}, kEqualRate));
  MinimizeOptions clipped = optimizer_of(Sgd{}, kEqualRate);
  clipped.clip = ClipByGlobalNorm{0.05};
  clipped.parameter_options["emb"].need_clip = false;
  all.emplace_back("clip by global norm", clipped);
  MinimizeOptions decayed = optimizer_of(Sgd{}, kEqualRate);
  decayed.parameter_options["w"].regularizer = L2Decay{0.25};
  decayed.parameter_options["b"].regularizer = L1Decay{0.5};
  decayed.parameter_options["b"].learning_rate = 0.5;
  all.emplace_back("decay and a rate of its own", decayed);
  for (const auto& [name, options] : all) {
    SCOPED_TRACE(name);
    const TrainingNet net(kRowsBesideLayer, options);
    expect_equal_params(dense_of(train_hybrid(net, 2, 2)), dense_of(train_together(net, 2, 5)));
  }
}

TEST(Hybrid, RowsOfAnOwnRateAndDecayAreUpdatedByTheServers) {
  MinimizeOptions options = optimizer_of(Sgd{}, kEqualRate);
  options.parameter_options["emb"].learning_rate = 0.5;
  options.parameter_options["emb"].regularizer = L2Decay{0.25};
  const TrainingNet net(kRowsAndLayer, options);
  EqualJob ordinary(net, 2, 2);
  expect_equal_params(train_hybrid(net, 2, 2), ordinary.train(5));
}

TEST(Hybrid, BothHalvesFollowTheScheduleOfTheProgram) {
  for (const UpdateMethod& method : {UpdateMethod(Sgd{}), UpdateMethod(Adam{})}) {
    const TrainingNet net(kRowsBesideLayer,
                          optimizer_of(method, ExponentialDecay{.learning_rate = 0.1,
                                                                .decay_steps = 2,
                                                                .decay_rate = 0.5,
                                                                .staircase = true}));
    const EqualParams found = train_hybrid(net, 2, 2);
    expect_equal_params(dense_of(found), dense_of(train_together(net, 2, 5)));
    EqualJob ordinary(net, 2, 2);
    expect_equal_params(found, ordinary.train(5));
  }
}

// Workers of an asynchronous job still average dense gradients in each step.
TEST(Hybrid, RowsMayBeAsynchronous) {
  for (const UpdateMethod& method : {UpdateMethod(Sgd{}), UpdateMethod(Adam{})}) {
    const TrainingNet net(kRowsBesideLayer, optimizer_of(method, kEqualRate));
    JobSpec spec = hybrid_spec(2);
    spec.strategy.set_a_sync(true);
    EqualJob job(net, spec);
    const EqualParams found = job.train(5);
    EXPECT_EQ(job.of_workers.at(0), job.of_workers.at(1));
    expect_equal_params(dense_of(found), dense_of(train_together(net, 2, 5)));
    EXPECT_NE(found.at("emb"), train_together(net, 2, 0).at("emb"));
  }
}

// ---- programs

// The ops without their attributes.
std::vector<std::string> op_lines(const Program& program) {
  TextOptions options;
  options.attrs = false;
  std::vector<std::string> lines;
  for (const Op& op : program.root().ops()) lines.push_back(print_op(op, options));
  return lines;
}

TEST(HybridPrograms, WorkersUpdateDenseParametersThemselves) {
  const TrainingNet net(kRowsAndLayer, optimizer_of(Momentum{.momentum = 0.5}, kEqualRate));
  const auto job = FleetJob::create(*net.main, *net.startup, hybrid_spec(4));
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  const auto role = job->role({false, 1});
  ASSERT_TRUE(role.ok()) << role.status().to_string();
  const std::vector<std::string> lines = op_lines(*role->programs.main);
  const auto mul_grad = std::ranges::find_if(
      lines, [](const std::string& line) { return line.starts_with("mul_grad"); });
  const auto bias_grad = mul_grad - 3;
  EXPECT_THAT(
      std::vector<std::string>(bias_grad, lines.end()),
      ElementsAre(
          "elementwise_add_grad Out@GRAD=o@GRAD X=h Y=b -> X@GRAD=h@GRAD Y@GRAD=b@GRAD",
          "c_sync_calc_stream X=b@GRAD -> Out=b@GRAD", "c_allreduce_sum X=b@GRAD -> Out=b@GRAD",
          "mul_grad Out@GRAD=h@GRAD X=e Y=w -> X@GRAD=e@GRAD Y@GRAD=w@GRAD",
          "c_sync_calc_stream X=w@GRAD -> Out=w@GRAD", "c_allreduce_sum X=w@GRAD -> Out=w@GRAD",
          "c_sync_comm_stream X=b@GRAD -> Out=b@GRAD", "scale X=b@GRAD -> Out=b@GRAD",
          "scale X=w@GRAD -> Out=w@GRAD",
          "momentum Param=b Grad=b@GRAD LearningRate=learning_rate_0 Velocity=b_velocity_0 "
          "-> ParamOut=b VelocityOut=b_velocity_0",
          "momentum Param=w Grad=w@GRAD LearningRate=learning_rate_0 Velocity=w_velocity_0 "
          "-> ParamOut=w VelocityOut=w_velocity_0",
          "distributed_push_sparse Ids=ids Shows=show Clicks=clk -> Outputs=e@GRAD",
          "send_barrier X=[]"));
  const Op* const scale = role->programs.main->root().last_writer("w@GRAD");
  EXPECT_EQ(get_attr_or(*scale, "scale", 0.0F), 0.25F);
  EXPECT_THAT(
      op_lines(*role->programs.startup),
      ElementsAre("uniform_random -> Out=w", "fill_constant -> Out=b",
                  "fill_constant -> Out=learning_rate_0", "fill_constant -> Out=b_velocity_0",
                  "fill_constant -> Out=w_velocity_0", "fake_init -> Out=emb"));
  EXPECT_EQ(role->programs.main->root().find_var("emb_velocity_0"), nullptr);
  EXPECT_THAT(role->runtime, HasSubstr("\"dense_gradients\": \"all_reduce\""));
  EXPECT_THAT(role->runtime, HasSubstr("\"recv_dense\": {}"));
}

TEST(HybridPrograms, ServersHaveEmbeddingsOnly) {
  const TrainingNet net(kRowsAndLayer, optimizer_of(Adam{}, kEqualRate));
  const auto job = FleetJob::create(*net.main, *net.startup, hybrid_spec(2));
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  const auto server = job->role({true, 1});
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  EXPECT_THAT(op_lines(*server->programs.main), IsEmpty());
  EXPECT_THAT(server->ps_desc, HasSubstr("MemorySparseTable"));
  EXPECT_THAT(server->ps_desc, Not(HasSubstr("MemoryDenseTable")));
  EXPECT_THAT(server->runtime, HasSubstr("\"dense_gradients\": \"all_reduce\""));
}

// ---- refused

std::string refusal(const TrainingNet& net, const JobSpec& spec) {
  const auto job = FleetJob::create(*net.main, *net.startup, spec);
  if (!job.ok()) return job.status().message();
  const auto role = job->role({false, 0});
  return role.ok() ? "made" : role.status().message();
}

TEST(HybridRefused, WhatItCannotBeCombinedWith) {
  const TrainingNet net(kRowsAndLayer, optimizer_of(Adam{}, kEqualRate));
  JobSpec geo = hybrid_spec(2);
  geo.strategy.set_a_sync(true);
  check_ok(geo.strategy.set_a_sync_configs({{"k_steps", int64_t{2}}}));
  EXPECT_THAT(refusal(net, geo), HasSubstr("dense_gradients all_reduce in a geo job"));
  JobSpec heter = hybrid_spec(2);
  heter.heter.endpoints = {"127.0.0.1:7300"};
  EXPECT_THAT(refusal(net, heter), HasSubstr("in a job with heter workers"));
  JobSpec sums = hybrid_spec(2);
  sums.strategy.set_adam_d2sum(true);
  EXPECT_THAT(refusal(net, sums), HasSubstr("adam_d2sum with dense_gradients all_reduce"));
}

TEST(HybridRefused, ProgramsWithOneHalfOnly) {
  const MinimizeOptions sgd = optimizer_of(Sgd{}, kEqualRate);
  EXPECT_THAT(refusal(TrainingNet(kLayerAlone, sgd), hybrid_spec(2)),
              HasSubstr("no embedding of the program is looked up on servers"));
  EXPECT_THAT(refusal(TrainingNet(kRowsAlone, sgd), hybrid_spec(2)),
              HasSubstr("the program trains no dense parameters"));
}

// Workers would end with different dense parameters, without an error.
TEST(HybridRefused, UpdatesThatDifferFromWorkerToWorker) {
  MinimizeOptions clipped = optimizer_of(Sgd{}, kEqualRate);
  clipped.clip = ClipByGlobalNorm{0.05};
  EXPECT_THAT(refusal(TrainingNet(kRowsAndLayer, clipped), hybrid_spec(2)),
              HasSubstr("which differs from worker to worker"));
  TrainingNet net(kRowsAndLayer, optimizer_of(Sgd{}, kEqualRate));
  for (Op& op : net.main->root().ops()) {
    if (op.type() == "sgd" && op.first_input("Param") == "w") op.set_type("dpsgd");
  }
  EXPECT_THAT(refusal(net, hybrid_spec(2)), HasSubstr("'dpsgd' changes 'w' by a random number"));
  // a companion of an update that keeps the gradient: averaged, or only that of this worker
  TrainingNet own(kRowsAndLayer, optimizer_of(Sgd{}, kEqualRate));
  VarSpec kept = own.main->root().find_var("b")->spec();
  kept.is_parameter.reset();
  own.main->root().declare("kept", kept);
  Op& more = own.main->root().append_op("assign");
  more.set_input("X", "b@GRAD").set_output("Out", "kept");
  more.set_int("op_role", 2).set_strings("op_role_var", {"b", "b@GRAD"});
  EXPECT_EQ(refusal(own, hybrid_spec(2)), "made");
  more.set_input("X", "o");
  EXPECT_THAT(refusal(own, hybrid_spec(2)), HasSubstr("'assign' changes 'kept' by 'o'"));
}

TEST(HybridRefused, GradientsThatAreNotSummedOnce) {
  TrainingNet unlisted(kRowsAndLayer, optimizer_of(Sgd{}, kEqualRate));
  Op* const grad = unlisted.main->root().first_writer("w@GRAD");
  grad->remove_attr("op_role_var");
  EXPECT_THAT(refusal(unlisted, hybrid_spec(2)), HasSubstr("no backward op lists its gradient"));
  TrainingNet twice(kRowsAndLayer, optimizer_of(Sgd{}, kEqualRate));
  twice.main->root().first_writer("w@GRAD")->set_strings("op_role_var",
                                                         {"w", "w@GRAD", "b", "b@GRAD"});
  EXPECT_THAT(refusal(twice, hybrid_spec(2)), HasSubstr("two backward ops list the gradient"));
  TrainingNet exchanged(kRowsAndLayer, optimizer_of(Sgd{}, kEqualRate));
  Op& sum = exchanged.main->root().insert_after(*exchanged.main->root().first_writer("w@GRAD"),
                                                "c_allreduce_sum");
  sum.set_input("X", "w@GRAD").set_output("Out", "w@GRAD").set_int("op_role", 1);
  EXPECT_THAT(refusal(exchanged, hybrid_spec(2)),
              HasSubstr("'c_allreduce_sum' exchanges values already"));
}

TEST(HybridRefused, RowsThatOtherOpsRead) {
  TrainingNet net(kRowsAndLayer, optimizer_of(Sgd{}, kEqualRate));
  VarSpec spec = net.main->root().find_var("emb")->spec();
  spec.is_parameter.reset();
  net.main->root().declare("emb_average", spec);
  Op& op = net.main->root().append_op("assign");
  op.set_input("X", "emb").set_output("Out", "emb_average");
  op.set_int("op_role", 2).set_strings("op_role_var", {"emb", "emb@GRAD"});
  EXPECT_THAT(refusal(net, hybrid_spec(2)), HasSubstr("'assign' reads the embedding 'emb'"));
}

TEST(HybridRefused, RanksOfAnotherJob) {
  const TrainingNet net(kRowsAndLayer, optimizer_of(Sgd{}, kEqualRate));
  const auto job = FleetJob::create(*net.main, *net.startup, hybrid_spec(1, 1));
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  const auto transport = std::make_shared<ps::InprocTransport>();
  std::thread serving([&] {
    const auto role = job->role({true, 0});
    ServerSetup setup;
    setup.description = role->ps_desc;
    const auto server = FleetServer::create(std::move(setup));
    check_ok(server.status());
    check_ok((*server)->serve(*transport, job->spec().servers[0]));
  });
  const auto role = job->role({false, 0});
  WorkerSetup setup = worker_setup(*job, *role, 0);
  auto groups = *executor::make_thread_groups(2, 30'000);
  setup.rings = std::make_shared<executor::Rings>([&] { return std::move(groups[0]); });
  const auto worker = FleetWorker::create(setup, transport);
  check_ok(worker.status());
  EXPECT_EQ((*worker)->start().message(),
            "this is trainer 0 of 1, but rank 0 of the 2 processes that exchange dense gradients");
  check_ok((*worker)->stop());
  serving.join();
}

}  // namespace
}  // namespace millrace::fleet
