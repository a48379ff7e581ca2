#pragma once

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"

namespace millrace::io {

/// Converts the elements of a tensor to another type, as C++ conversions do; bools are 0 and 1, and
/// a number that the type does not have becomes its nearest end (NaN becomes 0 in whole numbers).
/// Errors: kUnimplemented for complex numbers; kResource.
Status cast(Tensor& tensor, DType to);

}  // namespace millrace::io
