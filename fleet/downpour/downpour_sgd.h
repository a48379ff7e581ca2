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
  /// Learning rate of all tables, 0.2 if not set. Only with early: later versions use the rates of
  /// sparse_configs and dense_configs.
  std::optional<double> learning_rate;
  int window = 1;  ///< steps between exchanges with the servers
  /// Suffixes of the names of parameters that are data_norm statistics.
  std::vector<std::string> data_norm_names = {".batch_size", ".batch_square_sum", ".batch_sum"};
  bool early = false;    ///< write descriptions as the first versions did
  bool use_cvm = false;  ///< gradients start with show and click
  ConfigDict sparse_configs;
  ConfigDict dense_configs;
  ConfigDict data_norm_configs;
  /// Text of a PSParameter to start from; its settings of tables are kept.
  std::string fleet_desc;
  bool program_config_messages = false;  ///< also write the tables of programs to the description
};

/// A loss and its program; several losses may be in one program.
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

/// Information for the trainers of such a job (opt_info of the original).
struct DownpourInfo {
  std::string trainer = "DistMultiTrainer";
  std::string device_worker = "DownpourSGD";
  std::string optimizer = "DownpourSGD";
  std::string fleet_desc;                                ///< text of the PSParameter
  std::map<std::string, ProgramTables> program_configs;  ///< "PROGRAM_0", ... in order of losses
  std::vector<std::string> worker_skipped_ops;
  bool use_cvm = false;
};

/// The result of minimize().
struct DownpourResult {
  std::vector<std::vector<ops::ParamGrad>> param_grads;  ///< by loss, sorted by parameter
  DownpourInfo info;
  /// Settings that had no effect, one line each.
  std::vector<std::string> remarks;
};

/// Appends gradients to the programs of the losses and describes the tables that hold their
/// parameters: sparse table 0 for the distributed lookup table of the first program; then, from 1,
/// a dense table for each loss, and one for its statistics if it has any.
///
/// The rules of the tables do all updates, so the program must not contain others: kUnimplemented
/// for ops of optimizers, clipping, regularization, averaging or schedules, and for an embedding
/// with a sparse gradient that is not a distributed lookup table. Other errors: kInvalidArgument
/// for no losses, several distributed lookup tables, slots that the first program lacks, a rate
/// that is never read, a malformed description, or invalid settings; those of append_backward().
/// Source: spec/fleet.md section 8.
StatusOr<DownpourResult> minimize_downpour(const ops::OpRegistry& registry,
                                           const std::vector<DownpourLoss>& losses,
                                           const DownpourOptions& options,
                                           const std::vector<std::string>& parameters = {},
                                           const std::set<std::string>& no_grad = {});

}  // namespace millrace::fleet
