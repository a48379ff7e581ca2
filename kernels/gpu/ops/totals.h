#pragma once

#include "kernels/gpu/functors/totals.h"
#include "kernels/gpu/ops/reduce.h"

namespace millrace::gpu {

/// A rule with its numbers.
struct TotalSettings {
  TotalRule rule;
  double number = 0;   ///< order of a norm, or what is added to a sum of squares
  double epsilon = 0;  ///< of the gradient of a norm
};
/// Reduces x of any number type to y; one launch. Errors: rejects results other than f32, f64, i32
/// and i64, and whole results of reals.
Status total(Device& device, const ReducePlan& r, const Tensor& x, Tensor& y,
             const TotalSettings& settings);

/// Tensors of a gradient of total(): all f32 or all f64.
struct TotalTensors {
  const Tensor* x;     ///< the reduced tensor
  const Tensor* y;     ///< the results; null: not read
  const Tensor* dout;  ///< of the results
  Tensor* dx;          ///< dims of x
};
/// The caller has checked types and dims.
Status total_slope(Device& device, const ReducePlan& r, const TotalTensors& on,
                   const TotalSettings& settings);

}  // namespace millrace::gpu
