#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/status.h"
#include "ops/registry.h"
#include "transpiler/distribute/cost_model.h"
#include "transpiler/distribute/distribution_passes.h"
#include "transpiler/distribute_config.h"
#include "transpiler/distribute_result.h"

namespace millrace::transpiler {

/// One program distributed over the roles of a cluster, in any mode. Programs of a role are built
/// on request; calls do not influence each other.
///
/// Thread-safety: const functions may run concurrently.
class Transpilation {
 public:
  Transpilation() = default;
  virtual ~Transpilation() = default;
  Transpilation(const Transpilation&) = delete;
  Transpilation& operator=(const Transpilation&) = delete;

  /// Plans the distribution for the trainer that the arguments name.
  ///
  /// \param transpiler  distribute (config.mode selects the mode), geo or federated
  /// \param registry    must outlive the result
  /// \param pass_options  how the pipeline of the mode runs: verification, printing, dumps
  /// Errors: kInvalidArgument naming the field, kInvalidProgram naming the op, kUnimplemented.
  static StatusOr<std::unique_ptr<Transpilation>> create(
      const std::string& transpiler, const Program& main, const Program& startup,
      const DistributeTranspilerConfig& config, const TranspileArguments& arguments,
      const ops::OpRegistry& registry, const PassManagerOptions& pass_options = fast_options());

  /// Number of trainers that the arguments of create() state; 1 if that is missing or invalid.
  static int64_t count_trainers(const std::string& transpiler,
                                const DistributeTranspilerConfig& config,
                                const TranspileArguments& arguments);

  /// Programs of the trainer.
  [[nodiscard]] virtual StatusOr<RolePrograms> trainer() const = 0;
  /// The same without a copy of large programs. Afterwards trainer(), pserver() and cost() must not
  /// be called.
  virtual StatusOr<RolePrograms> take_trainer() = 0;
  /// Additional programs that a trainer runs, by file name: "__recv__" before main and "__send__"
  /// after it in federated mode, none in the others.
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::unique_ptr<Program>>>
  trainer_extras() const {
    return {};
  }
  /// Number of servers; 0 in modes without servers.
  [[nodiscard]] virtual size_t server_count() const { return 0; }
  /// Programs of one server.
  [[nodiscard]] virtual StatusOr<RolePrograms> pserver(size_t server) const;

  /// Input of the cost model; has no endpoints in modes without servers.
  [[nodiscard]] virtual CostInput cost() const {
    return cost_input(properties_, overview_, trainer_count_);
  }

  [[nodiscard]] const ProgramProperties& properties() const { return properties_; }
  [[nodiscard]] const VarsDistributed& overview() const { return overview_; }
  /// Remarks on what was done, one per line; filled if config.print_log is set.
  [[nodiscard]] const std::vector<std::string>& remarks() const { return remarks_; }
  /// Number of trainers of the job.
  [[nodiscard]] int64_t trainer_count() const { return trainer_count_; }

 protected:
  ProgramProperties properties_;
  VarsDistributed overview_;
  std::vector<std::string> remarks_;
  int64_t trainer_count_ = 1;
};

}  // namespace millrace::transpiler
