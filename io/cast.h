#pragma once

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"

namespace millrace::io {

/// Converts the elements of a tensor to another type with the rules of C++ conversions. Bools are 0
/// and 1. A number out of the range of the target type becomes the nearest limit of that range (NaN
/// becomes 0 in integers).
/// Errors: kUnimplemented for complex numbers; kResource.
Status cast(Tensor& tensor, DType to);

}  // namespace millrace::io
