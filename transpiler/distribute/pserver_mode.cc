#include "transpiler/distribute/pserver_mode.h"

#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "framework/text_form/print.h"
#include "transpiler/distribute/endpoints.h"
#include "transpiler/distribute/pserver_program.h"
#include "transpiler/distribute/trainer_program.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

constexpr llvm::StringLiteral kPserverPipeline =
    "collect-optimizers,find-tables,slice-vars,place-slices,insert-sends,share-step-counter,"
    "append-send-barrier,append-recvs,replace-prefetched-lookups,join-params,"
    "extend-trainer-startup,replace-distributed-lookups,list-optimizer-state";

Status check_arguments(const DistributionJob& job) {
  const int64_t id = job.arguments.trainer_id;
  if (id < 0 || id >= job.trainers) {
    return InvalidArgument("trainer_id must be in 0..{} (found {})", job.trainers - 1, id);
  }
  if (job.arguments.sync_mode && !job.config.sync_mode)
    return InvalidArgument(
        "sync_mode true needs config_sync_mode true (found false): trainers would send the "
        "gradients of a step, and servers would not merge them");
  return Ok();
}

// Lists values that servers hold but that the overview, as in the original, does not contain.
void list_rates(const Block& block, const Block& startup, DistributionJob& job) {
  std::set<std::string> rates;
  for (const Op* const op : job.optimize_ops) {
    if (role::is_optimizer(*op)) rates.insert(op->first_input("LearningRate").str());
  }
  std::set<std::string> schedule;
  const auto keep = [&](llvm::StringRef name) {
    const Var* const var = block.find_var(name);
    if (var != nullptr && var->persistable() && var->kind() == VarKind::kLodTensor &&
        startup.has_writers(name))
      schedule.insert(name.str());
  };
  for (const Op* const op : job.lr_ops) {
    for (const llvm::StringRef name : op->output_names()) keep(name);
  }
  job.rates.assign(rates.begin(), rates.end());
  job.schedule.assign(schedule.begin(), schedule.end());
}

// A trainer of another run may have the same slices.
std::vector<std::string> list_training(const DistributionJob& job) {
  static constexpr const char* kModes[] = {"sync", "async", "half-async", "geo"};
  std::set<std::string> updates;
  for (const Op* const op : job.optimize_ops) {
    if (role::is_optimizer(*op))
      updates.insert(
          fmt::format("{} updates {}", op->type().str(), print_name(op->first_input("Param"))));
  }
  std::vector<std::string> lines{fmt::format(
      "{} with {} trainers", kModes[static_cast<size_t>(job.distributed_mode())], job.trainers)};
  lines.insert(lines.end(), updates.begin(), updates.end());
  return lines;
}

}  // namespace

Status check_config(const DistributeTranspilerConfig& config) {
  constexpr int64_t kSmallestBlock = 8192;
  if (config.min_block_size < kSmallestBlock) {
    return InvalidArgument("min_block_size must be at least {} elements (found {})", kSmallestBlock,
                           config.min_block_size);
  }
  if (config.runtime_split_send_recv && config.sync_mode) {
    return InvalidArgument("runtime_split_send_recv needs config_sync_mode false (found true)");
  }
  return Ok();
}

StatusOr<std::unique_ptr<PserverMode>> PserverMode::transpile(
    const Program& main, const Program& startup, const DistributeTranspilerConfig& config,
    const TranspileArguments& arguments, const ops::OpRegistry& registry,
    const PassManagerOptions& pass_options) {
  MILLRACE_RETURN_IF_ERROR(check_config(config));
  std::unique_ptr<PserverMode> mode(new PserverMode(registry));
  DistributionJob& job = mode->job_;
  job.config = config;
  job.arguments = arguments;
  MILLRACE_ASSIGN_OR_RETURN(job.endpoints, split_endpoints(arguments.pservers, "pservers"));
  MILLRACE_ASSIGN_OR_RETURN(job.trainers, parse_trainer_count(arguments.trainers));
  MILLRACE_RETURN_IF_ERROR(check_arguments(job));
  mode->main_ = main.clone();
  mode->startup_ = startup.clone();
  mode->context_.startup = mode->startup_.get();
  mode->context_.job = &job;
  MILLRACE_RETURN_IF_ERROR(
      run_distribution(kPserverPipeline, *mode->main_, mode->context_, pass_options).status());
  job.lr_ops = role::lr_ops(mode->main_->root());
  list_rates(mode->main_->root(), mode->startup_->root(), job);
  mode->training_ = list_training(job);
  return mode;
}

ProgramProperties PserverMode::properties() const {
  ProgramProperties out;
  out.is_distributed = true;
  out.is_chief = job_.arguments.trainer_id == 0;
  out.ps_endpoint = job_.arguments.current_endpoint;
  out.endpoints = job_.endpoints;
  out.distributed_lookup_table = job_.table.param;
  out.rates = job_.rates;
  out.schedule = job_.schedule;
  out.training = training_;
  return out;
}

StatusOr<RolePrograms> PserverMode::trainer() const {
  return make_trainer_programs({main_->clone(), startup_->clone()}, job_);
}

StatusOr<RolePrograms> PserverMode::take_trainer() {
  return make_trainer_programs({std::move(main_), std::move(startup_)}, job_);
}

StatusOr<RolePrograms> PserverMode::pserver(size_t server) const {
  RolePrograms out;
  MILLRACE_ASSIGN_OR_RETURN(out.main, make_pserver_program(*main_, context_, job_, server));
  MILLRACE_ASSIGN_OR_RETURN(out.startup, make_pserver_startup(*startup_, *out.main, job_, server));
  return out;
}

StatusOr<size_t> PserverMode::server_index(const std::string& endpoint) const {
  std::string known;
  for (size_t i = 0; i < job_.endpoints.size(); ++i) {
    if (job_.endpoints[i] == endpoint) return i;
    known += (i == 0 ? "" : ", ") + job_.endpoints[i];
  }
  return InvalidArgument("'{}' is not one of the servers ({})", endpoint, known);
}

}  // namespace millrace::transpiler
