#pragma once

#include <onnx/onnx_pb.h>

#include "framework/base/status.h"

namespace millrace::interchange {

/// Runs the checker of the ONNX library on a model, then its shape inference, which also compares
/// the element types and shapes of nodes. The opset must be one that the library knows.
/// Errors: kUnimplemented with the library's message, for example about an element type that an
/// operator of ONNX does not have.
Status check_model(const ::onnx::ModelProto& model);

}  // namespace millrace::interchange
