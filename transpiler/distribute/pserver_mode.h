#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "transpiler/distribute/distribution_passes.h"
#include "transpiler/distribute/job.h"
#include "transpiler/distribute_result.h"

namespace millrace::transpiler {

/// One program distributed over parameter servers. The plan is made once and the programs of every
/// role are built from it, so results do not depend on the order of calls (quirk Q1).
///
/// Thread-safety: const functions may run concurrently.
class PserverMode {
 public:
  /// Rewrites copies of main and startup for the trainer that the arguments name.
  ///
  /// \param registry  must outlive the result
  /// \param pass_options  how the pipeline of the passes runs: verification, printing, dumps
  /// Errors: kInvalidArgument naming the field, kInvalidProgram naming the op, kUnimplemented for
  /// optimizers that cannot be sliced; spec/transpiler.md section 15 lists the conditions.
  static StatusOr<std::unique_ptr<PserverMode>> transpile(
      const Program& main, const Program& startup, const DistributeTranspilerConfig& config,
      const TranspileArguments& arguments, const ops::OpRegistry& registry,
      const PassManagerOptions& pass_options = fast_options());

  [[nodiscard]] const DistributionJob& job() const { return job_; }
  /// The rewritten main program that the job's ops belong to, optimizer included.
  [[nodiscard]] const Program& main() const { return *main_; }
  [[nodiscard]] ProgramProperties properties() const;
  [[nodiscard]] const std::vector<std::string>& remarks() const { return context_.remarks; }

  /// Programs of the trainer.
  [[nodiscard]] StatusOr<RolePrograms> trainer() const;
  /// The same without a copy. Afterwards neither the programs nor main() may be requested.
  StatusOr<RolePrograms> take_trainer();
  /// Programs of one server, by index of its endpoint.
  [[nodiscard]] StatusOr<RolePrograms> pserver(size_t server) const;
  /// Index of an endpoint. Errors: kInvalidArgument naming the known ones.
  [[nodiscard]] StatusOr<size_t> server_index(const std::string& endpoint) const;

 private:
  explicit PserverMode(const ops::OpRegistry& registry) : context_(registry) {}

  std::unique_ptr<Program> main_;
  std::unique_ptr<Program> startup_;
  DistributionJob job_;
  std::vector<std::string> training_;  ///< ProgramProperties::training
  PassContext context_;
};

/// Checks the fields that do not depend on a program. Errors: kInvalidArgument naming the field.
Status check_config(const DistributeTranspilerConfig& config);

}  // namespace millrace::transpiler
