#include "interchange/onnx/check_model.h"

#include <exception>
#include <new>

#include <onnx/checker.h>
#include <onnx/shape_inference/implementation.h>

#include "framework/base/errors.h"

namespace millrace::interchange {

Status check_model(const ::onnx::ModelProto& model) {
  try {
    ::onnx::checker::check_model(model);
    ::onnx::ModelProto inferred = model;
    ::onnx::shape_inference::InferShapes(inferred, ::onnx::OpSchemaRegistry::Instance(),
                                         {/*check_type=*/true, /*strict_mode=*/1,
                                          /*data_prop=*/true});
  } catch (const std::bad_alloc&) {
    throw;  // says nothing about the model
  } catch (const std::exception& error) {
    return Unimplemented("export to ONNX: its checker rejects the model: {}", error.what());
  }
  return Ok();
}

}  // namespace millrace::interchange
