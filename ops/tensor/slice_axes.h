#pragma once

#include <cstdint>

#include "framework/base/status.h"
#include "ops/infer_context.h"

namespace millrace::ops {

/// Computes the size of one dim after slicing, from its known size and from start, end and stride
/// as in the attributes (negative: counted from the end).
using SliceSizeFn = int64_t (*)(int64_t size, int64_t start, int64_t end, int64_t stride);

/// Inference of slice and strided_slice: reads Input, attributes axes, starts, ends, strides (1 if
/// the op has none), infer_flags and decrease_axis, and sets Out.
///
/// A slice of a tensor array is an array, or a tensor if decrease_axis names its one axis.
/// Errors: lists of different lengths, an axis out of range, a stride of 0, a dropped dim that is
/// not 1.
///
/// \param strided  at run time, Out has the LoD of Input, even if the number of rows changes, and
///                 dims [1] where decrease_axis drops every dim
Status infer_sliced(InferContext& ctx, SliceSizeFn size_of, bool strided);

}  // namespace millrace::ops
