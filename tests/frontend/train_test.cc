// A network written with the front end trains.
#include <cmath>

#include <gtest/gtest.h>

#include "executor/session.h"
#include "framework/program.h"
#include "frontend/layers.h"

namespace millrace {
namespace {

// Rows of x and x * (1, -2) + 0.5.
Arrays line_data() {
  std::vector<float> x;
  std::vector<float> y;
  for (int i = 0; i < 16; ++i) {
    const float a = std::sin(static_cast<float>(i));
    const float b = std::cos(static_cast<float>(3 * i));
    x.insert(x.end(), {a, b});
    y.push_back(a - 2 * b + 0.5F);
  }
  Arrays feeds;
  feeds["x"] = Array::of<float>({16, 2}, std::span<const float>(x));
  feeds["y"] = Array::of<float>({16, 1}, std::span<const float>(y));
  return feeds;
}

float trained_loss(const MinimizeOptions& options, int steps) {
  Network net(7);
  const VarRef x = net.data("x", {-1, 2});
  const VarRef y = net.data("y", {-1, 1});
  const VarRef loss = layers::mean(layers::square_error_cost(layers::fc(x, 1), y));
  const auto training = net.minimize(loss, options);
  EXPECT_TRUE(training.ok()) << training.status().to_string();
  StatusOr<Session> session = Session::open(net.main(), &net.startup());
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  float last = 1e9F;
  for (int i = 0; i < steps; ++i) {
    const auto results = session->run(line_data(), {loss.name()});
    EXPECT_TRUE(results.ok()) << results.status().to_string();
    if (!results.ok()) break;
    last = results->at(loss.name()).values<float>()[0];
  }
  return last;
}

TEST(FrontendTraining, FitsALineByDescent) {
  EXPECT_LT(trained_loss({.method = Sgd{}, .learning_rate = 0.2}, 100), 1e-4F);
}

TEST(FrontendTraining, FitsALineByAdamWithASchedule) {
  const Decay cosine = CosineDecay{.learning_rate = 0.3, .step_each_epoch = 10, .epochs = 10};
  EXPECT_LT(
      trained_loss(
          {.method = Adam{},
           .learning_rate =
               LinearWarmup{.after = cosine, .warmup_steps = 5, .start_lr = 0.01, .end_lr = 0.3},
           .clip = ClipByGlobalNorm{5.0}},
          100),
      1e-2F);
}

// Runs a network repeatedly on the same feeds; returns the losses of the first and of the last run.
std::pair<float, float> first_and_last(Network& net, const VarRef& loss, const Arrays& feeds,
                                       int steps) {
  StatusOr<Session> session = Session::open(net.main(), &net.startup());
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  std::pair<float, float> losses{0, 1e9F};
  for (int i = 0; session.ok() && i < steps; ++i) {
    const auto results = session->run(feeds, {loss.name()});
    EXPECT_TRUE(results.ok()) << results.status().to_string();
    if (!results.ok()) break;
    const float value = results->at(loss.name()).values<float>()[0];
    if (i == 0) losses.first = value;
    losses.second = value;
  }
  return losses;
}

TEST(FrontendTraining, LearnsFromSentencesOfWords) {
  Network net(3);
  const VarRef words = net.data("words", {-1, 1}, DType::kInt64, 1);
  const VarRef label = net.data("label", {-1, 1}, DType::kInt64);
  const VarRef e = layers::embedding(words, 20, 8, {.is_sparse = true});
  const VarRef wide = layers::sequence_pool(layers::sequence_conv(e, 6, {.act = "tanh"}), "max");
  const VarRef gates = layers::fc(e, 12);
  const VarRef last = layers::sequence_pool(layers::dynamic_gru(gates, 4), "last");
  const VarRef guess = layers::fc(layers::concat({wide, last}, 1), 2);
  const VarRef loss = layers::mean(layers::softmax_with_cross_entropy(guess, label));
  ASSERT_TRUE(net.minimize(loss, {.method = Adagrad{}, .learning_rate = 0.2}).ok())
      << net.status().to_string();
  Arrays feeds;
  const std::vector<int64_t> ids{1, 2, 3, 4, 11, 12, 13, 5, 6, 14, 15};
  const std::vector<int64_t> labels{0, 1, 0, 1};
  feeds["words"] = Array::of<int64_t>({11, 1}, ids);
  feeds["words"].lod = {{0, 4, 7, 9, 11}};
  feeds["label"] = Array::of<int64_t>({4, 1}, labels);
  const auto [first, last_loss] = first_and_last(net, loss, feeds, 30);
  EXPECT_GT(first, 0.3F);
  EXPECT_LT(last_loss, 0.05F);
}

TEST(FrontendTraining, LearnsThroughALoop) {
  Network net(5);
  const VarRef x = net.data("x", {-1, 2});
  const VarRef y = net.data("y", {-1, 1});
  const VarRef i = layers::fill_constant(net, {1}, DType::kInt64, 0);
  const VarRef n = layers::fill_constant(net, {1}, DType::kInt64, 3);
  const VarRef states = layers::array_write(layers::fc(x, 4, {.act = "tanh"}), i);
  const VarRef more = layers::less_than(i, n);
  layers::while_loop(more, [&] {
    const VarRef h = layers::array_read(states, i);
    const VarRef next = layers::fc(h, 4, {.act = "tanh"});
    layers::increment(i);
    layers::array_write(next, i, states);
    layers::less_than(i, n, more);
  });
  const VarRef guess = layers::fc(layers::array_read(states, i), 1);
  const VarRef loss = layers::mean(layers::square_error_cost(guess, y));
  ASSERT_TRUE(net.minimize(loss, {.method = Adam{}, .learning_rate = 0.05}).ok())
      << net.status().to_string();
  const auto [first, last] = first_and_last(net, loss, line_data(), 100);
  EXPECT_LT(last, 0.2F * first);
}

}  // namespace
}  // namespace millrace
