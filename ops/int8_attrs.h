#pragma once

#include "ops/infer_context.h"
#include "ops/op_def.h"

namespace millrace::ops {

/// Adds what all ops that multiply 8-bit integers have: the scale of the input, the scales of the
/// weights, how both are rounded. A scale is the magnitude that the integer 127 represents, as in
/// the fake_quantize ops.
OpDef& add_int8_attrs(OpDef& def);

/// Checks InScale and WeightScale and infers OutWeightScale.
/// \param channels  output channels of the weights; below 0: unknown
Status infer_int8_scales(InferContext& ctx, int64_t channels);

}  // namespace millrace::ops
