#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "transpiler/distribute/table_plan.h"

namespace millrace::transpiler {

/// Numbers of the modes in programs and descriptions.
enum class FleetMode : uint8_t { kSync = 0, kAsync = 1, kHalfAsync = 2, kGeo = 3 };

/// What a worker's programs depend on besides the training program.
struct FleetWorkerOptions {
  FleetMode mode = FleetMode::kSync;
  int32_t worker = 0;
  /// The var that holds the learning rate if a schedule outside of the program sets it; workers
  /// keep it. Empty: the rate is a constant.
  std::string scheduled_rate;
  /// The var of a learning rate that ops of the program compute (role LRSched): workers keep these
  /// ops, and an op copies the rate to kComputedRate. Empty: there is none.
  std::string computed_rate;
  /// Workers keep and update the dense parameters, by gradients that they average by all-reduce
  /// (dense_gradients.h): number of workers. 0: servers have the dense parameters.
  int32_t averaging_workers = 0;
};

/// The learning rate in a worker's program that computes it; workers send it to the servers.
inline constexpr const char* kComputedRate = "@LEARNING_RATE@";

/// Main and startup program of one process.
struct FleetPrograms {
  std::unique_ptr<Program> main;
  std::unique_ptr<Program> startup;
  /// What the rewrite left out or could not do, one line each.
  std::vector<std::string> remarks;
};

/// Builds the programs of a worker. Sync and async: lookups and gradients of embeddings go to the
/// servers' tables, optimizer and schedule are removed, gradients are sent. Geo: the worker trains
/// locally and sends the gradients of embeddings, which contain the ids.
///
/// Errors: those of fuse_tables(); kInvalidProgram for an embedding that does not have exactly one
/// initializer. Source: spec/fleet.md sections 7 and 13.
StatusOr<FleetPrograms> make_fleet_worker(const Program& main, const Program& startup,
                                          const TablePlan& plan, const FleetWorkerOptions& options);

/// Input of make_fleet_server().
struct FleetServerOptions {
  FleetMode mode = FleetMode::kSync;
  int32_t server = 0;
  std::string endpoint;
  int32_t workers = 1;
};

/// Programs of a server: empty, because its tables do everything; geo has one listen_and_serv.
FleetPrograms make_fleet_server(const FleetServerOptions& options);

}  // namespace millrace::transpiler
