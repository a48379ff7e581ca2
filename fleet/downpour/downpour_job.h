#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fleet/downpour/downpour_sgd.h"
#include "fleet/job/fleet_job.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/registry.h"

namespace millrace::fleet {

struct DownpourTables;

/// The information for the trainers (opt_info of the original) as JSON, with a line feed at the
/// end: trainer, device_worker, optimizer, use_cvm, worker_skipped_ops and program_configs. The
/// description of the tables is not part of it.
std::string opt_info_json(const DownpourInfo& info);

/// A DownpourSGD job that runs as an asynchronous fleet job: the tables that DownpourSGD describes
/// become typed tables of the servers with the same numbers and rules, and workers look up, push
/// and pull as those of other fleet jobs do.
///
/// Rules: adam of dense tables is adam_d2sum, with the rate and decays of the description; naive
/// is sgd. Sparse tables have the rules of the description.
class DownpourJob {
 public:
  DownpourJob(DownpourJob&&) noexcept;
  DownpourJob& operator=(DownpourJob&&) noexcept;
  ~DownpourJob();
  /// \param main, startup  the forward program and its initializers; not changed
  /// \param spec           servers, workers and environment; the strategy is set here
  /// Errors: those of minimize_downpour(), ops::minimize() and FleetJob::create();
  /// kInvalidArgument for a program without a distributed lookup table, or rows whose width is not
  /// that of the description; kUnimplemented, by name, for what the tables or workers cannot do:
  /// accessors of double precision and DownpourSparseValueAccessor, a window other than 1, another
  /// decay of averages than the default, statistics of data_norm, tables that the program does
  /// not use, heter workers and JobSpec::all_reduces_dense.
  static StatusOr<DownpourJob> create(const ops::OpRegistry& registry, const Program& main,
                                      const Program& startup, const std::string& loss,
                                      const DownpourOptions& options, JobSpec spec);

  [[nodiscard]] const FleetJob& job() const { return *job_; }
  [[nodiscard]] const DownpourInfo& info() const { return info_; }
  /// The program with gradients and updates, whose lookups fetch rows from the servers.
  [[nodiscard]] const Program& main() const { return *main_; }
  /// The programs and descriptions of one process. Errors: those of FleetJob::role().
  [[nodiscard]] StatusOr<RoleOutput> role(const JobRole& role) const;

 private:
  DownpourJob();

  DownpourInfo info_;
  std::unique_ptr<DownpourTables> tables_;
  std::vector<std::string> remarks_;
  std::unique_ptr<Program> main_;     ///< with updates; the job refers to it
  std::unique_ptr<Program> startup_;  ///< likewise
  std::unique_ptr<FleetJob> job_;
};

}  // namespace millrace::fleet
