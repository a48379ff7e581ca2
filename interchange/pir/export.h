#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "io/params.h"

/// Converts inference programs into PIR programs (docs/interchange.md).
namespace millrace::interchange {

/// What to write.
struct PirOptions {
  /// Dims of fed vars that replace the declared ones, by name; -1 is unknown until run time.
  std::map<std::string, Dims> input_dims = {};
  /// Vars to return instead of those of the fetch ops.
  std::vector<std::string> fetches = {};
};

/// A model in the two files that release 3 of the original loads.
struct PirModel {
  std::string program;                  ///< content of PREFIX.json
  std::vector<std::string> parameters;  ///< names in the order of PREFIX.pdiparams: sorted as bytes
};

/// Converts an inference program, after the pass upgrade-program.
///
/// Inputs of the model are the targets of the feed ops in the order of `col`, outputs those of the
/// fetch ops; both keep their names. Only parameters that ops read are listed.
/// Errors: kUnimplemented, located at the op, for an op, input, output, attribute or element type
/// without a counterpart; those of the pass; kInvalidArgument for input_dims; kInvalidProgram if
/// the program has no fetch ops or a var is read before it is written; kNotFound for a parameter
/// without a value.
StatusOr<PirModel> export_pir(const Program& program, const io::ParamValues& params,
                              const PirOptions& options = {});

/// The op types that export_pir() knows, sorted.
std::vector<std::string> pir_op_types();

}  // namespace millrace::interchange
