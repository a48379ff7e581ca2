#pragma once

#include <string>
#include <vector>

#include "fleet/runtime/fleet_worker.h"
#include "fleet/saving/fleet_saver.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "io/params.h"

/// Saving and loading jobs with typed tables: files that the worker and the servers write together.
/// Source: spec/distributed_io.md sections 3 and 6, spec/fleet.md section 4.
namespace millrace::fleet {

/// The vars that the worker writes in save_worker_persistables(): persistable ones of its program
/// that are in no sparse table, except for learning rates and gradients.
std::vector<io::ParamSpec> saved_vars(FleetWorker& worker);

/// save_persistables: the first worker writes the persistable vars of its program to one file each,
/// dense parameters with the servers' values. Every server writes its rows of every table, with the
/// state of the optimizer, below its allowed folder (ps/table/table_folder.h). A manifest beside
/// the folder lists all files. The other workers write nothing.
///
/// No worker may train meanwhile: call it when all are done, or between two barriers.
/// \param to  `mode` is that of the original: 0 all rows
/// Errors: kUsage for files that may not be replaced; kNotFound for a var without a value; those of
/// the calls and of writing.
Status save_worker_persistables(FleetWorker& worker, const FleetSaveTarget& to);

/// save_inference_model: writes the part of a program that computes the fetches, with exactly the
/// vars that it reads. Rows of embeddings are joined from all servers, so that the model runs
/// without them. The state of optimizers is left out. The other workers write nothing.
/// \param origin  the forward or training program before it was split
/// Errors: as above; those of executor::save_inference_model().
Status save_worker_model(FleetWorker& worker, const FleetSaveTarget& to, const Program& origin,
                         const std::vector<std::string>& feeds,
                         const std::vector<std::string>& fetches);

/// Loads saved_vars() from the folder of save_worker_persistables(). Errors: kNotFound,
/// kInvalidData with the file.
Status load_worker_vars(FleetWorker& worker, const std::string& folder);

/// Loads tables and vars that save_worker_persistables() has written, with any number of servers.
/// Every worker must call it, between two steps, and waits for the others. Workers that average
/// dense gradients take the vars of worker 0; an error of one of them ends their job.
/// Errors: kNotFound, kInvalidData with the file; kDistributed.
Status load_worker_persistables(FleetWorker& worker, const FleetSaveTarget& from);

}  // namespace millrace::fleet
