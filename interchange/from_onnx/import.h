#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "interchange/imported_model.h"

/// Converts ONNX models into inference programs (docs/interchange.md).
namespace millrace::interchange {

/// The operator sets of ONNX that import_onnx() reads.
inline constexpr int kFirstImportedOpset = 6;
inline constexpr int kLastImportedOpset = 21;

/// How to read a model.
struct OnnxImportOptions {
  /// Dims of inputs that replace the declared ones, by name; -1 is unknown until run time.
  std::map<std::string, Dims> input_dims = {};
  /// Folder of the model, for constants in files beside it; empty: such constants are refused.
  std::string folder = {};
};

/// Converts a serialized ONNX model.
///
/// Inputs of the model that are no constants become fed vars, outputs fetched ones, under their
/// names and in their order; named dims become -1. Nodes that no output needs are left out.
/// Arithmetic with shapes is computed here where it does not depend on the input.
///
/// Errors: kInvalidData for bytes that are no model, and for constants that do not fit their dims;
/// kInvalidProgram, with the node, for a graph that is not sorted or whose values do not fit
/// together; kUnimplemented, with the node, for an operator, attribute or input without a
/// counterpart; kInvalidArgument for input_dims; those of tensor_from_onnx().
StatusOr<ImportedModel> import_onnx(std::string_view bytes, const OnnxImportOptions& options = {});

/// The node types that import_onnx() knows, sorted.
std::vector<std::string> imported_node_types();

}  // namespace millrace::interchange
