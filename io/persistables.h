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

/// Saving and loading the vars of a program in the files of the original: one file per var, one
/// combined file, or memory. Distributed programs use the transpiler's io programs instead.
/// Source: spec/distributed_io.md sections 1 and 2.
namespace millrace::io {

/// Selects vars of a program.
using VarPredicate = std::function<bool(const Var&)>;

/// What the program declares about the vars of all blocks for which the predicate holds, sorted by
/// name as bytes. Of vars with the same name in several blocks the first counts.
std::vector<ParamSpec> specs_where(const Program& program, const VarPredicate& wanted);

/// specs_where() for vars for which the predicate holds and that can be stored in a file (dense
/// tensors and selected rows; RAW vars and the like are skipped), sorted by name as bytes, which is
/// their order in a combined file.
std::vector<ParamSpec> vars_where(const Program& program, const VarPredicate& wanted);

/// Checks that no var for which the predicate holds is a tensor array with a value: files of the
/// original cannot hold it, so that a save would lose it. The functions below that save call it.
/// Errors: kUsage with the var.
Status check_has_files(const Scope& scope, const Program& program, const VarPredicate& wanted);

/// Options of save_vars().
struct SaveVarsOptions {
  std::string filename;  ///< name of a combined file in the folder; empty: one file per var
  SaveOptions save;
  bool manifest = true;  ///< write a manifest, which load_vars() checks (io/params_manifest.h)
};

/// Writes the vars for which the predicate holds from a scope to a folder, which is created if
/// missing.
///
/// \returns the number of vars; nothing is written if it is 0
/// Errors: kNotFound with the var if it has no value; kUsage for files that may not be replaced
/// and for a tensor array; kInvalidData for names that lead out of the folder; kIo, kResource.
StatusOr<size_t> save_vars(const Scope& scope, const Program& program, const std::string& folder,
                           const VarPredicate& wanted, const SaveVarsOptions& options = {});

/// The bytes of the combined file that save_vars() would write.
StatusOr<std::string> vars_to_memory(const Scope& scope, const Program& program,
                                     const VarPredicate& wanted);

/// save_vars() and vars_to_memory() with is_persistable().
StatusOr<size_t> save_persistables(const Scope& scope, const Program& program,
                                   const std::string& folder, const SaveVarsOptions& options = {});
StatusOr<std::string> persistables_to_memory(const Scope& scope, const Program& program);

/// Reads the vars for which the predicate holds from a folder into a scope, replacing its values.
/// On an error the scope is unchanged. Files are compared with their manifest if there is one.
/// \param filename  a combined file in the folder, which must contain exactly these vars; empty:
///                  one file per var
/// Errors: kNotFound with var and path; kInvalidData for a dtype or dims that differ from the
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
