#include "transpiler/distribute_transpiler.h"

#include <algorithm>

#include "framework/base/errors.h"
#include "ops/registry.h"
#include "ops/verify.h"
#include "transpiler/distribute/slices_json.h"
#include "transpiler/distribute/transpilation.h"
#include "transpiler/distribute/wait_ports.h"

namespace millrace::transpiler {
namespace {
constexpr int64_t kPortDeadlineMs = 120'000;
}  // namespace

struct DistributeTranspiler::State {
  DistributeTranspilerConfig config;
  std::string transpiler;
  std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  std::unique_ptr<Transpilation> plan;
  VarsDistributed nothing;
  std::vector<std::string> no_endpoints;

  [[nodiscard]] StatusOr<RolePrograms> server(const std::string& endpoint) const {
    const std::vector<std::string>& endpoints = plan->properties().endpoints;
    const auto it = std::find(endpoints.begin(), endpoints.end(), endpoint);
    if (it == endpoints.end() || plan->server_count() == 0) {
      return InvalidArgument("'{}' is not one of the {} servers of this job", endpoint,
                             plan->server_count());
    }
    return plan->pserver(static_cast<size_t>(it - endpoints.begin()));
  }
};

DistributeTranspiler::DistributeTranspiler(DistributeTranspilerConfig config,
                                           std::string transpiler)
    : state_(std::make_unique<State>()) {
  state_->config = std::move(config);
  state_->transpiler = std::move(transpiler);
}
DistributeTranspiler::~DistributeTranspiler() = default;
DistributeTranspiler::DistributeTranspiler(DistributeTranspiler&&) noexcept = default;
DistributeTranspiler& DistributeTranspiler::operator=(DistributeTranspiler&&) noexcept = default;

Status DistributeTranspiler::transpile(const Program& main, const Program& startup,
                                       const TranspileArguments& arguments) {
  state_->plan.reset();
  MILLRACE_RETURN_IF_ERROR(ops::check_program(*state_->registry, main).in_file("main"));
  MILLRACE_RETURN_IF_ERROR(ops::check_program(*state_->registry, startup).in_file("startup"));
  MILLRACE_ASSIGN_OR_RETURN(state_->plan,
                            Transpilation::create(state_->transpiler, main, startup, state_->config,
                                                  arguments, *state_->registry));
  return Ok();
}

Status DistributeTranspiler::require_plan() const {
  return state_->plan != nullptr ? Ok() : InvalidArgument("no program has been transpiled");
}

StatusOr<DistributeTranspiler::ProgramPtr> DistributeTranspiler::get_trainer_program(
    bool wait_port) const {
  MILLRACE_RETURN_IF_ERROR(require_plan());
  MILLRACE_ASSIGN_OR_RETURN(RolePrograms roles, state_->plan->trainer());
  if (wait_port && state_->config.wait_port && state_->plan->server_count() > 0) {
    MILLRACE_RETURN_IF_ERROR(wait_ports(state_->plan->properties().endpoints, kPortDeadlineMs));
  }
  return ProgramPtr(std::move(roles.main));
}

StatusOr<DistributeTranspiler::ProgramPtr> DistributeTranspiler::get_trainer_startup_program()
    const {
  MILLRACE_RETURN_IF_ERROR(require_plan());
  MILLRACE_ASSIGN_OR_RETURN(RolePrograms roles, state_->plan->trainer());
  return ProgramPtr(std::move(roles.startup));
}

StatusOr<std::pair<DistributeTranspiler::ProgramPtr, DistributeTranspiler::ProgramPtr>>
DistributeTranspiler::get_pserver_programs(const std::string& endpoint) const {
  MILLRACE_RETURN_IF_ERROR(require_plan());
  MILLRACE_ASSIGN_OR_RETURN(RolePrograms roles, state_->server(endpoint));
  return std::pair<ProgramPtr, ProgramPtr>(std::move(roles.main), std::move(roles.startup));
}

StatusOr<DistributeTranspiler::ProgramPtr> DistributeTranspiler::get_pserver_program(
    const std::string& endpoint) const {
  MILLRACE_ASSIGN_OR_RETURN(auto programs, get_pserver_programs(endpoint));
  return std::move(programs.first);
}

StatusOr<DistributeTranspiler::ProgramPtr> DistributeTranspiler::get_startup_program(
    const std::string& endpoint) const {
  MILLRACE_ASSIGN_OR_RETURN(auto programs, get_pserver_programs(endpoint));
  return std::move(programs.second);
}

const VarsDistributed& DistributeTranspiler::vars_overview() const {
  return state_->plan == nullptr ? state_->nothing : state_->plan->overview();
}

const std::vector<std::string>& DistributeTranspiler::pserver_endpoints() const {
  return state_->plan == nullptr ? state_->no_endpoints : state_->plan->properties().endpoints;
}

std::string DistributeTranspiler::slices_json() const {
  if (state_->plan == nullptr) return transpiler::slices_json(ProgramProperties(), state_->nothing);
  return transpiler::slices_json(state_->plan->properties(), state_->plan->overview());
}

}  // namespace millrace::transpiler
