#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/status.h"
#include "transpiler/distribute_config.h"
#include "transpiler/vars_distributed.h"

namespace millrace {
class Program;
}

namespace millrace::transpiler {

class Transpilation;

/// Distributes one training program; the API of the original's class of that name.
///
/// transpile() makes the plan. The get_ functions build the programs of a role on each call; calls
/// are independent of each other and of their order. Programs are returned as shared pointers;
/// framework/program_file.h writes them to files.
///
/// \code
///   DistributeTranspiler t;
///   Status status = t.transpile(*main, *startup, {.trainer_id = 0, .pservers =
///   "10.0.0.1:6174,10.0.0.2:6174",
///                                                 .trainers = "2"});
///   auto trainer = t.get_trainer_program();
///   auto [server, server_startup] = t.get_pserver_programs("10.0.0.1:6174").value();
/// \endcode
///
/// Thread-safety: const functions may run concurrently. Source: spec/transpiler.md; seeds 001 and
/// 002.
class DistributeTranspiler {
 public:
  using ProgramPtr = std::shared_ptr<const Program>;

  /// \param transpiler  distribute, geo or federated
  explicit DistributeTranspiler(DistributeTranspilerConfig config = {},
                                std::string transpiler = "distribute");
  ~DistributeTranspiler();
  DistributeTranspiler(DistributeTranspiler&&) noexcept;
  DistributeTranspiler& operator=(DistributeTranspiler&&) noexcept;

  /// Plans the distribution of main and startup; both are verified, neither is changed. Errors:
  /// kInvalidArgument naming the field, kInvalidProgram naming the program ("main" or "startup")
  /// and the op, kUnimplemented (spec/transpiler.md section 15). After an error there is no plan.
  Status transpile(const Program& main, const Program& startup,
                   const TranspileArguments& arguments = {});

  /// Main program of the trainer.
  /// \param wait_port  with config.wait_port: first waits until every server accepts connections
  /// Errors: kInvalidArgument without a plan; kDistributed naming the servers that did not accept a
  /// connection in 120 s.
  [[nodiscard]] StatusOr<ProgramPtr> get_trainer_program(bool wait_port = true) const;
  /// Startup program of the trainer.
  [[nodiscard]] StatusOr<ProgramPtr> get_trainer_startup_program() const;
  /// Main program of the server at an endpoint. Errors: kInvalidArgument if there is no such
  /// server.
  [[nodiscard]] StatusOr<ProgramPtr> get_pserver_program(const std::string& endpoint) const;
  /// Main and startup program of the server at an endpoint.
  [[nodiscard]] StatusOr<std::pair<ProgramPtr, ProgramPtr>> get_pserver_programs(
      const std::string& endpoint) const;
  /// Startup program of the server at an endpoint.
  [[nodiscard]] StatusOr<ProgramPtr> get_startup_program(const std::string& endpoint) const;

  /// Which vars are on which server; empty before transpile() and in modes without servers.
  [[nodiscard]] const VarsDistributed& vars_overview() const;
  /// Endpoints of the servers in order.
  [[nodiscard]] const std::vector<std::string>& pserver_endpoints() const;
  /// slices.json of the plan: the overview and the facts that the program format does not carry.
  [[nodiscard]] std::string slices_json() const;

 private:
  struct State;
  [[nodiscard]] Status require_plan() const;
  PartsPtr<State> state_;
};

}  // namespace millrace::transpiler
