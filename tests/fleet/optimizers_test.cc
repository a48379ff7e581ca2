// Servers of a synchronous fleet job update parameters as the program's optimizer does in one
// process: every optimizer, with the initial state and the learning rate of each parameter.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fleet/equal_job.h"

namespace millrace::fleet {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

struct NamedMethod {
  const char* name;
  UpdateMethod method;
};

// Rules whose op updates sparse rows as dense ones. All rows are used in every step.
std::vector<NamedMethod> methods_of_rows() {
  return {{"momentum", Momentum{}},
          {"nesterov", Momentum{.momentum = 0.5, .use_nesterov = true, .rescale_grad = 0.5}},
          {"adagrad", Adagrad{}},
          {"adagrad from another start", Adagrad{.initial_accumulator_value = 0.25}},
          {"decayed adagrad", DecayedAdagrad{}},
          {"adadelta", Adadelta{}},
          {"rmsprop", RmsProp{.momentum = 0.5}},
          {"centered rmsprop", RmsProp{.epsilon = 1e-3, .centered = true}},
          {"adamax", Adamax{.beta1 = 0.8}},
          {"ftrl", Ftrl{}},
          {"ftrl with decay", Ftrl{.l1 = 0.01, .l2 = 0.1, .lr_power = -0.4}}};
}

// One worker alone does not use all rows in every step; every_job_test.cc has such jobs.
void expect_equal_jobs(const TrainingNet& net) {
  for (const int workers : {2, 4}) {
    for (const int servers : {1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} workers, {} servers", workers, servers));
      expect_equal_job(net, workers, servers);
    }
  }
}

TEST(FleetOptimizers, RowsAndDenseParametersAreUpdatedAsInOneProcess) {
  expect_equal_jobs(TrainingNet(kRowsAndLayer, optimizer_of(Sgd{}, kEqualRate)));
  for (const auto& [name, method] : methods_of_rows()) {
    SCOPED_TRACE(name);
    expect_equal_jobs(TrainingNet(kRowsAndLayer, optimizer_of(method, kEqualRate)));
  }
}

TEST(FleetOptimizers, OptimizersOfDenseParameters) {
  for (const auto& [name, method] :
       {NamedMethod{"adamw", AdamW{.weight_decay = 0.25}},
        NamedMethod{"adamw without decay of some",
                    AdamW{.weight_decay = 0.25, .exclude_from_weight_decay = {"b"}}},
        NamedMethod{"lazy adamw", AdamW{.lazy_mode = true}}}) {
    SCOPED_TRACE(name);
    expect_equal_job(TrainingNet(kLayerAlone, optimizer_of(method, kEqualRate)), 2);
  }
}

// The norms of lamb need whole parameters.
TEST(FleetOptimizers, LambUpdatesParametersThatAreOnOneServer) {
  for (const Lamb& method :
       {Lamb{}, Lamb{.lamb_weight_decay = 0.5, .exclude_from_weight_decay = {"b"}}})
    expect_equal_job(TrainingNet(kLayerAlone, optimizer_of(method, kEqualRate)), 2, 1);
  const TrainingNet net(kLayerAlone, optimizer_of(Lamb{}, kEqualRate));
  const auto job = FleetJob::create(*net.main, *net.startup, equal_spec(2));
  ASSERT_TRUE(job.ok());
  EXPECT_THAT(job->role({true, 0}).status().message(),
              HasSubstr("'w' is updated by lamb, which needs the whole parameter, but 2 servers"));
}

TEST(FleetOptimizers, DecayInTheUpdate) {
  MinimizeOptions options = optimizer_of(Momentum{.fuse_l2 = true}, kEqualRate);
  options.regularization = L2Decay{0.25};
  expect_equal_job(TrainingNet(kRowsAndLayer, options), 2);
}

// Servers clip and regularize rows after they have averaged them over the workers.
TEST(FleetOptimizers, RowsAreClippedByValueAndRegularized) {
  for (const auto& [name, method] : {NamedMethod{"sgd", Sgd{}}, {"momentum", Momentum{}}}) {
    SCOPED_TRACE(name);
    for (const Regularizer& decay : {Regularizer(L1Decay{0.125}), Regularizer(L2Decay{0.25})}) {
      MinimizeOptions options = optimizer_of(method, kEqualRate);
      options.regularization = decay;
      expect_equal_job(TrainingNet(kRowsAndLayer, options), 2);
    }
    MinimizeOptions options = optimizer_of(method, kEqualRate);
    options.parameter_options["emb"].clip = ClipByValue{0.01, -0.02};
    expect_equal_job(TrainingNet(kRowsAndLayer, options), 2);
  }
}

TEST(FleetOptimizers, ParametersHaveTheirOwnRates) {
  for (const auto& [name, method] : methods_of_rows()) {
    SCOPED_TRACE(name);
    MinimizeOptions options = optimizer_of(method, kEqualRate);
    options.parameter_options["w"].learning_rate = 0.5;
    options.parameter_options["emb"].learning_rate = 0.25;
    expect_equal_job(TrainingNet(kRowsAndLayer, options), 2);
  }
  MinimizeOptions sgd = optimizer_of(Sgd{}, kEqualRate);
  sgd.parameter_options["b"].learning_rate = 2;
  sgd.parameter_options["emb"].learning_rate = 0;
  expect_equal_job(TrainingNet(kRowsAndLayer, sgd), 2);
  MinimizeOptions adam = optimizer_of(Adam{.epsilon = 0.25}, kEqualRate);
  adam.parameter_options["b"].learning_rate = 0.5;
  expect_equal_job(TrainingNet(kLayerAlone, adam), 2);
}

TEST(FleetOptimizers, WorkersComputeSchedules) {
  const LearningRate schedules[] = {
      Decay(NoamDecay{4, 3}),
      Decay(ExponentialDecay{0.1, 2, 0.5}),
      Decay(ExponentialDecay{0.1, 2, 0.5, true}),
      Decay(NaturalExpDecay{0.1, 2, 0.5}),
      Decay(InverseTimeDecay{0.1, 2, 0.5, true}),
      Decay(PolynomialDecay{0.1, 3, 0.01, 2}),
      Decay(PolynomialDecay{0.1, 3, 0.01, 1, true}),
      Decay(PiecewiseDecay{{1, 3}, {0.1, 0.05, 0.01}}),
      Decay(CosineDecay{0.1, 2, 3}),
      LinearWarmup{0.1, 3, 0, 0.1},
      LinearWarmup{Decay(ExponentialDecay{0.1, 2, 0.5}), 3, 0, 0.1},
  };
  for (const LearningRate& schedule : schedules) {
    SCOPED_TRACE(&schedule - schedules);
    MinimizeOptions options = optimizer_of(Momentum{}, schedule);
    options.parameter_options["w"].learning_rate = 0.5;
    expect_equal_jobs(TrainingNet(kRowsAndLayer, options));
  }
}

// Sets the initial value of a state.
void start_with(TrainingNet& net, const char* slot, float value) {
  for (const Op& op : net.main->root().ops()) {
    if (op.find_input("LearningRate") == nullptr || op.find_input("Param") == nullptr) continue;
    net.startup->root().writers_of(op.first_input(slot))[0]->set_float("value", value);
  }
}

TEST(FleetOptimizers, StateStartsAsTheProgramSays) {
  for (const char* const slot : {"Moment1", "Moment2", "Beta1Pow", "Beta2Pow"}) {
    SCOPED_TRACE(slot);
    TrainingNet net(kLayerAlone, optimizer_of(Adam{.epsilon = 1e-3}, kEqualRate));
    start_with(net, slot, 0.375F);
    expect_equal_job(net, 2);
  }
  TrainingNet velocity(kRowsAndLayer, optimizer_of(Momentum{}, kEqualRate));
  start_with(velocity, "Velocity", 0.25F);
  expect_equal_job(velocity, 2);
}

TEST(FleetOptimizers, WhereRowsAreUpdatedLessOftenIsTold) {
  const auto remarks = [](const UpdateMethod& method) {
    const TrainingNet net(kRowsAndLayer, optimizer_of(method, kEqualRate));
    const auto job = FleetJob::create(*net.main, *net.startup, equal_spec(2));
    EXPECT_TRUE(job.ok()) << job.status().to_string();
    return job->role({false, 0})->programs.remarks;
  };
  const auto told = HasSubstr("only in steps that use them");
  EXPECT_THAT(remarks(Momentum{}), Contains(told));
  EXPECT_THAT(remarks(RmsProp{}), Contains(told));
  EXPECT_THAT(remarks(Adagrad{}), Not(Contains(told)));
  EXPECT_THAT(remarks(Ftrl{}), Not(Contains(told)));
}

JobSpec geo_spec() {
  JobSpec spec = equal_spec(2);
  spec.strategy.set_a_sync(true);
  check_ok(spec.strategy.set_a_sync_configs({{"k_steps", int64_t{2}}}));
  return spec;
}

TEST(FleetOptimizers, WhichRowsGeoWorkersDoNotSendIsTold) {
  const auto remarks = [](const UpdateMethod& method, bool decays = false) {
    MinimizeOptions options = optimizer_of(method, kEqualRate);
    if (decays) options.regularization = L1Decay{0.25};
    const TrainingNet net(kRowsAndLayer, options);
    const auto job = FleetJob::create(*net.main, *net.startup, geo_spec());
    EXPECT_TRUE(job.ok()) << job.status().to_string();
    return job->role({false, 0})->programs.remarks;
  };
  const auto told = HasSubstr("geo workers send only rows that they have looked up");
  EXPECT_THAT(remarks(Momentum{}), Contains(told));
  EXPECT_THAT(remarks(Lamb{}), Contains(told));
  EXPECT_THAT(remarks(Adam{}), Contains(told));
  EXPECT_THAT(remarks(Adam{.lazy_mode = true}), Not(Contains(told)));
  EXPECT_THAT(remarks(Sgd{}), Not(Contains(told)));
  EXPECT_THAT(remarks(Sgd{}, true), Contains(told));
}

TEST(FleetOptimizers, GeoWorkersUpdateRowsByTheirGradients) {
  for (const auto& [name, method] :
       {NamedMethod{"lars_momentum", LarsMomentum{}}, {"dpsgd", Dpsgd{}}}) {
    const TrainingNet net(kRowsAndLayer, optimizer_of(method, kEqualRate));
    const auto job = FleetJob::create(*net.main, *net.startup, geo_spec());
    ASSERT_TRUE(job.ok()) << job.status().to_string();
    const auto role = job->role({false, 0});
    EXPECT_EQ(role.status().code(), StatusCode::kUnimplemented);
    EXPECT_EQ(role.status().message(),
              fmt::format("'emb' is updated by '{}' on the workers: Grad must be dense, found "
                          "selected rows",
                          name));
  }
}

}  // namespace
}  // namespace millrace::fleet
