#include "transpiler/distribute/transpilation.h"

#include <algorithm>
#include <array>
#include <set>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "transpiler/distribute/check_ranges.h"
#include "transpiler/distribute/collective.h"
#include "transpiler/distribute/endpoints.h"
#include "transpiler/distribute/federated.h"
#include "transpiler/distribute/geo.h"
#include "transpiler/distribute/nccl2.h"
#include "transpiler/distribute/pserver_mode.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

RolePrograms copy_of(const RolePrograms& roles) {
  return {roles.main->clone(), roles.startup->clone()};
}

// Modes with servers whose programs run the optimizer.
class WithPservers final : public Transpilation {
 public:
  WithPservers(std::unique_ptr<PserverMode> mode, const ops::OpRegistry& registry)
      : mode_(std::move(mode)), registry_(registry) {
    properties_ = mode_->properties();
    overview_ = mode_->job().overview;
    remarks_ = mode_->remarks();
    trainer_count_ = mode_->job().trainers;
  }
  [[nodiscard]] StatusOr<RolePrograms> trainer() const override { return mode_->trainer(); }
  StatusOr<RolePrograms> take_trainer() override { return mode_->take_trainer(); }
  [[nodiscard]] size_t server_count() const override { return mode_->job().endpoints.size(); }
  [[nodiscard]] StatusOr<RolePrograms> pserver(size_t server) const override {
    return mode_->pserver(server);
  }
  [[nodiscard]] CostInput cost() const override {
    return cost_input(mode_->main(), mode_->job(), registry_);
  }

 private:
  std::unique_ptr<PserverMode> mode_;
  const ops::OpRegistry& registry_;
};

// Modes whose programs are all built together.
class FixedRoles : public Transpilation {
 public:
  FixedRoles(RolePrograms trainer, std::vector<RolePrograms> pservers, ProgramProperties properties,
             VarsDistributed overview, int64_t trainers)
      : trainer_(std::move(trainer)), pservers_(std::move(pservers)) {
    properties_ = std::move(properties);
    overview_ = std::move(overview);
    trainer_count_ = trainers;
  }
  [[nodiscard]] StatusOr<RolePrograms> trainer() const override { return copy_of(trainer_); }
  StatusOr<RolePrograms> take_trainer() override { return std::move(trainer_); }
  [[nodiscard]] size_t server_count() const override { return pservers_.size(); }
  [[nodiscard]] StatusOr<RolePrograms> pserver(size_t server) const override {
    return copy_of(pservers_[server]);
  }

 private:
  RolePrograms trainer_;
  std::vector<RolePrograms> pservers_;
};

// Trainers send changes every few steps; for sparse tables only the changed rows.
class GeoRoles final : public FixedRoles {
 public:
  GeoRoles(GeoPrograms programs, int64_t trainers, int64_t push_every)
      : FixedRoles(std::move(programs.trainer), std::move(programs.pservers),
                   std::move(programs.properties), std::move(programs.overview), trainers),
        push_every_(std::max<int64_t>(push_every, 1)) {
    for (const GeoVar& var : properties_.geo->vars) {
      if (var.is_sparse) sparse_.insert(var.var_names.begin(), var.var_names.end());
    }
  }
  [[nodiscard]] CostInput cost() const override {
    CostInput input = Transpilation::cost();
    input.sync = false;
    input.exchanges_per_step = 1.0 / static_cast<double>(push_every_);
    for (CostSlice& slice : input.slices) {
      if (sparse_.count(slice.name) != 0) slice.traffic = Traffic::kPrefetch;
    }
    return input;
  }

 private:
  std::set<std::string> sparse_;
  int64_t push_every_;
};

class FederatedRoles final : public FixedRoles {
 public:
  FederatedRoles(FederatedPrograms programs, int64_t trainers)
      // The reference programs record nothing about the distribution: every trainer holds all
      // parameters and saves them itself.
      : FixedRoles({std::move(programs.compute), std::move(programs.startup)},
                   std::move(programs.pservers), ProgramProperties(), VarsDistributed(), trainers),
        recv_(std::move(programs.recv)),
        send_(std::move(programs.send)) {
    remarks_ = std::move(programs.remarks);
  }
  [[nodiscard]] std::vector<std::pair<std::string, std::unique_ptr<Program>>> trainer_extras()
      const override {
    std::vector<std::pair<std::string, std::unique_ptr<Program>>> out;
    out.emplace_back("__recv__", recv_->clone());
    out.emplace_back("__send__", send_->clone());
    return out;
  }

 private:
  std::unique_ptr<Program> recv_;
  std::unique_ptr<Program> send_;
};

using Result = StatusOr<std::unique_ptr<Transpilation>>;

// 1 if the stated number is invalid; the transpilers reject that.
int64_t trainer_number(const TranspileArguments& arguments) {
  const StatusOr<int64_t> count = parse_trainer_count(arguments.trainers);
  return count.ok() ? *count : 1;
}

Result geo(const Program& main, const Program& startup, const DistributeTranspilerConfig& config,
           const TranspileArguments& arguments, const ops::OpRegistry& registry,
           const PassManagerOptions& pass_options) {
  MILLRACE_ASSIGN_OR_RETURN(
      GeoPrograms out, transpile_geo(main, startup, config, arguments, registry, pass_options));
  return std::unique_ptr<Transpilation>(std::make_unique<GeoRoles>(
      std::move(out), trainer_number(arguments), config.geo_sgd_need_push_nums));
}

Result federated(const Program& main, const Program& startup,
                 const DistributeTranspilerConfig& config, const TranspileArguments& arguments,
                 const ops::OpRegistry& registry, const PassManagerOptions& pass_options) {
  MILLRACE_ASSIGN_OR_RETURN(
      FederatedPrograms out,
      transpile_federated(main, startup, config, arguments, registry, pass_options));
  return std::unique_ptr<Transpilation>(
      std::make_unique<FederatedRoles>(std::move(out), trainer_number(arguments)));
}

Result with_pservers(const Program& main, const Program& startup,
                     const DistributeTranspilerConfig& config, const TranspileArguments& arguments,
                     const ops::OpRegistry& registry, const PassManagerOptions& pass_options) {
  MILLRACE_ASSIGN_OR_RETURN(
      std::unique_ptr<PserverMode> mode,
      PserverMode::transpile(main, startup, config, arguments, registry, pass_options));
  return std::unique_ptr<Transpilation>(std::make_unique<WithPservers>(std::move(mode), registry));
}

// nccl2 and collective: trainers only, known by their endpoints.
Result among_trainers(const Program& main, const Program& startup,
                      const DistributeTranspilerConfig& config, const TranspileArguments& arguments,
                      const ops::OpRegistry& registry, const PassManagerOptions& pass_options) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> endpoints,
                            split_endpoints(arguments.trainers, "trainers"));
  ProgramProperties properties;
  const auto transpile = config.mode == "nccl2" ? transpile_nccl2 : transpile_collective;
  MILLRACE_ASSIGN_OR_RETURN(RolePrograms trainer, transpile(main, startup, config, arguments,
                                                            registry, &properties, pass_options));
  return std::unique_ptr<Transpilation>(std::make_unique<FixedRoles>(
      std::move(trainer), std::vector<RolePrograms>(), std::move(properties), VarsDistributed(),
      static_cast<int64_t>(endpoints.size())));
}

Status unknown(std::string_view field, const std::string& value,
               std::span<const std::string_view> known) {
  std::string list;
  for (const std::string_view name : known) list += (list.empty() ? "" : ", ") + std::string(name);
  Status status = InvalidArgument("{} '{}' is unknown (expected one of {})", field, value, list);
  const std::string nearest = nearest_name(value, known);
  return nearest.empty() ? status : std::move(status).with_hint("did you mean '" + nearest + "'?");
}

}  // namespace

int64_t Transpilation::count_trainers(const std::string& transpiler,
                                      const DistributeTranspilerConfig& config,
                                      const TranspileArguments& arguments) {
  if (transpiler != "distribute" || config.mode == "pserver") return trainer_number(arguments);
  const auto endpoints = split_endpoints(arguments.trainers, "trainers");
  return endpoints.ok() ? static_cast<int64_t>(endpoints->size()) : 1;
}

StatusOr<RolePrograms> Transpilation::pserver(size_t server) const {
  return InvalidArgument("this mode has no servers (asked for server {})", server);
}

Result Transpilation::create(const std::string& transpiler, const Program& main,
                             const Program& startup, const DistributeTranspilerConfig& config,
                             const TranspileArguments& arguments, const ops::OpRegistry& registry,
                             const PassManagerOptions& pass_options) {
  constexpr std::array<std::string_view, 3> kTranspilers = {"distribute", "geo", "federated"};
  constexpr std::array<std::string_view, 3> kModes = {"pserver", "nccl2", "collective"};
  MILLRACE_RETURN_IF_ERROR(check_ranges(config, arguments));
  MILLRACE_RETURN_IF_ERROR(role::check_updates_in_block_0(main));
  if (transpiler == "geo") return geo(main, startup, config, arguments, registry, pass_options);
  if (transpiler == "federated")
    return federated(main, startup, config, arguments, registry, pass_options);
  if (transpiler != "distribute") return unknown("transpiler", transpiler, kTranspilers);
  if (config.mode == "pserver")
    return with_pservers(main, startup, config, arguments, registry, pass_options);
  if (config.mode == "nccl2" || config.mode == "collective") {
    return among_trainers(main, startup, config, arguments, registry, pass_options);
  }
  return unknown("mode", config.mode, kModes);
}

}  // namespace millrace::transpiler
