#include "transpiler/distribute/transpilation.h"

#include <array>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "transpiler/distribute/collective.h"
#include "transpiler/distribute/endpoints.h"
#include "transpiler/distribute/nccl2.h"
#include "transpiler/distribute/pserver_mode.h"

namespace millrace::transpiler {
namespace {

RolePrograms copy_of(const RolePrograms& roles) {
  return {roles.main->clone(), roles.startup->clone()};
}

// Modes with servers whose programs run the optimizer.
class WithPservers final : public Transpilation {
 public:
  explicit WithPservers(std::unique_ptr<PserverMode> mode) : mode_(std::move(mode)) {
    properties_ = mode_->properties();
    overview_ = mode_->job().overview;
    remarks_ = mode_->remarks();
    trainer_count_ = mode_->job().trainers;
  }
  [[nodiscard]] StatusOr<RolePrograms> trainer() const override { return mode_->trainer(); }
  [[nodiscard]] size_t server_count() const override { return mode_->job().endpoints.size(); }
  [[nodiscard]] StatusOr<RolePrograms> pserver(size_t server) const override {
    return mode_->pserver(server);
  }

 private:
  std::unique_ptr<PserverMode> mode_;
};

// Modes whose programs are all made at once.
class FixedRoles final : public Transpilation {
 public:
  FixedRoles(RolePrograms trainer, std::vector<RolePrograms> pservers, ProgramProperties properties,
             VarsDistributed overview, int64_t trainers)
      : trainer_(std::move(trainer)), pservers_(std::move(pservers)) {
    properties_ = std::move(properties);
    overview_ = std::move(overview);
    trainer_count_ = trainers;
  }
  [[nodiscard]] StatusOr<RolePrograms> trainer() const override { return copy_of(trainer_); }
  [[nodiscard]] size_t server_count() const override { return pservers_.size(); }
  [[nodiscard]] StatusOr<RolePrograms> pserver(size_t server) const override {
    return copy_of(pservers_[server]);
  }

 private:
  RolePrograms trainer_;
  std::vector<RolePrograms> pservers_;
};

using Result = StatusOr<std::unique_ptr<Transpilation>>;

Result with_pservers(const Program& main, const Program& startup,
                     const DistributeTranspilerConfig& config, const TranspileArguments& arguments,
                     const ops::OpRegistry& registry) {
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<PserverMode> mode,
                            PserverMode::transpile(main, startup, config, arguments, registry));
  return std::unique_ptr<Transpilation>(std::make_unique<WithPservers>(std::move(mode)));
}

// nccl2 and collective: trainers only, known by their endpoints.
Result among_trainers(const Program& main, const Program& startup,
                      const DistributeTranspilerConfig& config, const TranspileArguments& arguments,
                      const ops::OpRegistry& registry) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> endpoints,
                            list_endpoints(arguments.trainers, "trainers"));
  ProgramProperties properties;
  const auto transpile = config.mode == "nccl2" ? transpile_nccl2 : transpile_collective;
  MILLRACE_ASSIGN_OR_RETURN(RolePrograms trainer,
                            transpile(main, startup, config, arguments, registry, &properties));
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

StatusOr<RolePrograms> Transpilation::pserver(size_t server) const {
  return InvalidArgument("this mode has no servers (asked for server {})", server);
}

Result Transpilation::create(const std::string& transpiler, const Program& main,
                             const Program& startup, const DistributeTranspilerConfig& config,
                             const TranspileArguments& arguments, const ops::OpRegistry& registry) {
  constexpr std::array<std::string_view, 3> kTranspilers = {"distribute", "geo", "federated"};
  constexpr std::array<std::string_view, 3> kModes = {"pserver", "nccl2", "collective"};
  if (transpiler != "distribute") return unknown("transpiler", transpiler, kTranspilers);
  if (config.mode == "pserver") return with_pservers(main, startup, config, arguments, registry);
  if (config.mode == "nccl2" || config.mode == "collective") {
    return among_trainers(main, startup, config, arguments, registry);
  }
  return unknown("mode", config.mode, kModes);
}

}  // namespace millrace::transpiler
