// A synchronous fleet job trains as one process that gets the batches of all workers at once, with
// every option of an optimizer; options that servers do not support are refused by name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fleet/equal_job.h"

namespace millrace::fleet {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// Adam of rows in one process uses the powers of the next step, as the original's op does; the
// rules of servers do not (AdamOfRowsIsTold).
TEST(FleetEqual, RowsOfSeveralWorkersAreAveragedAsDenseParametersAre) {
  for (const int workers : {1, 2, 3})
    expect_equal_job(TrainingNet(kRowsAndLayer, optimizer_of(Sgd{}, kEqualRate)), workers);
}

// sparse_embedding of release 2 declares its parameter so.
TrainingNet net_with_declared_rows(const MinimizeOptions& options) {
  std::string main = kRowsAndLayer[0];
  const std::string as_tensor = "param emb: f32";
  main.replace(main.find(as_tensor), as_tensor.size(), "param emb: selected_rows f32");
  const char* const texts[2] = {main.c_str(), kRowsAndLayer[1]};
  return TrainingNet(texts, options);
}

TEST(FleetEqual, EmbeddingsMayBeDeclaredAsRows) {
  const MinimizeOptions options = optimizer_of(Sgd{}, kEqualRate);
  const TrainingNet rows = net_with_declared_rows(options);
  const TrainingNet tensor(kRowsAndLayer, options);
  EXPECT_EQ(EqualJob(rows, 2).train(4), EqualJob(tensor, 2).train(4));
}

TEST(FleetEqual, GeoWorkersHoldSuchEmbeddingsAsAWhole) {
  const MinimizeOptions options = optimizer_of(Sgd{}, kEqualRate);
  const TrainingNet rows = net_with_declared_rows(options);
  JobSpec geo = equal_spec(1);
  geo.strategy.set_a_sync(true);
  check_ok(geo.strategy.set_a_sync_configs({{"k_steps", int64_t{2}}}));
  EqualJob job(rows, geo);
  job.gives_rows = false;
  expect_equal_params(job.train(4), train_together(TrainingNet(kRowsAndLayer, options), 1, 4));
}

TEST(FleetEqual, WorkersOfAJobOfRowsAloneWaitForEachOther) {
  expect_equal_job(TrainingNet(kRowsAlone, optimizer_of(Sgd{}, kEqualRate)), 2);
}

TEST(FleetEqual, TheSameJobEndsWithTheSameBits) {
  const TrainingNet net(kRowsAndLayer, optimizer_of(Adam{}, kEqualRate));
  EXPECT_EQ(EqualJob(net, 3).train(4), EqualJob(net, 3).train(4));
}

// Clipping a batch is not the same as clipping its halves.
struct Carried {
  const char* name;
  MinimizeOptions options;
  int workers = 2;
};

std::vector<Carried> carried_out() {
  std::vector<Carried> all;
  all.push_back({"decays and epsilon of adam",
                 optimizer_of(Adam{.beta1 = 0.5, .beta2 = 0.7, .epsilon = 0.25}, kEqualRate)});
  all.push_back({"lazy adam", optimizer_of(Adam{.lazy_mode = true}, kEqualRate)});
  MinimizeOptions l1 = optimizer_of(Sgd{}, kEqualRate);
  l1.parameter_options["w"].regularizer = L1Decay{0.25};
  all.push_back({"L1 of one parameter", l1});
  MinimizeOptions l2 = optimizer_of(Adam{}, kEqualRate);
  l2.parameter_options["w"].regularizer = L2Decay{0.25};
  l2.parameter_options["b"].regularizer = L1Decay{0.5};
  all.push_back({"L1 and L2", l2});
  MinimizeOptions value = optimizer_of(Sgd{}, kEqualRate);
  value.parameter_options["w"].clip = ClipByValue{0.01, {}};
  all.push_back({"clip by value of one parameter", value, 1});
  MinimizeOptions norm = optimizer_of(Sgd{}, kEqualRate);
  norm.clip = ClipByNorm{0.05};
  norm.parameter_options["emb"].need_clip = false;
  all.push_back({"clip by norm without the embedding", norm, 1});
  MinimizeOptions global = optimizer_of(Sgd{}, kEqualRate);
  global.clip = ClipByGlobalNorm{0.05};
  global.parameter_options["emb"].need_clip = false;
  all.push_back({"clip by global norm without the embedding", global, 1});
  MinimizeOptions error = optimizer_of(Sgd{}, kEqualRate);
  error.error_clips["o"] = {-0.01F, 0.01F};
  all.push_back({"clipped errors", error, 1});
  MinimizeOptions some = optimizer_of(Sgd{}, kEqualRate);
  some.parameters = {"emb", "w"};
  all.push_back({"a parameter that is not trained", some});
  return all;
}

TEST(FleetEqual, OptionsReachTheServers) {
  for (const auto& [name, options, workers] : carried_out()) {
    SCOPED_TRACE(name);
    const bool is_sgd = std::holds_alternative<Sgd>(options.method);
    expect_equal_job(
        is_sgd ? TrainingNet(kRowsAndLayer, options) : TrainingNet(kLayerAlone, options), workers);
  }
}

TEST(FleetEqual, ClippingOfDenseParametersStaysOnTheWorker) {
  for (const GradientClip& clip :
       {GradientClip(ClipByValue{0.01, {}}), GradientClip(ClipByNorm{0.05}),
        GradientClip(ClipByGlobalNorm{0.05})}) {
    for (const UpdateMethod& method : {UpdateMethod(Sgd{}), UpdateMethod(Adam{})}) {
      MinimizeOptions options = optimizer_of(method, kEqualRate);
      options.clip = clip;
      expect_equal_job(TrainingNet(kLayerAlone, options), 1);
    }
  }
}

// ---- refused options

std::string job_refusal(const TrainingNet& net) {
  const auto job = FleetJob::create(*net.main, *net.startup, equal_spec(2));
  if (!job.ok()) return job.status().message();
  const auto role = job->role({false, 0});
  if (!role.ok()) return role.status().message();
  // Clipped rows stay in the program, as in the original's transpiler; no worker runs that op.
  const auto worker =
      FleetWorker::create(worker_setup(*job, *role, 0), std::make_shared<ps::InprocTransport>());
  return worker.ok() ? "carried out" : worker.status().message();
}

TEST(FleetEqual, WhatTablesLackIsRefused) {
  struct Refused {
    const char* name;
    MinimizeOptions options;
    const char* message;
  };
  std::vector<Refused> all;
  const auto add = [&](const char* name, const char* message, UpdateMethod method,
                       const std::function<void(MinimizeOptions&)>& change = nullptr) {
    MinimizeOptions options = optimizer_of(std::move(method), kEqualRate);
    if (change) change(options);
    all.push_back({name, std::move(options), message});
  };
  const char* const method = "but tables of servers have sgd, momentum, adagrad";
  add("lars", method, LarsMomentum{});
  add("dpsgd", method, Dpsgd{});
  add("lamb of rows", "'emb' is updated by 'lamb', which needs all rows at once", Lamb{});
  add("rate of the network", "'loss'", Sgd{}, [](auto& o) { o.learning_rate = RateVar{"loss"}; });
  for (const auto& [name, options, message] : all) {
    const std::string found = job_refusal(TrainingNet(kRowsAndLayer, options));
    EXPECT_THAT(found, HasSubstr(message)) << name;
  }
}

TEST(FleetEqual, SeveralOptimizersAreRefused) {
  MinimizeOptions first = optimizer_of(Sgd{}, kEqualRate);
  first.parameters = {"emb", "w"};
  MinimizeOptions second = optimizer_of(Adam{}, kEqualRate);
  second.parameters = {"b"};
  EXPECT_THAT(job_refusal(TrainingNet(kRowsAndLayer, {first, second})),
              HasSubstr("the trainer gets the new value only in the next step"));
}

Op* update_of(Program& main, llvm::StringRef param) {
  for (Op& op : main.root().ops()) {
    if (op.find_input("LearningRate") != nullptr && op.first_input("Param") == param) return &op;
  }
  return nullptr;
}

Op& append_companion(TrainingNet& net, const char* type, const std::string& in,
                     const std::string& out) {
  if (net.main->root().find_var(out) == nullptr) {
    VarSpec spec = net.main->root().find_var(in)->spec();
    spec.is_parameter.reset();
    spec.persistable = true;
    net.main->root().declare(out, std::move(spec));
  }
  Op& op = net.main->root().append_op(type);
  op.set_input("X", in).set_output("Out", out).set_int("op_role", 2);
  return op.set_strings("op_role_var", {"w", "w@GRAD"});
}

TEST(FleetEqual, AveragesAndStateOfOnesOwnAreRefused) {
  TrainingNet average(kLayerAlone, optimizer_of(Sgd{}, kEqualRate));
  append_companion(average, "assign", "w", "w_ema");
  EXPECT_THAT(job_refusal(average), HasSubstr("'assign' does more for the parameter 'w' than its "
                                              "update (such as an average or additional state)"));
  TrainingNet fading(kLayerAlone, optimizer_of(Adam{}, kEqualRate));
  const std::string moment = update_of(*fading.main, "w")->first_input("Moment1").str();
  append_companion(fading, "scale", moment, moment).set_float("scale", 0.5F);
  EXPECT_THAT(job_refusal(fading), HasSubstr("'scale' does more for the parameter 'w'"));
}

TEST(FleetEqual, PowersOfDecaysBelongToTheUpdate) {
  TrainingNet net(kLayerAlone, optimizer_of(Adam{}, kEqualRate));
  const std::string power = update_of(*net.main, "w")->first_input("Beta1Pow").str();
  update_of(*net.main, "w")->set_output("Beta1PowOut", llvm::ArrayRef<std::string>());
  Op& scale = append_companion(net, "scale", power, power);
  scale.set_float("scale", 0.9F).set_float("bias", 0.0F);
  EXPECT_EQ(job_refusal(net), "carried out");
  scale.set_float("scale", 0.8F);
  EXPECT_THAT(job_refusal(net), HasSubstr("'scale' does more for the parameter 'w'"));
}

TEST(FleetEqual, InputsThatTablesLackAreRefused) {
  TrainingNet net(kLayerAlone, optimizer_of(Adam{}, kEqualRate));
  net.main->root().declare("beta", VarSpec::tensor(DType::kFloat32, {1}));
  update_of(*net.main, "w")->set_input("Beta1Tensor", "beta");
  EXPECT_THAT(job_refusal(net),
              HasSubstr("'adam' updates 'w' with its input Beta1Tensor ('beta'), which tables on "
                        "servers do not support"));
}

TEST(FleetEqual, StateThatStartsWithoutAConstantIsRefused) {
  TrainingNet net(kLayerAlone, optimizer_of(Adam{}, kEqualRate));
  const std::string moment = update_of(*net.main, "b")->first_input("Moment2").str();
  Op& start = *net.startup->root().writers_of(moment)[0];
  start.set_type("uniform_random");
  EXPECT_THAT(job_refusal(net), HasSubstr("'Moment2' of 'b' starts with 'uniform_random&0&0.0"));
}

TEST(FleetEqual, ARateThatStartsWithoutAConstantIsRefused) {
  TrainingNet net(kLayerAlone, optimizer_of(Sgd{}, kEqualRate));
  net.startup->root().writers_of("learning_rate_0")[0]->set_type("uniform_random");
  EXPECT_THAT(job_refusal(net), HasSubstr("'LearningRate' of 'b' starts with 'uniform_random&0&"));
}

TEST(FleetEqual, MoreRowsThanADescriptionCanSayAreRefused) {
  TrainingNet net(kRowsAndLayer, optimizer_of(Sgd{}, kEqualRate));
  for (const char* const name : {"emb", "emb@GRAD"})
    net.main->root().find_var(name)->set_dims({int64_t{1} << 32, 4});
  EXPECT_THAT(job_refusal(net),
              HasSubstr("the table of 'emb' has 4294967296 rows, expected 0 to 4294967295"));
}

TEST(FleetEqual, EntryPoliciesWithoutEffectAreTold) {
  TrainingNet net(kRowsAndLayer, optimizer_of(Sgd{}, kEqualRate));
  for (Op& op : net.main->root().ops()) {
    if (op.type() == "lookup_table") op.set_string("entry", "count_filter_entry:5");
  }
  JobSpec geo = equal_spec(1);
  geo.strategy.set_a_sync(true);
  check_ok(geo.strategy.set_a_sync_configs({{"k_steps", int64_t{2}}}));
  const auto job = FleetJob::create(*net.main, *net.startup, geo);
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  EXPECT_THAT(job->role({false, 0})->programs.remarks,
              Contains(HasSubstr("the entry policy 'count_filter_entry:5' of 'emb' has no effect "
                                 "in geo mode")));
}

TEST(FleetEqual, AdamOfRowsIsTold) {
  const auto remarks = [](const TrainingNet& net) {
    const auto job = FleetJob::create(*net.main, *net.startup, equal_spec(2));
    EXPECT_TRUE(job.ok()) << job.status().to_string();
    return job->role({false, 0})->programs.remarks;
  };
  const auto told = HasSubstr("rows of 'emb' are updated by adam only in steps that use them");
  EXPECT_THAT(remarks(TrainingNet(kRowsAndLayer, optimizer_of(Adam{}, kEqualRate))),
              Contains(told));
  EXPECT_THAT(remarks(TrainingNet(kRowsAndLayer, optimizer_of(Sgd{}, kEqualRate))),
              Not(Contains(told)));
  EXPECT_THAT(remarks(TrainingNet(kLayerAlone, optimizer_of(Adam{}, kEqualRate))),
              Not(Contains(told)));
}

TEST(FleetEqual, RowsBeginAsTheProgramSays) {
  TrainingNet constant(kRowsAlone, optimizer_of(Sgd{}, kEqualRate));
  Op& filled = *constant.startup->root().writers_of("emb")[0];
  constant.startup->root().erase(filled);
  Op& fill = constant.startup->root().append_op("fill_constant");
  fill.set_output("Out", "emb").set_attr("shape", AttrValue::of_longs({12, 4}));
  fill.set_float("value", 0.25F).set_int("dtype", 5);
  EqualJob job(constant, 1);
  job.gives_rows = false;
  job.train(0);
  EXPECT_EQ(job.first_rows, std::vector<float>(48, 0.25F));

  TrainingNet uneven(kRowsAlone, optimizer_of(Adam{}, kEqualRate));
  uneven.startup->root().writers_of("emb")[0]->set_float("min", 0.25F);
  EqualJob drawn(uneven, 1);
  drawn.gives_rows = false;
  drawn.train(0);
  ASSERT_EQ(drawn.first_rows.size(), 48U);
  for (const float value : drawn.first_rows) {
    EXPECT_GE(value, 0.25F);
    EXPECT_LE(value, 0.5F);
  }
  EXPECT_NE(drawn.first_rows[0], drawn.first_rows[1]);
}

}  // namespace
}  // namespace millrace::fleet
