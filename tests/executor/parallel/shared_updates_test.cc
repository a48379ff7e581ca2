// Updates that devices share produce the same bits as updates that each device makes separately.

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/standard_runtime.h"
#include "tests/executor/parallel/random_net.h"
#include "tests/executor/parallel/small_job.h"

namespace millrace::executor {
namespace {

using ::testing::HasSubstr;
using Vars = std::vector<std::pair<std::string, std::vector<float>>>;

constexpr int64_t kSharedUpdatesRows = 24;

constexpr const char* kSharedUpdatesNet = R"(# millrace
block 0 {
  param w: f32(120, 300)
  persist lr: f32(1)
  persist p1: f32(1)
  persist p2: f32(1)
  persist a: f32(120, 300)
  persist b: f32(120, 300)
  persist c: f32(120, 300)
  var x: f32(-1, 120)
  var y: f32(-1, 300)
  var s: f32(-1, 300)
  var loss: f32(1)
  var loss@GRAD: f32(1)
  var s@GRAD: f32(-1, 300)
  var y@GRAD: f32(-1, 300)
  var w@GRAD: f32(120, 300)
  mul X=x Y=w -> Out=y {op_role: 0}
  square X=y -> Out=s {op_role: 0}
  mean X=s -> Out=loss {op_role: 256}
  fill_constant -> Out=loss@GRAD {shape: [1], value: 1.0, dtype: 5, op_role: 257}
  mean_grad X=s Out@GRAD=loss@GRAD -> X@GRAD=s@GRAD {op_role: 1}
  square_grad X=y Out@GRAD=s@GRAD -> X@GRAD=y@GRAD {op_role: 1}
  mul_grad X=x Y=w Out@GRAD=y@GRAD -> Y@GRAD=w@GRAD {op_role: 1, op_role_var: ["w", "w@GRAD"]}
)";

std::vector<float> numbers(size_t count, float scale) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i)
    values.push_back(scale * (static_cast<float>((i * 37 + 11) % 101) / 100.0F - 0.3F));
  return values;
}

// A parameter of several chunks that one op updates; states a, b and c start above zero.
struct Net {
  Net(const std::string& update, ParallelOptions options) {
    constexpr int64_t kIn = 120;
    constexpr int64_t kOut = 300;
    scope.local("w") = tensor_value({kIn, kOut}, numbers(kIn * kOut, 0.5F));
    for (const char* const state : {"a", "b", "c"})
      scope.local(state) =
          tensor_value({kIn, kOut}, std::vector<float>(static_cast<size_t>(kIn * kOut), 0.25F));
    scope.local("lr") = tensor_value({1}, {0.05F});
    scope.local("p1") = tensor_value({1}, {0.9F});
    scope.local("p2") = tensor_value({1}, {0.999F});
    const auto program = program_of(std::string(kSharedUpdatesNet) + "  " + update + "\n}\n");
    auto made = ParallelExecutor::create(standard_runtime(), *program, scope, options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (made.ok()) executor = *std::move(made);
  }

  Status step(const std::vector<std::string>& fetches = {}, int64_t rows = 6) {
    NamedValues feeds = std::exchange(extra, {});
    feeds["x"] = tensor_value({rows, 120}, numbers(static_cast<size_t>(rows) * 120, 1.0F));
    return executor->run(ParallelFeeds::split(feeds), fetches, results);
  }
  [[nodiscard]] bool shares() const {
    return executor->plan_text().find("shared_updates_end") != std::string::npos;
  }
  std::vector<float> value(int device, const char* name) const {
    return floats(*executor->local_scope(device).find(name));
  }
  void expect_same(const Net& other) const {
    for (const char* const name : {"w", "a", "b", "c", "p1", "p2"}) {
      for (int d = 0; d < executor->device_count(); ++d)
        EXPECT_EQ(value(d, name), other.value(d, name)) << name << " on device " << d;
    }
  }

  Scope scope;
  NamedValues extra;  ///< also fed in the next step
  std::unique_ptr<ParallelExecutor> executor;
  std::vector<Value> results;
};

ParallelOptions sharing(bool shared, int count = 2) {
  ParallelOptions options = devices(count);
  options.build_strategy.share_updates = shared;
  return options;
}

const char* const kSgd = "sgd Param=w Grad=w@GRAD LearningRate=lr -> ParamOut=w {op_role: 2}";
const char* const kMomentum =
    "momentum Param=w Grad=w@GRAD Velocity=a LearningRate=lr -> ParamOut=w VelocityOut=a {mu: 0.9, "
    "op_role: 2}";
const char* const kAdam =
    "adam Param=w Grad=w@GRAD Moment1=a Moment2=b Beta1Pow=p1 Beta2Pow=p2 LearningRate=lr -> "
    "ParamOut=w Moment1Out=a Moment2Out=b Beta1PowOut=p1 Beta2PowOut=p2 {op_role: 2}";

TEST(SharedUpdates, ServeEveryElementwiseOptimizer) {
  const std::string given = " Param=w Grad=w@GRAD LearningRate=lr ";
  const std::vector<std::string> updates = {
      kSgd,
      kMomentum,
      kAdam,
      "momentum" + given +
          "Velocity=a -> ParamOut=w VelocityOut=a {mu: 0.9, use_nesterov: true, "
          "regularization_method: \"l2_decay\", regularization_coeff: 0.01, op_role: 2}",
      "adamw" + given +
          "Moment1=a Moment2=b Beta1Pow=p1 Beta2Pow=p2 -> ParamOut=w Moment1Out=a Moment2Out=b "
          "Beta1PowOut=p1 Beta2PowOut=p2 {coeff: 0.1, with_decay: true, op_role: 2}",
      "adamax" + given +
          "Moment=a InfNorm=b Beta1Pow=p1 -> ParamOut=w MomentOut=a InfNormOut=b {op_role: 2}",
      "adagrad" + given + "Moment=a -> ParamOut=w MomentOut=a {op_role: 2}",
      "decayed_adagrad" + given + "Moment=a -> ParamOut=w MomentOut=a {op_role: 2}",
      "adadelta" + given +
          "AvgSquaredGrad=a AvgSquaredUpdate=b -> ParamOut=w AvgSquaredGradOut=a "
          "AvgSquaredUpdateOut=b {op_role: 2}",
      "rmsprop" + given +
          "MeanSquare=a Moment=b -> ParamOut=w MeanSquareOut=a MomentOut=b {op_role: 2}",
      "rmsprop" + given +
          "MeanSquare=a Moment=b MeanGrad=c -> ParamOut=w MeanSquareOut=a MomentOut=b "
          "MeanGradOut=c "
          "{centered: true, op_role: 2}",
      "ftrl" + given +
          "SquaredAccumulator=a LinearAccumulator=b -> ParamOut=w SquaredAccumOut=a "
          "LinearAccumOut=b {l1: 0.1, op_role: 2}",
      "proximal_gd" + given + "-> ParamOut=w {l1: 0.01, op_role: 2}",
      "proximal_adagrad" + given + "Moment=a -> ParamOut=w MomentOut=a {l1: 0.01, op_role: 2}",
  };
  for (const std::string& update : updates) {
    SCOPED_TRACE(update);
    for (const int count : {2, 3}) {
      Net shared(update, sharing(true, count));
      Net apart(update, sharing(false, count));
      EXPECT_TRUE(shared.shares());
      EXPECT_FALSE(apart.shares());
      const auto before = shared.value(0, "w");
      for (int step = 0; step < 3; ++step) {
        ASSERT_TRUE(shared.step().ok());
        ASSERT_TRUE(apart.step().ok());
      }
      EXPECT_NE(shared.value(0, "w"), before);
      shared.expect_same(apart);
    }
  }
}

// The sum of a gradient is available if it is fetched; the program then runs without sharing.
TEST(SharedUpdates, GiveWayToFetchedGradients) {
  Net shared(kMomentum, sharing(true));
  Net apart(kMomentum, sharing(false));
  for (int step = 0; step < 5; ++step) {
    const bool asks = step == 2 || step == 4;
    const std::vector<std::string> fetches =
        asks ? std::vector<std::string>{"w@GRAD"} : std::vector<std::string>{};
    ASSERT_TRUE(shared.step(fetches).ok());
    ASSERT_TRUE(apart.step(fetches).ok());
    if (asks) {
      EXPECT_EQ(floats(shared.results[0]), floats(apart.results[0]));
    }
    EXPECT_EQ(shared.shares(), step < 2);
    shared.expect_same(apart);
  }
}

// Devices with different values keep them.
TEST(SharedUpdates, GiveWayToFedStates) {
  Net shared(kMomentum, sharing(true));
  Net apart(kMomentum, sharing(false));
  for (int step = 0; step < 3; ++step) {
    for (Net* const net : {&shared, &apart}) {
      if (step != 1) {
        ASSERT_TRUE(net->step().ok());
        continue;
      }
      std::vector<NamedValues> feeds(2);
      for (size_t d = 0; d < 2; ++d) {
        feeds[d]["x"] = tensor_value({3, 120}, numbers(360, 1.0F));
        feeds[d]["a"] = tensor_value({120, 300}, numbers(36000, d == 0 ? 0.1F : 0.2F));
      }
      const Status status = net->executor->run(ParallelFeeds::list(feeds), {}, net->results);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    EXPECT_EQ(shared.shares(), step < 1);
    shared.expect_same(apart);
  }
  EXPECT_NE(shared.value(0, "a"), shared.value(1, "a"));
}

// The same if their learning rates differ, once or permanently.
TEST(SharedUpdates, LeaveDevicesWithOtherRatesApart) {
  Net shared(kAdam, sharing(true));
  Net apart(kAdam, sharing(false));
  for (int step = 0; step < 4; ++step) {
    for (Net* const net : {&shared, &apart}) {
      net->extra["lr"] = step == 1 ? tensor_value({2}, {0.05F, 0.2F}) : tensor_value({1}, {0.05F});
      ASSERT_TRUE(net->step().ok());
    }
    EXPECT_TRUE(shared.shares());
    shared.expect_same(apart);
  }
  EXPECT_NE(shared.value(0, "w"), shared.value(1, "w"));
}

// An executor that shares scopes with one that shares updates leaves each device its separate
// states.
TEST(SharedUpdates, EndWhereAnotherExecutorTakesOver) {
  std::vector<std::vector<float>> found;
  for (const bool is_shared : {true, false}) {
    Net net(kMomentum, sharing(is_shared));
    ASSERT_TRUE(net.step().ok());
    ParallelOptions options = sharing(true);
    options.share_vars_from = net.executor.get();
    const auto program = program_of(std::string(kSharedUpdatesNet) + "  " + kMomentum + "\n}\n");
    const auto other = ParallelExecutor::create(standard_runtime(), *program, net.scope, options);
    ASSERT_TRUE(other.ok()) << other.status().to_string();
    NamedValues feeds;
    feeds["x"] = tensor_value({6, 120}, numbers(720, 1.0F));
    std::vector<Value> none;
    for (int round = 0; round < 2; ++round) {
      ASSERT_TRUE((*other)->run(ParallelFeeds::split(feeds), {}, none).ok());
      ASSERT_TRUE(net.step().ok());
    }
    for (int d = 0; d < 2; ++d) {
      for (const char* const name : {"w", "a"}) found.push_back(net.value(d, name));
    }
  }
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(found[i], found[i + 4]) << i;
}

// Ops that read a parameter after its update wait for all devices.
TEST(SharedUpdates, AreCompleteBeforeTheyAreRead) {
  const std::string update = std::string(kSgd) + "\n  scale X=w -> Out=c {scale: 2.0, op_role: 2}";
  Net shared(update, sharing(true));
  Net apart(update, sharing(false));
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(shared.step({"w"}).ok());
    ASSERT_TRUE(apart.step({"w"}).ok());
    EXPECT_EQ(floats(shared.results[0]), floats(apart.results[0]));
    shared.expect_same(apart);
  }
  const std::string plan = shared.executor->plan_text();
  EXPECT_LT(plan.rfind("shared_updates_end"), plan.rfind("scale"));
}

TEST(SharedUpdates, LeaveOutWhatNeedsWholeGradients) {
  for (const char* const update :
       {"clip_by_norm X=w@GRAD -> Out=w@GRAD {max_norm: 0.1, op_role: 2}\n  sgd Param=w "
        "Grad=w@GRAD LearningRate=lr -> ParamOut=w {op_role: 2}",
        "lars_momentum Param=w Grad=w@GRAD Velocity=a LearningRate=lr -> ParamOut=w VelocityOut=a "
        "{mu: 0.9, op_role: 2}"}) {
    Net shared(update, sharing(true));
    Net apart(update, sharing(false));
    EXPECT_FALSE(shared.shares()) << update;
    ASSERT_TRUE(shared.step().ok());
    ASSERT_TRUE(apart.step().ok());
    shared.expect_same(apart);
  }
}

// Fails in the given op on one device.
class SharedUpdatesTestSaboteur final : public OpObserver {
 public:
  explicit SharedUpdatesTestSaboteur(std::string type) : type_(std::move(type)) {}
  Status after(const CompiledOp& compiled, Value* const* /*table*/) override {
    return compiled.op->type() == type_ ? Status(StatusCode::kExecution, "sabotage") : Ok();
  }

 private:
  std::string type_;
};

TEST(SharedUpdates, SayWhatAnErrorHasLeftBehind) {
  for (const bool is_update : {false, true}) {
    Net net(kMomentum, sharing(true));
    ASSERT_TRUE(net.step().ok());
    const auto before = net.value(1, "w");
    SharedUpdatesTestSaboteur saboteur(is_update ? "momentum" : "mul_grad");
    net.executor->observe(1, &saboteur);
    const std::string text = net.step().to_string();
    EXPECT_THAT(text, HasSubstr("sabotage"));
    EXPECT_THAT(text, HasSubstr(is_update ? "may have been partly updated" : "are unchanged"));
    EXPECT_EQ(net.value(1, "w") == before, !is_update);
    net.executor->observe(1, nullptr);
    ASSERT_TRUE(net.step().ok());
    EXPECT_EQ(net.value(0, "w"), net.value(1, "w"));
  }
}

// Losses and variables of some steps, and whether updates were shared.
struct Trained {
  std::vector<std::vector<float>> losses;
  Vars vars;
  bool shared = false;
};

Trained train_shared_updates(const RandomNet& net, const ParallelOptions& options) {
  const RandomNet::Run run = net.start(options);
  Trained trained;
  std::vector<Value> results;
  for (int step = 0; step < 4; ++step) {
    const NamedValues feeds = net.feeds(kSharedUpdatesRows, step);
    const Status status = run.executor->run(ParallelFeeds::split(feeds), {net.loss()}, results);
    EXPECT_TRUE(status.ok()) << net.describe() << "\n" << status.to_string();
    if (!status.ok()) return trained;
    trained.losses.push_back(floats(results[0]));
  }
  trained.vars = net.variables(run);
  trained.shared = run.executor->plan_text().find("shared_updates_end") != std::string::npos;
  return trained;
}

TEST(SharedUpdates, GiveTheBitsOfUpdatesApart) {
  int shared_nets = 0;
  for (uint32_t seed = 0; seed < 24; ++seed) {
    const RandomNet net(seed + 4000);
    ParallelOptions options = sharing(false, 2 + static_cast<int>(seed % 3));
    options.exec_strategy.num_threads = static_cast<int>(seed % 4) * 2;
    options.build_strategy.micro_batches = !net.updates_between() && seed % 5 == 0 ? 2 : 1;
    const Trained apart = train_shared_updates(net, options);
    options.build_strategy.share_updates = true;
    const Trained shared = train_shared_updates(net, options);
    EXPECT_FALSE(apart.shared) << net.describe();
    shared_nets += shared.shared ? 1 : 0;
    EXPECT_EQ(shared.losses, apart.losses) << net.describe();
    EXPECT_EQ(shared.vars, apart.vars) << net.describe();
    if (HasFailure()) return;
  }
  EXPECT_GT(shared_nets, 8);
}

}  // namespace
}  // namespace millrace::executor
