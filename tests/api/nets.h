#pragma once

#include <vector>

#include <gtest/gtest.h>

#include "executor/array.h"
#include "framework/base/status.h"
#include "frontend/layers.h"

/// A network for the tests of the library's interface.
namespace millrace::api {

inline void check(const Status& status) {
  ASSERT_TRUE(status.ok()) << status.to_string();
}

/// The value of a result; fails the test if there is none.
template <typename T>
T value_of(StatusOr<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().to_string());
  return std::move(result).value();
}

/// y = tanh(x w + b) v with dropout, the squared error to t, trained by momentum. The loss is
/// loss().
struct SmallNet {
  explicit SmallNet(bool dropout = false, bool trains = true) {
    const VarRef x = net.data("x", {-1, 3});
    const VarRef t = net.data("t", {-1, 1});
    VarRef hidden = layers::fc(x, 4, {.act = "tanh"});
    if (dropout) hidden = layers::dropout(hidden, 0.5F);
    guess = layers::fc(hidden, 1);
    loss = layers::mean(layers::square(layers::elementwise_sub(guess, t)));
    check(net.status());
    if (trains)
      check(net.minimize(loss, {.method = Momentum{.momentum = 0.9}, .learning_rate = 0.05})
                .status());
  }
  Network net{/*random_seed=*/3};
  VarRef guess;
  VarRef loss;
};

/// Rows that depend on a number.
inline Arrays batch(int step, int64_t rows = 8) {
  std::vector<float> x;
  std::vector<float> t;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < 3; ++column)
      x.push_back(static_cast<float>((row * 5 + column * 3 + step) % 7) * 0.2F - 0.6F);
    t.push_back(static_cast<float>((row + step) % 3) * 0.5F);
  }
  Arrays feeds;
  feeds["x"] = Array::of<float>({rows, 3}, x);
  feeds["t"] = Array::of<float>({rows, 1}, t);
  return feeds;
}

}  // namespace millrace::api
