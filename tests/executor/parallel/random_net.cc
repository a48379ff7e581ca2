#include "tests/executor/parallel/random_net.h"

#include <random>

#include <gtest/gtest.h>

#include "executor/standard_runtime.h"
#include "frontend/layers.h"
#include "tests/executor/parallel/small_job.h"

namespace millrace::executor {
namespace {

constexpr int32_t kClasses = 4;
constexpr int32_t kIds = 20;
constexpr int32_t kRandomNetColumns = 10;
constexpr int32_t kSide = 8;
constexpr int32_t kTime = 4;

// Each number of a feed is computed from its position, step and var.
uint32_t mixed(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t x = a * 0x9e3779b1U + b * 0x85ebca77U + c * 0xc2b2ae3dU;
  x = (x ^ (x >> 15U)) * 0x2c1b3c6dU;
  return x ^ (x >> 12U);
}

}  // namespace

class RandomNet::Maker {
 public:
  Maker(RandomNet& made, uint32_t seed) : made_(made), net_(made.net_), random_(seed) {}

  void make() {
    label_ = net_.data("label", {-1, 1}, DType::kInt64);
    std::vector<VarRef> features;
    if (chance(60)) features.push_back(image());
    if (features.empty() || chance(40)) features.push_back(net_.data("x", {-1, kRandomNetColumns}));
    if (chance(40)) ids(features);
    VarRef h = features.size() == 1 ? features[0] : layers::concat(features, 1);
    const int count = pick(1, 3);
    for (int i = 0; i < count; ++i) h = dense_layer(h);
    minimize(h);
  }

 private:
  int pick(int low, int high) { return low + static_cast<int>(random_() % (high - low + 1)); }
  bool chance(uint32_t percent) { return random_() % 100 < percent; }
  void say(const std::string& word) { made_.text_ += (made_.text_.empty() ? "" : " ") + word; }
  std::string activation() {
    const char* const all[] = {"", "relu", "tanh", "sigmoid"};
    return all[pick(0, 3)];
  }

  VarRef conv(const VarRef& x, int64_t channels, int64_t size, const std::string& act,
              int groups = 1) {
    const auto padding = static_cast<int32_t>(size / 2);
    say("conv" + std::to_string(size));
    return layers::conv2d(x, channels, {size, size},
                          {.padding = {padding, padding}, .groups = groups, .act = act});
  }

  VarRef image() {
    VarRef h = conv(net_.data("image", {-1, 3, kSide, kSide}), 8, 3, activation());
    const int count = pick(1, 3);
    for (int i = 0; i < count; ++i) {
      switch (pick(0, 5)) {
        case 0:
          h = conv(h, 8, 1, activation());
          break;
        case 1:
          h = conv(h, 8, 3, activation(), 8);
          break;
        case 2:
          say("residual");
          h = layers::relu(layers::elementwise_add(h, conv(conv(h, 16, 3, "relu"), 8, 3, "")));
          break;
        case 3:
          say("pool");
          h = layers::pool2d(h, {2, 2}, {.type = chance(50) ? "max" : "avg"});
          break;
        default:
          say("batch_norm");
          made_.normalises_batches_ = true;
          h = layers::batch_norm(h, {.act = chance(50) ? "relu" : ""});
      }
    }
    return layers::fc(layers::pool2d(h, {2, 2}, {.type = "avg", .stride = {2, 2}}), 12);
  }

  void ids(std::vector<VarRef>& features) {
    const bool sparse = chance(70);
    say(sparse ? "sparse_ids" : "ids");
    const VarRef table =
        net_.parameter({kIds, 6}, {.name = "table", .initializer = init::Uniform{-0.3, 0.3}});
    for (const char* const name : {"id0", "id1"}) {
      features.push_back(layers::lookup_table(net_.data(name, {-1, 1}, DType::kInt64), table,
                                              {.is_sparse = sparse}));
    }
  }

  VarRef dense_layer(const VarRef& x) {
    switch (pick(0, 6)) {
      case 0:
        say("residual_fc");
        return layers::elementwise_add(layers::fc(x, 12),
                                       layers::fc(layers::fc(x, 16, {.act = "relu"}), 12));
      case 1:
        say("layer_norm");
        return layers::layer_norm(layers::fc(x, 12), {.act = activation()});
      case 2:
        return loop(x);
      case 3:
        return branch(x);
      case 4:
        return attention(x);
      case 5:
        say("dropout_off");
        return layers::dropout(layers::fc(x, 12, {.act = "tanh"}), 0.0, {.upscale_in_train = true});
      default:
        say("fc");
        return layers::fc(x, 12, {.act = activation()});
    }
  }

  // A loop with weights inside, over an array.
  VarRef loop(const VarRef& x) {
    say("while");
    has_loop_ = true;
    const VarRef i = layers::fill_constant(net_, {1}, DType::kInt64, 0);
    const VarRef n = layers::fill_constant(net_, {1}, DType::kInt64, pick(1, 3));
    const VarRef states = layers::array_write(layers::fc(x, 8, {.act = "tanh"}), i);
    const VarRef more = layers::less_than(i, n);
    layers::while_loop(more, [&] {
      const VarRef next = layers::fc(layers::array_read(states, i), 8, {.act = "tanh"});
      layers::increment(i);
      layers::array_write(next, i, states);
      layers::less_than(i, n, more);
    });
    return layers::array_read(states, i);
  }

  // The condition depends on a weight, which all devices share.
  VarRef branch(const VarRef& x) {
    say("cond");
    const VarRef h = layers::fc(x, 10, {.act = "relu"});
    const VarRef gate = net_.parameter(
        {1}, {.name = "gate", .initializer = init::Constant{chance(50) ? 0.5 : -0.5}});
    const VarRef zero = layers::fill_constant(net_, {1}, DType::kFloat32, 0);
    return layers::cond(
        layers::less_than(gate, zero), [&] { return layers::fc(h, 8, {.act = "tanh"}); },
        [&] { return layers::fc(layers::scale(h, 0.5), 8, {.act = "sigmoid"}); });
  }

  VarRef attention(const VarRef& x) {
    say("attention");
    constexpr int32_t kWidth = 8;
    const VarRef t = layers::reshape(layers::fc(x, kTime * kWidth), {-1, kTime, kWidth});
    const auto project = [&] {
      const VarRef p = layers::fc(t, kWidth, {.num_flatten_dims = 2});
      return layers::transpose(layers::reshape(p, {-1, kTime, 2, kWidth / 2}), {0, 2, 1, 3});
    };
    const VarRef q = project();
    const VarRef k = project();
    const VarRef v = project();
    const VarRef a =
        layers::softmax(layers::matmul(layers::scale(q, 0.5), k, {.transpose_y = true}));
    const VarRef c = layers::transpose(layers::matmul(a, v), {0, 2, 1, 3});
    const VarRef joined = layers::reshape(c, {-1, kTime, kWidth});
    const VarRef y = layers::layer_norm(layers::elementwise_add(t, joined), {.begin_norm_axis = 2});
    return layers::reshape(y, {-1, kTime * kWidth});
  }

  UpdateMethod method() {
    switch (pick(0, 4)) {
      case 0:
        return Sgd{};
      case 1:
        return Momentum{.use_nesterov = chance(50)};
      case 2:
        return Adam{.epsilon = 1e-2};
      case 3:
        return Adagrad{.epsilon = 1e-2, .initial_accumulator_value = 0.1};
      default:
        return RmsProp{.epsilon = 1e-2};
    }
  }

  MinimizeOptions how() {
    MinimizeOptions options{.method = method(), .learning_rate = 0.01};
    if (chance(30)) {
      options.learning_rate =
          Decay(ExponentialDecay{.learning_rate = 0.02, .decay_steps = 2, .decay_rate = 0.5});
    }
    const int clip = pick(0, 5);
    if (clip == 0) options.clip = ClipByGlobalNorm{.clip_norm = 0.5};
    if (clip == 1) options.clip = ClipByNorm{.clip_norm = 0.2};
    if (clip == 2) options.clip = ClipByValue{.max = 0.05};
    if (chance(30)) options.regularization = L2Decay{1e-2};
    say("method" + std::to_string(options.method.index()) + "/clip" + std::to_string(clip));
    return options;
  }

  void minimize(const VarRef& h) {
    const VarRef scores = layers::fc(h, kClasses);
    VarRef loss = layers::mean(layers::softmax_with_cross_entropy(scores, label_));
    VarRef second;
    if (chance(50)) {
      const VarRef guess = layers::fc(h, 1);
      second = layers::mean(layers::square_error_cost(guess, net_.data("target", {-1, 1})));
    }
    // gradients of a loop leave its counter at the start, so only one back-propagation is possible
    const bool apart = second.ok() && !has_loop_ && chance(60);
    if (second.ok()) say(apart ? "two_losses_apart" : "two_losses");
    if (second.ok() && !apart) loss = layers::elementwise_add(loss, layers::scale(second, 0.5));
    made_.loss_ = loss.name();
    made_.updates_between_ = apart;
    const MinimizeOptions options = how();
    EXPECT_TRUE(net_.minimize(loss, options).ok()) << net_.status().to_string();
    if (apart) {
      EXPECT_TRUE(net_.minimize(second, {.method = Sgd{}, .learning_rate = 0.01}).ok())
          << net_.status().to_string();
    }
  }

  RandomNet& made_;
  Network& net_;
  std::mt19937 random_;
  VarRef label_;
  bool has_loop_ = false;
};

RandomNet::RandomNet(uint32_t seed) : net_(static_cast<int32_t>(seed) + 1), seed_(seed) {
  Maker(*this, seed).make();
}

std::string RandomNet::describe() const {
  return "net " + std::to_string(seed_) + ": " + text_;
}

NamedValues RandomNet::feeds(int64_t rows, int step) const {
  NamedValues feeds;
  const auto number = static_cast<uint32_t>(step);
  uint32_t var_number = 0;
  for (const Var& var : main().root().vars()) {
    if (!var.spec().need_check_feed) continue;
    ++var_number;
    std::vector<int64_t> dims = var.dims().vec();
    dims[0] = rows;
    auto& tensor = feeds[var.name().str()].as<Tensor>();
    EXPECT_TRUE(tensor.resize(var.dtype(), dims).ok());
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      const uint32_t value = mixed(static_cast<uint32_t>(i), number, var_number);
      if (var.dtype() == DType::kInt64) {
        tensor.data<int64_t>()[i] = value % (var.name() == "label" ? kClasses : kIds);
      } else {
        tensor.data<float>()[i] = static_cast<float>(value % 2001) / 1000.0F - 1.0F;
      }
    }
  }
  return feeds;
}

RandomNet::Run RandomNet::start(ParallelOptions options) const {
  options.loss_name = loss_;
  if (normalises_batches_) options.build_strategy.sync_batch_norm = true;
  Run run{std::make_unique<Scope>(), nullptr};
  const auto startup = Executor(standard_runtime()).prepare(net_.startup(), *run.scope);
  EXPECT_TRUE(startup.ok()) << startup.status().to_string();
  std::vector<Value> none;
  const Status status = (*startup)->run({}, {}, none);
  EXPECT_TRUE(status.ok()) << status.to_string();
  auto made = ParallelExecutor::create(standard_runtime(), main(), *run.scope, options);
  EXPECT_TRUE(made.ok()) << describe() << "\n" << made.status().to_string();
  if (made.ok()) run.executor = *std::move(made);
  return run;
}

std::vector<std::pair<std::string, std::vector<float>>> RandomNet::variables(const Run& run) const {
  std::vector<std::pair<std::string, std::vector<float>>> all;
  for (const Var& var : main().root().vars()) {
    if (var.persistable() && var.dtype() == DType::kFloat32)
      all.emplace_back(var.name().str(), floats(*run.scope->find(var.name())));
  }
  return all;
}

}  // namespace millrace::executor
