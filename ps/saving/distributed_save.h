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

/// Saving the results of a job with parameter servers, in the file formats of the original.
/// Source: spec/distributed_io.md sections 3 and 6, seeds 000 and 002.
namespace millrace::ps {

/// A trainer whose job is saved. Everything it points to must outlive the calls.
struct SavingTrainer {
  std::shared_ptr<TrainerLink> link;
  const transpiler::SlicesFile* slices = nullptr;
  const Program* program = nullptr;  ///< the trainer's program
  Scope* scope = nullptr;            ///< the trainer's vars
  int trainer = 0;                   ///< 0 is the chief
  TrainerTables* tables = nullptr;   ///< typed tables of the job; null: none
  executor::ExecutorOptions options;
};

/// Where and how files are written.
struct DistributedSaveOptions {
  /// Folder that file names are relative to; recv_save and requests to servers get the rest of the
  /// path. Servers write below the folder that they are allowed to use.
  std::string root;
  std::string folder;  ///< below root
  Replace replace = Replace::kNo;
  /// Programs that fetch the servers' values, in place of generated ones; empty: generate them.
  std::vector<const Program*> programs;
};

/// save_persistables of a distributed program. The chief writes the trainer's vars, fetched again
/// from the servers that hold them, and runs recv_save for vars that only servers hold. Servers
/// save their rows of the distributed table on their own disks, as
/// `<folder>/__lookup_table__/<table>_<n>`. Rows of typed tables that the program declares are
/// gathered and written as the embedding's file. The other trainers write nothing, so that no two
/// processes write the same file. A manifest beside the folder (io/params_manifest.h) has the sizes
/// and checksums of all files, those on servers with their endpoints.
///
/// Call it when all trainers are done (Client::complete(true)).
/// Errors: kInvalidArgument for a job that is not distributed; kNotFound for a var without a value;
/// kUsage for a file that may not be replaced; those of the calls and of writing.
Status save_distributed_persistables(const SavingTrainer& trainer,
                                     const DistributedSaveOptions& options);

/// Adds persistable vars that only trainers hold, with the values of this trainer, to values
/// gathered from the servers: for example, moving means of batch_norm. These are the vars that
/// transpiler::locally_saved_vars() lists, as far as they have a value.
/// Errors: kResource.
Status add_held_vars(const SavingTrainer& trainer, std::map<std::string, Value>& gathered);

/// What save_fleet_inference_model() needs to know of the model.
struct FleetModel {
  const Program* origin = nullptr;  ///< the program before it was transpiled
  std::vector<std::string> feeds;
  std::vector<std::string> fetches;
};

/// save_inference_model of a distributed job: writes the part of the origin program that computes
/// the fetches, and exactly the persistable vars that it reads, fetched from the servers that hold
/// them. The distributed table and typed tables are joined from all servers. The result runs
/// without servers. `__model__` is written last, so that a folder that has it is complete. Errors:
/// those of executor::make_inference_program() and of save_distributed_persistables().
Status save_fleet_inference_model(const SavingTrainer& trainer, const FleetModel& model,
                                  const DistributedSaveOptions& options);

}  // namespace millrace::ps
