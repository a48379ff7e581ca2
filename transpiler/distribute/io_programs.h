#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "transpiler/distribute_result.h"
#include "transpiler/vars_distributed.h"

/// Programs that save and load the persistable vars of a distributed program.
/// Source: spec/transpiler.md section 13, spec/distributed_io.md sections 3 and 4, seed 000.
namespace millrace::transpiler {

/// The vars that every trainer saves itself: persistable ones of all blocks in order of
/// declaration, without those kept on servers only (optimizer state, prefetched tables, the
/// distributed table) and without RAW vars, which have no file form.
std::vector<const Var*> locally_saved_vars(const Program& trainer, const VarsDistributed& overview,
                                           const ProgramProperties& properties);

/// What saving a distributed program means on one trainer.
struct SavePrograms {
  /// Names of the vars to save locally, one file each.
  std::vector<std::string> local_vars;
  /// Programs to run behind that, in order; on trainer 0 only, empty on the others: one with a
  /// recv_save for each var that servers keep, one with a checkpoint_notify if there is a
  /// distributed table. Either is absent if it has nothing to do.
  std::vector<std::unique_ptr<Program>> remote;
};

/// Plans saving to `directory`.
///
/// An uncut var that several servers keep alike (beta powers of a cut parameter) is listed with one
/// piece a server, as the original does (quirk Q11); recv_save writes no more than the shape holds.
/// Errors: kInvalidArgument if the program is not distributed or the directory is empty;
/// kInvalidData if the slices of a var do not cover it exactly, or a slice has no endpoint.
StatusOr<SavePrograms> make_save_programs(const Program& trainer, const VarsDistributed& overview,
                                          const ProgramProperties& properties,
                                          const std::string& directory);

/// A program with a recv_save into `directory` for each of the vars by original name, whatever
/// their type; null if there are none. The distributed table is none of them. Errors: kNotFound for
/// a name that the overview does not have; those of make_save_programs().
StatusOr<std::unique_ptr<Program>> make_fetch_program(const VarsDistributed& overview,
                                                      const std::vector<std::string>& names,
                                                      const std::string& directory);

/// The program that a server runs to load what lives on properties.ps_endpoint: a load op for each
/// entry of the overview; slices with the offset, in elements, at which they start in the file.
/// Errors: kInvalidArgument if the program is not distributed, has no endpoint, or the directory is
/// empty.
StatusOr<std::unique_ptr<Program>> make_load_program(const VarsDistributed& overview,
                                                     const ProgramProperties& properties,
                                                     const std::string& directory);

}  // namespace millrace::transpiler
