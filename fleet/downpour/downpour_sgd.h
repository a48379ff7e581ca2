#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fleet/strategy/config_dict.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/backward/append_backward.h"
#include "ops/registry.h"

namespace millrace::fleet {

/// Settings of DownpourSGD.
struct DownpourOptions {
  /// Of all tables, 0.2 if not set. With early only: later versions take the rates of
  /// sparse_configs and dense_configs.
  std::optional<double> learning_rate;
  int window = 1;  ///< steps between two exchanges
  /// Ends of the names of parameters that are statistics.
  std::vector<std::string> data_norm_names = {".batch_size", ".batch_square_sum", ".batch_sum"};
  bool early = false;    ///< descriptions as the first versions made them
  bool use_cvm = false;  ///< gradients begin with show and click
  ConfigDict sparse_configs;
  ConfigDict dense_configs;
  ConfigDict data_norm_configs;
  /// Text of a PSParameter that comes first; what it says of tables stays.
  std::string fleet_desc;
  bool program_config_messages = false;  ///< tables of programs also in the description
};

/// A loss and the program that it is in; several losses may be in one program.
struct DownpourLoss {
  Program* program = nullptr;
  std::string name;
};

/// Tables that a program pulls and pushes.
struct ProgramTables {
  std::vector<int> pull_sparse;
  std::vector<int> push_sparse;
  std::vector<int> pull_dense;
  std::vector<int> push_dense;
  bool operator==(const ProgramTables&) const = default;
};

/// What a trainer of such a job is told (opt_info of the original).
struct DownpourInfo {
  std::string trainer = "DistMultiTrainer";
  std::string device_worker = "DownpourSGD";
  std::string optimizer = "DownpourSGD";
  std::string fleet_desc;                                ///< text of the PSParameter
  std::map<std::string, ProgramTables> program_configs;  ///< "PROGRAM_0", ... in order of losses
  std::vector<std::string> worker_skipped_ops;
  bool use_cvm = false;
};

/// What minimize() gives back.
struct DownpourResult {
  std::vector<std::vector<ops::ParamGrad>> param_grads;  ///< of each loss, sorted by parameter
  DownpourInfo info;
  /// Settings that had no effect, a line each.
  std::vector<std::string> remarks;
};

/// Appends gradients to the programs of the losses and describes the tables that hold their
/// parameters: sparse table 0 for the distributed lookup table of the first program; from 1 on a
/// dense table for each loss, and one for its statistics if it has some.
///
/// The rules of the tables do all updates, so a program may not ask for others: kUnimplemented for
/// an op of an optimizer, of clipping, regularisation or averages, of a schedule, and for an
/// embedding whose gradient is rows and that is no distributed lookup table. Errors:
/// kInvalidArgument for no losses, several distributed lookup tables, slots that the first program
/// lacks, a rate that nobody reads, a description that cannot be read, wrong settings; those of
/// append_backward(). Source: spec/fleet.md section 8.
StatusOr<DownpourResult> minimize_downpour(const ops::OpRegistry& registry,
                                           const std::vector<DownpourLoss>& losses,
                                           const DownpourOptions& options,
                                           const std::vector<std::string>& parameters = {},
                                           const std::set<std::string>& no_grad = {});

}  // namespace millrace::fleet
