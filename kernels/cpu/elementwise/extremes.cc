#include "kernels/cpu/elementwise/binary.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// If both are equal, the gradient goes to Y; for fmax and fmin it goes to X. max and min return NaN
// if either operand is NaN; fmax and fmin return the other operand.
struct Max {
  template <typename T>
  static T value(T x, T y) {
    return x > y || x != x ? x : y;
  }
  template <typename T>
  static T grad_x(T x, T y, T dout) {
    return x > y ? dout : T(0);
  }
  template <typename T>
  static T grad_y(T x, T y, T dout) {
    return x <= y ? dout : T(0);
  }
};
struct Min {
  template <typename T>
  static T value(T x, T y) {
    return x < y || x != x ? x : y;
  }
  template <typename T>
  static T grad_x(T x, T y, T dout) {
    return x < y ? dout : T(0);
  }
  template <typename T>
  static T grad_y(T x, T y, T dout) {
    return x >= y ? dout : T(0);
  }
};
struct Fmax {
  template <typename T>
  static T value(T x, T y) {
    return x >= y || y != y ? x : y;
  }
  template <typename T>
  static T grad_x(T x, T y, T dout) {
    return x >= y || y != y ? dout : T(0);
  }
  template <typename T>
  static T grad_y(T x, T y, T dout) {
    return x >= y || y != y ? T(0) : dout;
  }
};
struct Fmin {
  template <typename T>
  static T value(T x, T y) {
    return x <= y || y != y ? x : y;
  }
  template <typename T>
  static T grad_x(T x, T y, T dout) {
    return x <= y || y != y ? dout : T(0);
  }
  template <typename T>
  static T grad_y(T x, T y, T dout) {
    return x <= y || y != y ? T(0) : dout;
  }
};

}  // namespace

/// Maxima and minima with their gradients.
void add_elementwise_extremes(KernelRegistry& registry) {
  registry.add("elementwise_max", binary<Max>);
  registry.add("elementwise_max_grad", binary_grad<Max>);
  registry.add("elementwise_min", binary<Min>);
  registry.add("elementwise_min_grad", binary_grad<Min>);
  registry.add("elementwise_fmax", binary<Fmax>);
  registry.add("elementwise_fmax_grad", binary_grad<Fmax>);
  registry.add("elementwise_fmin", binary<Fmin>);
  registry.add("elementwise_fmin_grad", binary_grad<Fmin>);
}

}  // namespace millrace::kernels
