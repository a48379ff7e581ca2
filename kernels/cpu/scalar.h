#pragma once

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"

namespace millrace::kernels {

/// First element of a tensor of numbers or bools, for inputs that replace an attribute. Errors:
/// kExecution if the tensor has no elements; slot names the input in the message.
StatusOr<double> first_number(const Tensor& tensor, const char* slot);

}  // namespace millrace::kernels
