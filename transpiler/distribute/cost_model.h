#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/registry.h"
#include "transpiler/distribute/job.h"

/// Estimates what a distribution costs its servers, from the plan alone. No program is built for
/// each trainer, so 10,000 trainers on 1,000 servers take as long as 2 trainers with 2000 slices.
namespace millrace::transpiler {

/// How a slice is transferred.
enum class Traffic {
  kDense,     ///< whole gradient in, whole parameter out, every step
  kSparse,    ///< rows of the gradient in, whole parameter out
  kPrefetch,  ///< rows of the gradient in, rows of the table out
};

/// One slice as the model sees it.
struct CostSlice {
  std::string name;
  int32_t server = 0;
  Traffic traffic = Traffic::kDense;
  int64_t rows = 1;           ///< dim 0 of the slice
  int64_t bytes = 0;          ///< of the parameter slice
  int64_t state_bytes = 0;    ///< of the optimizer state that goes with it
  double update_flops = 0;    ///< of one update of the slice
  double share_of_table = 1;  ///< rows of the slice over rows of the parameter
};

/// How one parameter is updated on the servers, and why it was sliced or not; for explain_text().
struct ParamNote {
  std::string param;
  std::vector<std::string> update_ops;  ///< types of its optimize ops, in program order
  std::string rate;                     ///< var of the learning rate; empty: none
  std::string why;                      ///< human-readable reason why it is sliced or kept whole
};

/// The input of the model.
struct CostInput {
  std::vector<std::string> endpoints;
  int64_t trainers = 1;
  bool sync = true;  ///< one merged update per step; false: one update for each trainer's gradient
  /// How often a trainer exchanges values with the servers; in geo mode every n-th step.
  double exchanges_per_step = 1;
  std::vector<CostSlice> slices;
  std::vector<ParamNote> notes;  ///< not used by the model; empty in modes where trainers update
};

/// Facts that the program does not contain. The defaults describe a small cluster on 10 Gbit/s.
struct CostOptions {
  int64_t sparse_rows_per_step = 1024;  ///< rows of a table that one trainer touches in a step
  double network_bytes_per_s = 1.25e9;  ///< of each server, in each direction
  double flops_per_s = 2e10;            ///< of each server, for updates
  double hot_factor = 1.25;             ///< a server above this multiple of the mean is a hot spot
};

/// Load of one server in one step of all trainers.
struct ServerCost {
  std::string endpoint;
  int64_t slices = 0;
  double held_bytes = 0;  ///< parameters and optimizer state
  double in_bytes = 0;    ///< gradients, and ids of prefetches
  double out_bytes = 0;   ///< parameters and rows
  double flops = 0;       ///< merging and updating
  double floor_s = 0;     ///< lower bound of the step time: that of in, out or flops, the largest
  std::string largest;    ///< the slice with the most traffic; empty if there is none
};

/// One kind of load over all servers.
struct LoadSummary {
  std::string name;  ///< "held", "in", "out", "flops"
  double total = 0;
  double mean = 0;
  double max = 0;
  double imbalance = 1;  ///< max over mean
};

/// A server whose load is far above the mean.
struct HotSpot {
  int32_t server = 0;
  std::string load;   ///< name of the summary
  double factor = 1;  ///< load divided by the mean
};

struct CostReport {
  int64_t trainers = 1;
  bool sync = true;
  CostOptions options;
  std::vector<ServerCost> servers;
  std::vector<LoadSummary> loads;  ///< held, in, out, flops
  std::vector<HotSpot> hot_spots;  ///< hottest first
  double floor_s = 0;              ///< floor_s of the slowest server
};

/// Builds the input from a pserver-mode plan. Update work is the estimate of the ops; state is what
/// optimizer ops read apart from parameter, gradient and rate.
/// \param main  the program that the job's ops belong to
CostInput cost_input(const Program& main, const DistributionJob& job,
                     const ops::OpRegistry& registry);

/// Builds the input from an overview alone: every slice is dense, and an update is one addition per
/// element.
CostInput cost_input(const ProgramProperties& properties, const VarsDistributed& overview,
                     int64_t trainers);

/// Runs the model. Cost: O(slices + servers). Errors: kInvalidArgument for no server, a slice on an
/// unknown one, fewer than 1 trainer, or an option that is not positive.
StatusOr<CostReport> estimate_cost(const CostInput& input, const CostOptions& options = {});

/// Human-readable table: the loads, the hot spots, and the servers; only the slowest servers if
/// there are more than max_servers.
std::string cost_table(const CostReport& report, size_t max_servers = 32);
/// The same as one JSON object with all servers.
std::string cost_json(const CostReport& report);

}  // namespace millrace::transpiler
