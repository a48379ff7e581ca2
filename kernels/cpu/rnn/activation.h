#pragma once

#include <cstdint>
#include <string>

#include "kernels/cpu/vector_math.h"
#include "kernels/kernel.h"

namespace millrace::kernels::rnn {

/// Activation functions of recurrent cells. The numbers are those of gru_unit's attributes.
enum class Activation : int32_t { kIdentity = 0, kSigmoid = 1, kTanh = 2, kRelu = 3 };

/// By the name that an attribute holds; the schema has checked it.
inline Activation activation_of(const KernelSetup& op, llvm::StringRef attr) {
  const auto name = op.attr<std::string>(attr);
  if (name == "sigmoid") return Activation::kSigmoid;
  if (name == "tanh") return Activation::kTanh;
  return name == "relu" ? Activation::kRelu : Activation::kIdentity;
}

/// x = f(x) for count neighbours.
template <typename T>
void activate(Activation function, T* x, int64_t count) {
  switch (function) {
    case Activation::kSigmoid:
      for (int64_t i = 0; i < count; ++i) x[i] = vmath::sigmoid(x[i]);
      return;
    case Activation::kTanh:
      for (int64_t i = 0; i < count; ++i) x[i] = vmath::tanh(x[i]);
      return;
    case Activation::kRelu:
      for (int64_t i = 0; i < count; ++i) x[i] = x[i] > T(0) ? x[i] : T(0);
      return;
    case Activation::kIdentity:
      return;
  }
}

/// grad *= f'(x), given y = f(x).
template <typename T>
void multiply_slope(Activation function, const T* y, T* grad, int64_t count) {
  switch (function) {
    case Activation::kSigmoid:
      for (int64_t i = 0; i < count; ++i) grad[i] *= y[i] * (1 - y[i]);
      return;
    case Activation::kTanh:
      for (int64_t i = 0; i < count; ++i) grad[i] *= 1 - y[i] * y[i];
      return;
    case Activation::kRelu:
      for (int64_t i = 0; i < count; ++i) grad[i] = y[i] > T(0) ? grad[i] : T(0);
      return;
    case Activation::kIdentity:
      return;
  }
}

}  // namespace millrace::kernels::rnn
