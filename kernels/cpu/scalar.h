#pragma once

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"

namespace millrace::kernels {

/// First element of a tensor of numbers or bools, for inputs that replace an attribute. Errors:
/// kExecution if the tensor has no elements; slot names the input in the message.
StatusOr<double> first_number(const Tensor& tensor, const char* slot);

/// Converts elements [begin, begin + count) to float, and back; floats of 16 and 32 bits only
/// (callers have checked).
void load_floats(const Tensor& from, int64_t begin, int64_t count, float* to);
void store_floats(const float* from, int64_t begin, int64_t count, Tensor& to);

}  // namespace millrace::kernels
