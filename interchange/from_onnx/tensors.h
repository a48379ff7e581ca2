#pragma once

#include <string>

#include <onnx/onnx_pb.h>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"

/// Constants of ONNX models.
namespace millrace::interchange {

/// The element type with this number in ONNX. Errors: kUnimplemented for strings, complex numbers,
/// bf16, unsigned integers other than of 8 bits, and types of fewer bits.
StatusOr<DType> dtype_from_onnx(int32_t type);

/// The content of a constant. Its size is compared with its dims before memory is taken.
///
/// \param folder  of the model, for data in files of their own; empty: such data are refused
/// Errors: kInvalidData for dims or data that do not fit together, and for a file outside of the
/// folder or too short; kUnimplemented for an element type; kNotFound, kIo, kResource.
StatusOr<Tensor> tensor_from_onnx(const ::onnx::TensorProto& proto, const std::string& folder);

}  // namespace millrace::interchange
