#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "framework/base/file.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "ps/client/trainer_link.h"
#include "ps/table/trainer_tables.h"
#include "transpiler/distribute/slices_json.h"

/// Saving what a job with parameter servers has trained, in the files of the original.
/// Source: spec/distributed_io.md sections 3 and 6, seeds 000 and 002.
namespace millrace::ps {

/// A trainer whose job is to be saved. All of it must outlive the calls.
struct SavingTrainer {
  std::shared_ptr<TrainerLink> link;
  const transpiler::SlicesFile* slices = nullptr;
  const Program* program = nullptr;  ///< of the trainer
  Scope* scope = nullptr;            ///< what the trainer holds
  int trainer = 0;                   ///< 0 is the chief
  TrainerTables* tables = nullptr;   ///< typed tables of the job; null: it has none
  executor::ExecutorOptions options;
};

/// Where and how files are written.
struct DistributedSaveOptions {
  /// Folder that the names of files are below; recv_save and requests to servers get the rest of
  /// the path. Servers write below the folder that they were allowed.
  std::string root;
  std::string folder;  ///< below root
  Replace replace = Replace::kNo;
  /// In place of the programs that would be made: those that fetch what servers keep.
  std::vector<const Program*> programs;
};

/// save_persistables of a distributed program: the chief writes what trainers hold, fetched anew
/// from the servers where these have it, and has recv_save write what only servers keep; servers
/// save their part of the distributed table on their own disks, as
/// `<folder>/__lookup_table__/<table>_<n>`. Of typed tables the rows that the program declares are
/// gathered and written as the embedding's file. The other trainers write nothing, so that nobody
/// races for one file. A manifest beside the folder (io/params_manifest.h) has the sizes and
/// checksums of all files, those of the servers with their endpoints.
///
/// Call it when all trainers are done (Client::complete(true)).
/// Errors: kInvalidArgument for a job that is not distributed; kNotFound for a var without value;
/// kUsage for a file that may not be replaced; those of the calls and of writing.
Status save_distributed_persistables(const SavingTrainer& trainer,
                                     const DistributedSaveOptions& options);

/// Adds to what was gathered from the servers the persistable vars that trainers alone hold, as
/// this trainer has them: moving means of batch_norm, say. They are those that
/// save_distributed_persistables() writes. Errors: as there.
Status add_held_vars(const SavingTrainer& trainer, std::map<std::string, Value>& gathered);

/// What an inference model made of a distributed job has.
struct FleetModel {
  const Program* origin = nullptr;  ///< the program before it was transpiled
  std::vector<std::string> feeds;
  std::vector<std::string> fetches;
};

/// save_inference_model of a distributed job: the part of the origin program that computes the
/// fetches, and exactly the persistable vars that it reads, fetched from the servers where these
/// have them; the distributed table and typed tables are put together from all servers. `__model__`
/// comes last, so that a folder with it is complete, and runs without servers. Errors: those of
/// executor::make_inference_program() and of save_distributed_persistables().
Status save_fleet_inference_model(const SavingTrainer& trainer, const FleetModel& model,
                                  const DistributedSaveOptions& options);

}  // namespace millrace::ps
