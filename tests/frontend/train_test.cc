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

}  // namespace
}  // namespace millrace
