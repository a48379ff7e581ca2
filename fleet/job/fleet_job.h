#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fleet/job/job_spec.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "transpiler/fleet/fleet_programs.h"

namespace millrace::fleet {

/// Programs and descriptions of one process.
struct RoleOutput {
  transpiler::FleetPrograms programs;
  std::string ps_desc;  ///< describe_tables()
  std::string runtime;  ///< runtime_json()
};

/// Splits a training program into the processes of a parameter-server job with typed tables.
class FleetJob {
 public:
  /// \param main, startup  the training program, with its optimizer; must outlive the result
  /// Errors: kInvalidArgument for a job without servers or workers, a malformed or repeated
  /// endpoint, or a strategy without a mode; kUnimplemented for tables and heter workers on GPUs;
  /// those of plan_tables(), check_lookups(), check_geo_lookups() and make_heter_workers(). With
  /// JobSpec::all_reduces_dense also those of keep_rows_only(), and kUnimplemented for geo jobs,
  /// heter workers and adam_d2sum.
  static StatusOr<FleetJob> create(const Program& main, const Program& startup, JobSpec spec);

  [[nodiscard]] const JobSpec& spec() const { return spec_; }
  [[nodiscard]] const transpiler::TablePlan& plan() const { return plan_; }
  [[nodiscard]] ps::CommMode mode() const { return mode_; }

  /// The programs and descriptions of one process. Errors: kInvalidArgument for a role that the job
  /// does not have; those of make_fleet_worker() and describe_tables().
  [[nodiscard]] StatusOr<RoleOutput> role(const JobRole& role) const;
  /// The programs of the heter workers, in order; empty: the job has none.
  [[nodiscard]] const std::vector<transpiler::RolePrograms>& heter_workers() const {
    return heter_workers_;
  }

 private:
  FleetJob() = default;
  Status take_heter_workers();
  void add_remarks(std::vector<std::string>& remarks) const;

  const Program* main_ = nullptr;
  const Program* startup_ = nullptr;
  std::unique_ptr<Program> without_heter_;  ///< main_ with calls of heter workers; null: none
  std::vector<transpiler::RolePrograms> heter_workers_;
  JobSpec spec_;
  transpiler::TablePlan plan_;
  ps::CommMode mode_ = ps::CommMode::kSync;
};

}  // namespace millrace::fleet
