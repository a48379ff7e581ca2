// A synchronous fleet job trains as one process that gets the batches of all workers at once, with
// every option of an optimizer; options that servers do not support are refused by name.

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/standard_runtime.h"
#include "fleet/runtime/fleet_server.h"
#include "ps/transport/inproc.h"
#include "tests/fleet/nets.h"
#include "tests/fleet/training_job.h"

namespace millrace::fleet {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kEqualRate = 0.05;
constexpr int64_t kBatch = 8;

// Some rows occur twice in a batch, some in both batches.
int64_t id_at(int worker, int step, int64_t i) {
  return (worker * 6 + i * (i == 7 ? 0 : 1) + step) % 12;
}

executor::NamedValues equal_feeds(int first_worker, int workers, int step) {
  executor::NamedValues feeds;
  auto& ids = feeds["ids"].as<Tensor>();
  auto& x = feeds["x"].as<Tensor>();
  check_ok(ids.resize(DType::kInt64, {workers * kBatch, 1}));
  check_ok(x.resize(DType::kFloat32, {workers * kBatch, 4}));
  for (int64_t i = 0; i < workers * kBatch; ++i) {
    const int worker = first_worker + static_cast<int>(i / kBatch);
    ids.data<int64_t>()[i] = id_at(worker, step, i % kBatch);
    for (int64_t k = 0; k < 4; ++k)
      x.data<float>()[i * 4 + k] =
          static_cast<float>((i % kBatch * 5 + step + worker * 3 + k * 2) % 9) * 0.1F - 0.3F;
  }
  return feeds;
}

// The feeds of the program.
executor::NamedValues feeds_for(const Program& main, int first_worker, int workers, int step) {
  executor::NamedValues feeds = equal_feeds(first_worker, workers, step);
  std::erase_if(feeds,
                [&](const auto& feed) { return main.root().find_var(feed.first) == nullptr; });
  return feeds;
}

using EqualParams = std::map<std::string, std::vector<float>>;

std::vector<float> elements_of(const Value& value) {
  const auto values = value.get_if<Tensor>()->values<float>();
  return {values.begin(), values.end()};
}

EqualParams train_together(const TrainingNet& net, int workers, int steps) {
  const executor::Executor executor(executor::make_runtime(""), {});
  Scope scope;
  std::vector<Value> none;
  check_ok((*executor.prepare(*net.startup, scope))->run({}, {}, none));
  const auto prepared = executor.prepare(*net.main, scope);
  check_ok(prepared.status());
  for (int step = 0; step < steps; ++step)
    check_ok((*prepared)->run(feeds_for(*net.main, 0, workers, step), {}, none));
  EqualParams out;
  for (const char* const name : {"emb", "w", "b"}) {
    if (net.main->root().find_var(name) != nullptr) out[name] = elements_of(*scope.find(name));
  }
  return out;
}

JobSpec equal_spec(int workers) {
  JobSpec spec;
  spec.strategy.set_a_sync(false);
  spec.workers = workers;
  spec.servers = {"127.0.0.1:7200", "127.0.0.1:7201"};
  return spec;
}

// Two servers and some workers, each in a thread.
class EqualJob {
 public:
  EqualJob(const TrainingNet& net, int workers) : net_(net) {
    auto job = FleetJob::create(*net.main, *net.startup, equal_spec(workers));
    check_ok(job.status());
    job_.emplace(*std::move(job));
  }

  EqualParams train(int steps) {
    for (int i = 0; i < 2; ++i) threads_.emplace_back([this, i] { serve(i); });
    for (int i = 0; i < job_->spec().workers; ++i)
      threads_.emplace_back([this, i, steps] { work(i, steps); });
    for (std::thread& thread : threads_) thread.join();
    return params_;
  }
  // The initial rows of the servers.
  std::vector<float> first_rows;
  bool gives_rows = true;  // servers start with the rows of the one process

 private:
  void serve(int index) {
    const auto role = job_->role({true, index});
    ASSERT_TRUE(role.ok()) << role.status().to_string();
    ServerSetup setup;
    setup.description = role->ps_desc;
    setup.workers = job_->spec().workers;
    setup.server = index;
    setup.servers = 2;
    const auto server = FleetServer::create(std::move(setup));
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    check_ok((*server)->serve(*transport_, job_->spec().servers[static_cast<size_t>(index)]));
  }

  void give_rows(FleetWorker& worker) {
    const auto& [id, entry] = *worker.tables()->all().begin();
    const auto gathered = worker.tables()->gather(entry);
    ASSERT_TRUE(gathered.ok()) << gathered.status().to_string();
    first_rows = elements_of(*gathered);
    if (!gives_rows) return;
    std::vector<int64_t> rows(12);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
    check_ok(
        worker.table_client().set_sparse(entry.layout, rows, train_together(net_, 1, 0).at("emb")));
  }

  void work(int index, int steps) {
    const auto role = job_->role({false, index});
    ASSERT_TRUE(role.ok()) << role.status().to_string();
    const auto made = FleetWorker::create(worker_setup(*job_, *role, index), transport_);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    FleetWorker& worker = **made;
    check_ok(worker.start());
    if (index == 0 && worker.tables() != nullptr) give_rows(worker);
    check_ok(worker.table_client().barrier(ps::CommBarrier::kWorker));
    std::vector<Value> none;
    for (int step = 0; step < steps; ++step) {
      const Status done = worker.step(feeds_for(*net_.main, index, 1, step), {}, none);
      check_ok(done);
      if (!done.ok()) break;
    }
    check_ok(worker.wait_for_all());
    if (index == 0) keep(worker);
    check_ok(worker.stop());
  }

  void keep(FleetWorker& worker) {
    if (worker.tables() != nullptr) {
      const auto gathered = worker.tables()->gather(worker.tables()->all().begin()->second);
      ASSERT_TRUE(gathered.ok()) << gathered.status().to_string();
      params_["emb"] = elements_of(*gathered);
    }
    for (const char* const name : {"w", "b"}) {
      if (net_.main->root().find_var(name) != nullptr)
        params_[name] = elements_of(*worker.scope().find(name));
    }
  }

  const TrainingNet& net_;
  std::optional<FleetJob> job_;
  std::shared_ptr<ps::Transport> transport_ = std::make_shared<ps::InprocTransport>();
  std::vector<std::thread> threads_;
  EqualParams params_;
};

void expect_equal_params(const EqualParams& found, const EqualParams& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [name, values] : wanted) {
    const std::vector<float>& own = found.at(name);
    ASSERT_EQ(own.size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(own[i], values[i], 2e-6F) << name << " " << i;
  }
}

void expect_equal_job(const TrainingNet& net, int workers) {
  EqualJob job(net, workers);
  expect_equal_params(job.train(5), train_together(net, workers, 5));
}

// Adam of rows in one process uses the powers of the next step, as the original's op does; the
// rules of servers do not (AdamOfRowsIsTold).
TEST(FleetEqual, RowsOfSeveralWorkersAreAveragedAsDenseParametersAre) {
  for (const int workers : {1, 2, 3})
    expect_equal_job(TrainingNet(kRowsAndLayer, optimizer_of(Sgd{}, kEqualRate)), workers);
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
  const char* const method = "but tables of servers have sgd and adam only";
  add("momentum", method, Momentum{});
  add("nesterov", method, Momentum{.use_nesterov = true});
  add("lars", method, LarsMomentum{});
  add("adagrad", method, Adagrad{});
  add("decayed adagrad", method, DecayedAdagrad{});
  add("adadelta", method, Adadelta{});
  add("rmsprop", method, RmsProp{});
  add("centered rmsprop", method, RmsProp{.centered = true});
  add("adamw", method, AdamW{});
  add("adamw without decay of some", method, AdamW{.exclude_from_weight_decay = {"b"}});
  add("adamax", method, Adamax{});
  add("lamb", method, Lamb{});
  add("ftrl", method, Ftrl{});
  add("dpsgd", method, Dpsgd{});
  const char* const rows = "an embedding on servers cannot be regularised";
  add("L2", rows, Sgd{}, [](auto& o) { o.regularization = L2Decay{0.1}; });
  add("L1", rows, Adam{}, [](auto& o) { o.regularization = L1Decay{0.1}; });
  add("L2 of the embedding", rows, Sgd{},
      [](auto& o) { o.parameter_options["emb"].regularizer = L2Decay{0.1}; });
  const char* const clip = "of a table, which is only on servers";
  add("clip by value", clip, Sgd{}, [](auto& o) { o.clip = ClipByValue{0.1, {}}; });
  add("clip by norm", clip, Sgd{}, [](auto& o) { o.clip = ClipByNorm{0.1}; });
  add("clip by global norm", clip, Sgd{}, [](auto& o) { o.clip = ClipByGlobalNorm{0.1, "g"}; });
  const char* const rate = "is computed by the program, or differs";
  add("own rate", rate, Sgd{}, [](auto& o) { o.parameter_options["w"].learning_rate = 2; });
  add("own rate of the embedding", rate, Adam{},
      [](auto& o) { o.parameter_options["emb"].learning_rate = 0.5; });
  add("schedule", rate, Sgd{}, [](auto& o) { o.learning_rate = Decay(NoamDecay{4, 10}); });
  add("warm-up", rate, Sgd{}, [](auto& o) { o.learning_rate = LinearWarmup{0.1, 5, 0, 0.1}; });
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

TEST(FleetEqual, StateThatDoesNotBeginWithZerosIsRefused) {
  TrainingNet net(kLayerAlone, optimizer_of(Adam{}, kEqualRate));
  const std::string moment = update_of(*net.main, "b")->first_input("Moment2").str();
  net.startup->root().writers_of(moment)[0]->set_float("value", 0.5F);
  EXPECT_THAT(job_refusal(net), HasSubstr("'Moment2' of 'b' starts with 'fill_constant&0.5'"));
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
