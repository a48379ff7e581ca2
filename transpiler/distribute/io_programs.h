#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "transpiler/distribute_result.h"
#include "transpiler/vars_distributed.h"

/// Programs that save and load the persistable vars of a distributed program.
/// Source: spec/transpiler.md section 13, spec/distributed_io.md sections 3 and 4.
namespace millrace::transpiler {

/// The vars that every trainer saves itself: persistable ones of all blocks in order of
/// declaration, without those kept on servers only (optimizer state, prefetched tables, the
/// distributed table) and without RAW vars, which have no file form.
std::vector<const Var*> locally_saved_vars(const Program& trainer, const VarsDistributed& overview,
                                           const ProgramProperties& properties);

/// How one trainer saves a distributed program.
struct SavePrograms {
  /// Names of the vars to save locally, one file each.
  std::vector<std::string> local_vars;
  /// Programs to run after that, in order. Only on trainer 0; empty on the others. One has a
  /// recv_save for each var that servers keep; one has a checkpoint_notify if there is a
  /// distributed table. A program with nothing to do is left out.
  std::vector<std::unique_ptr<Program>> remote;
};

/// Plans saving to `directory`.
///
/// A var that is not sliced but that several servers keep (beta powers of a sliced parameter) is
/// listed with one slice per server, as in the original (quirk Q11); recv_save writes no more than
/// the shape holds.
/// Errors: kInvalidArgument if the program is not distributed or the directory is empty;
/// kInvalidData if the slices of a var do not cover it exactly, or a slice has no endpoint.
StatusOr<SavePrograms> make_save_programs(const Program& trainer, const VarsDistributed& overview,
                                          const ProgramProperties& properties,
                                          const std::string& directory);

/// Builds a program with a recv_save into `directory` for each of the vars, given by original name
/// and of any type; null if there are none. The distributed table cannot be fetched this way.
/// Errors: kNotFound for a name that is not in the overview; those of make_save_programs().
StatusOr<std::unique_ptr<Program>> make_fetch_program(const VarsDistributed& overview,
                                                      const std::vector<std::string>& names,
                                                      const std::string& directory);

/// Builds the program that a server runs to load the vars of properties.ps_endpoint: one load op
/// for each entry of the overview. Loads of slices have the offset, in elements, at which the slice
/// starts in the file.
/// Errors: kInvalidArgument if the program is not distributed, has no endpoint, or the directory is
/// empty.
StatusOr<std::unique_ptr<Program>> make_load_program(const VarsDistributed& overview,
                                                     const ProgramProperties& properties,
                                                     const std::string& directory);

}  // namespace millrace::transpiler
