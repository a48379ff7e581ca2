#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "io/params.h"

/// Saved inference models (spec/model_format.md section 1) and the parameters of programs.
namespace millrace::io {

/// The program of a model folder: `__model__`, else its one `*.pdmodel`; or the file that the
/// caller names. Other files do not matter.
/// Errors: kNotFound, kInvalidData if several files could be meant.
StatusOr<std::string> find_program(const std::string& folder, const std::string& filename = "");

/// The parameters beside a program: the file that the caller names; `X.pdiparams` for `X.pdmodel`;
/// `__params__`; `params`; the one `*.pdiparams`; else the folder, for one file a var. A file whose
/// name is that of a persistable var is that var, not a combined file.
///
/// \param program_path  as find_program() gives it
/// Errors: kNotFound if the file that the caller names is not there; kInvalidData as above.
StatusOr<std::string> find_params(const std::string& folder, const std::string& program_path,
                                  const Program& program, const std::string& filename = "");

/// The vars of a program that parameter files hold: persistable dense tensors and selected rows of
/// all blocks, by name as bytes, which is their order in a combined file. Holders of feeds,
/// fetches, readers and the like have no file.
/// Source: spec/model_format.md section 4, spec/distributed_io.md section 1.
std::vector<ParamSpec> persistables_of(const Program& program);

/// Reads parameters of a program: an npz archive (told by content), a combined file of all
/// persistable vars, or a folder of one file a var.
///
/// An npz archive may hold less or more than the program has; what it has must fit, up to axes of
/// extent 1. Files of the original must hold all vars.
/// Errors: those of read_values(), load_combined() and load_separate().
StatusOr<ParamValues> read_parameters(const std::string& path, const Program& program,
                                      const LoadOptions& options = {});

/// read_parameters() into a scope, whose values they replace. On an error the scope is as before.
Status load_parameters(const std::string& path, const Program& program, Scope& scope,
                       const LoadOptions& options = {});

/// Writes the persistable vars of a program from a scope in the format of the original: into a
/// folder, one file a var, if the path is a folder or ends in '/'; else into one combined file. A
/// manifest is written beside it (io/params_manifest.h), which read_parameters() looks at.
/// Errors: as save_combined() and save_separate(); kNotFound with the var if it has no value.
Status save_parameters(const std::string& path, const Program& program, const Scope& scope,
                       const SaveOptions& options = {});

}  // namespace millrace::io
