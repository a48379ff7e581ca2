#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "io/params.h"

/// Converts inference programs and programs of training into PIR programs (docs/interchange.md).
namespace millrace::interchange {

/// What to write.
struct PirOptions {
  /// Dims of fed vars that replace the declared ones, by name; -1 is unknown until run time.
  std::map<std::string, Dims> input_dims = {};
  /// Vars to return instead of those of the fetch ops. Without any, a program returns its losses,
  /// else the tensors that no op reads.
  std::vector<std::string> fetches = {};
};

/// A model in the two files that release 3 of the original loads.
struct PirModel {
  std::string program;                  ///< content of PREFIX.json
  std::vector<std::string> parameters;  ///< names in the order of PREFIX.pdiparams: sorted as bytes
};

/// Converts a program, after the pass upgrade-program and the verifier.
///
/// A program with fetch ops is an inference model: inputs are the targets of the feed ops in the
/// order of `col`, outputs those of the fetch ops; both keep their names. Only parameters that ops
/// read are listed.
///
/// In other programs (training, forward, startup), inputs are the vars that are read before they
/// are written and are not persistable. Persistable vars that are read, or that may keep their
/// value, are parameters, which ops update in place; the values of `params` are those of all of
/// them, or `params` is empty, and the caller of the program has set them. Other persistable vars
/// that ops write are left in the scope.
///
/// Errors: kUnimplemented, located at the op, for an op, input, output, attribute or element type
/// without a counterpart; those of the pass and the verifier; kInvalidArgument for input_dims;
/// kInvalidProgram if a var is fetched or read before it is written; kNotFound for a parameter
/// without a value.
StatusOr<PirModel> export_pir(const Program& program, const io::ParamValues& params,
                              const PirOptions& options = {});

/// The op types that export_pir() knows, sorted.
std::vector<std::string> pir_op_types();

}  // namespace millrace::interchange
