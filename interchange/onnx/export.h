#pragma once

#include <map>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/program.h"
#include "io/params.h"

/// Converts inference programs into ONNX models (docs/interchange.md).
namespace millrace::interchange {

/// The operator sets of ONNX that export_onnx() can write.
inline constexpr int kFirstOpset = 17;
inline constexpr int kLastOpset = 21;

/// What to write.
struct OnnxOptions {
  int opset = kFirstOpset;  ///< kFirstOpset to kLastOpset
  /// Dims of fed vars that replace the declared ones, by name; -1 is unknown until run time.
  std::map<std::string, Dims> input_dims = {};
};

/// Serializes an inference program and its parameters as one ONNX model.
///
/// Inputs of the model are the targets of the feed ops in the order of `col`, outputs those of the
/// fetch ops; -1 in declared dims becomes a named dim. For each LoD level k of a fed var that the
/// program reads there is one more input `<var>.lod<k>` (int64 offsets), and likewise for fetched
/// vars. The checker of the ONNX library has accepted the model, and its shape inference agrees.
///
/// Errors: kUnimplemented, located at the op, for an op, input, output or attribute without a
/// counterpart, and for parameters above 2 GB; kInvalidArgument for the opset or input_dims;
/// kInvalidProgram if the program has no feed or fetch ops or a var is read before it is written;
/// kNotFound for a parameter without a value.
StatusOr<std::string> export_onnx(const Program& program, const io::ParamValues& params,
                                  const OnnxOptions& options = {});

/// The op types that export_onnx() knows, sorted.
std::vector<std::string> onnx_op_types();

}  // namespace millrace::interchange
