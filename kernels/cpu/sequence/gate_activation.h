#pragma once

#include <cstdint>
#include <string>

#include "kernels/cpu/vector_math.h"
#include "kernels/kernel.h"

namespace millrace::kernels::rnn {

/// Activation functions of recurrent cells. The values are those of gru_unit's attributes.
/// kClampedSigmoid is the sigmoid of a sum clamped to [-40, 13], which the original uses in the ops
/// over LoD sequences; its slope is that of the unclamped sigmoid.
enum class Activation : int32_t {
  kIdentity = 0,
  kSigmoid = 1,
  kTanh = 2,
  kRelu = 3,
  kClampedSigmoid = 4
};

/// Looks up the name in an attribute of an op over LoD sequences; the schema has checked it.
inline Activation activation_of(const KernelSetup& op, llvm::StringRef attr) {
  const auto name = op.attr<std::string>(attr);
  if (name == "sigmoid") return Activation::kClampedSigmoid;
  if (name == "tanh") return Activation::kTanh;
  return name == "relu" ? Activation::kRelu : Activation::kIdentity;
}

/// x = f(x) for count contiguous elements.
/// T is float or double.
template <typename T>
void activate(Activation function, T* x, int64_t count) {
  switch (function) {
    case Activation::kSigmoid:
      for (int64_t i = 0; i < count; ++i) x[i] = vmath::sigmoid(x[i]);
      return;
    case Activation::kClampedSigmoid:
      for (int64_t i = 0; i < count; ++i) {
        T y = x[i] < T(-40) ? T(-40) : x[i];
        y = y > T(13) ? T(13) : y;
        x[i] = vmath::sigmoid(y);
      }
      return;
    case Activation::kTanh:
      for (int64_t i = 0; i < count; ++i) x[i] = vmath::tanh(x[i]);
      return;
    case Activation::kRelu:
      for (int64_t i = 0; i < count; ++i) x[i] = x[i] < T(0) ? T(0) : x[i];
      return;
    case Activation::kIdentity:
      return;
  }
}

/// grad *= f'(x), given y = f(x).
/// All these functions have a slope that follows from their value, so x need not be kept.
template <typename T>
void multiply_slope(Activation function, const T* y, T* grad, int64_t count) {
  switch (function) {
    case Activation::kSigmoid:
    case Activation::kClampedSigmoid:
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
