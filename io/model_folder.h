#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "io/params.h"

/// Saved inference models (spec/model_format.md section 1) and the parameters of programs.
namespace millrace::io {

/// Finds the program of a model folder: the file that the caller names; else `__model__`; else the
/// only `*.pdmodel`. Other files are ignored.
/// Errors: kNotFound; kInvalidData if there are several candidates.
StatusOr<std::string> find_program(const std::string& folder, const std::string& filename = "");

/// Finds the parameters for a program: the file that the caller names; `X.pdiparams` for
/// `X.pdmodel`; `__params__`; `params`; the only `*.pdiparams`; else the folder, with one file per
/// var. A file that has the name of a persistable var is that var, not a combined file.
///
/// \param program_path  as returned by find_program()
/// Errors: kNotFound if the file that the caller names does not exist; kInvalidData as above.
StatusOr<std::string> find_params(const std::string& folder, const std::string& program_path,
                                  const Program& program, const std::string& filename = "");

/// The vars of a program that parameter files hold: persistable dense tensors and selected rows of
/// all blocks, sorted by name as bytes, which is their order in a combined file. Holders of feeds,
/// fetches, readers and the like have no file.
/// Source: spec/model_format.md section 4, spec/distributed_io.md section 1.
std::vector<ParamSpec> persistables_of(const Program& program);

/// Checks a value against what a program declares about its var: kind, dtype, and dims, which may
/// differ in axes of extent 1, and for selected rows in dim 0. A dense tensor then gets the
/// declared dims. Errors: kInvalidData with expected and found; the value is then unchanged.
Status fit_declared(Value& value, const ParamSpec& spec);

/// Reads parameters of a program: an npz archive (detected by content), a combined file of all
/// persistable vars, or a folder with one file per var.
///
/// An npz archive may lack vars of the program and may have others, but not only others;
/// those it has must match, except for axes of extent 1. Files of the original must contain all
/// vars. Errors: those of read_values(), load_combined() and load_separate().
StatusOr<ParamValues> read_parameters(const std::string& path, const Program& program,
                                      const LoadOptions& options = {});

/// read_parameters() into a scope, replacing its values. On an error the scope is unchanged.
Status load_parameters(const std::string& path, const Program& program, Scope& scope,
                       const LoadOptions& options = {});

/// Writes the persistable vars of a program from a scope in the format of the original. If the path
/// is a folder or ends in '/', one file per var is written to that folder; else one combined file.
/// A manifest is written next to it (io/params_manifest.h), which read_parameters() checks.
/// Errors: as save_combined() and save_separate(); kNotFound with the var if it has no value.
Status save_parameters(const std::string& path, const Program& program, const Scope& scope,
                       const SaveOptions& options = {});

}  // namespace millrace::io
