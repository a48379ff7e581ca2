#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "framework/var.h"
#include "io/params.h"

/// Saving and loading the vars of a program, in the files of the original: one file a var, one
/// combined file, or memory. Distributed programs have their own way (transpiler's io programs).
/// Source: spec/distributed_io.md sections 1 and 2, seed 000.
namespace millrace::io {

/// Says which vars of a program are meant.
using VarPredicate = std::function<bool(const Var&)>;

/// The vars of all blocks for which a predicate holds and that have a file form (dense tensors and
/// selected rows; RAW vars and the like are left out), by name as bytes, which is their order in a
/// combined file.
std::vector<ParamSpec> vars_where(const Program& program, const VarPredicate& wanted);

/// Where vars are saved.
struct SaveVarsOptions {
  std::string filename;  ///< one combined file of this name in the folder; empty: one file a var
  SaveOptions save;
  bool manifest = true;  ///< with which load_vars() finds out what changed (io/params_manifest.h)
};

/// Writes the vars for which a predicate holds from a scope into a folder, which is made.
///
/// \returns how many vars there were; for 0 nothing is written
/// Errors: kNotFound with the var if it has no value; kUsage for files that may not be replaced;
/// kInvalidData for names that lead out of the folder; kIo, kResource.
StatusOr<size_t> save_vars(const Scope& scope, const Program& program, const std::string& folder,
                           const VarPredicate& wanted, const SaveVarsOptions& options = {});

/// The bytes of the combined file that save_vars() would write.
StatusOr<std::string> vars_to_memory(const Scope& scope, const Program& program,
                                     const VarPredicate& wanted);

/// save_vars() and vars_to_memory() with is_persistable().
StatusOr<size_t> save_persistables(const Scope& scope, const Program& program,
                                   const std::string& folder, const SaveVarsOptions& options = {});
StatusOr<std::string> persistables_to_memory(const Scope& scope, const Program& program);

/// Reads the vars for which a predicate holds from a folder into a scope, whose values they
/// replace; on an error the scope is as before. Files are compared with their manifest if there is
/// one.
/// \param filename  a combined file in the folder, which must hold exactly these vars; empty: one
///                  file a var
/// Errors: kNotFound with var and path; kInvalidData for another dtype or other dims than the
/// program's; those of load_combined() and load_separate().
Status load_vars(Scope& scope, const Program& program, const std::string& folder,
                 const VarPredicate& wanted, const std::string& filename = {},
                 const LoadOptions& options = {});

/// The same from the bytes of a combined file.
Status vars_from_memory(Scope& scope, const Program& program, std::string_view bytes,
                        const VarPredicate& wanted, const LoadOptions& options = {});

/// load_vars() and vars_from_memory() with is_persistable().
Status load_persistables(Scope& scope, const Program& program, const std::string& folder,
                         const std::string& filename = {}, const LoadOptions& options = {});
Status persistables_from_memory(Scope& scope, const Program& program, std::string_view bytes,
                                const LoadOptions& options = {});

}  // namespace millrace::io
