#include "jobs/run/session.h"

#include <chrono>
#include <string>
#include <vector>

#include "executor/collective/group_link.h"
#include "executor/feed_values.h"
#include "executor/gradients/float64.h"
#include "executor/parallel/replica.h"
#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "framework/read_program.h"
#include "io/lacking_vars.h"
#include "io/model_folder.h"
#include "jobs/run/checkpoints.h"
#include "jobs/run/collective_ops.h"
#include "jobs/run/parallel_session.h"
#include "ops/read_checked_program.h"
#include "ops/verify.h"
#include "transpiler/parallel/parallel.h"

namespace millrace::jobs {
namespace {

using Clock = std::chrono::steady_clock;
using executor::NamedValues;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

Status load_params(const SessionOptions& options, Session& session) {
  if (session.params.empty()) return Ok();
  if (!options.model_dir.empty() && io::persistables_of(session.program()).empty()) return Ok();
  MILLRACE_RETURN_IF_ERROR(io::load_parameters(session.params, session.program(), *session.scope,
                                               {.threads = options.executor.threads}));
  const std::vector<std::string> kept =
      io::kept_vars(session.params, session.program(), *session.scope);
  if (!kept.empty()) options.log(LogLevel::kWarning, io::lacking_warning(session.params, kept));
  return Ok();
}

// Finds the program and the location of its parameters, from --model-dir unless they are given
// explicitly.
Status find_parts(const SessionOptions& options, Session& session) {
  session.name = options.program;
  session.params = options.params;
  if (!options.model_dir.empty() && session.name.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(session.name, io::find_program(options.model_dir));
  }
  if (session.name.empty())
    return {StatusCode::kUsage, "nothing to run: expected options.program or options.model_dir"};
  MILLRACE_ASSIGN_OR_RETURN(session.read, read_program(session.name, options.reading));
  if (options.model_dir.empty() || !session.params.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(
      session.params,
      io::find_params(options.model_dir, session.name, session.program(), options.params_filename));
  return Ok();
}

// Sets up processes that sum gradients: if the startup program or the caller requires it, and the
// main program has no ops for it.
Status link_processes(const SessionOptions& options, const executor::Runtime& runtime,
                      const Program* startup, Session& session) {
  const Op* const ids = startup == nullptr ? nullptr : find_group_ids(*startup);
  if (ids == nullptr && !options.data_parallel) return Ok();
  if (!transpiler::is_training_program(session.program()) || has_collective_ops(session.program()))
    return Ok();
  if (runtime.rings == nullptr) {
    return Status(StatusCode::kUsage, "the program needs several processes, found one")
        .with_hint("start it with launch or mpirun, or give runtime.rings");
  }
  MILLRACE_ASSIGN_OR_RETURN(executor::CollectiveGroup* const world, runtime.rings->world());
  int inter_ranks = 0;
  if (ids != nullptr && get_attr_or<bool>(*ids, "use_hierarchical_allreduce", false))
    inter_ranks = get_attr_or<int32_t>(*ids, "hierarchical_allreduce_inter_nranks", 0);
  // One group, or groups of one rank, are not a hierarchy.
  if (inter_ranks <= 1 || inter_ranks >= world->size()) inter_ranks = 0;
  MILLRACE_ASSIGN_OR_RETURN(session.link, executor::make_group_link(*world, inter_ranks));
  if (!runtime.rings->uses_devices()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(executor::CollectiveGroup* const on_gpu,
                            runtime.rings->ring_on_device(0, options.executor.gpu));
  MILLRACE_ASSIGN_OR_RETURN(session.gpu_link, executor::make_group_link(*on_gpu, inter_ranks));
  return Ok();
}

Status run_startup(const SessionOptions& options, const executor::Executor& executor,
                   const executor::Runtime& runtime, Session& session) {
  if (options.startup.empty()) return link_processes(options, runtime, nullptr, session);
  MILLRACE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Program> startup,
      ops::read_checked_program(*runtime.ops, options.startup, options.reading));
  StatusOr<std::unique_ptr<executor::PreparedProgram>> prepared =
      executor.prepare(*startup, *session.scope);
  std::vector<Value> none;
  Status status = prepared.ok() ? (*prepared)->run({}, {}, none) : prepared.status();
  if (!status.ok()) return std::move(status).in_file(options.startup);
  return link_processes(options, runtime, startup.get(), session);
}

}  // namespace

std::vector<uint64_t> random_positions(const Session& session) {
  if (session.prepared != nullptr) return {session.prepared->random_position()};
  std::vector<uint64_t> positions;
  positions.reserve(static_cast<size_t>(session.parallel->device_count()));
  for (int d = 0; d < session.parallel->device_count(); ++d)
    positions.push_back(session.parallel->random_position(d));
  return positions;
}

bool set_random_positions(Session& session, const std::vector<uint64_t>& positions) {
  const int devices = session.prepared != nullptr ? 1 : session.parallel->device_count();
  if (positions.size() != static_cast<size_t>(devices)) return false;
  if (session.prepared != nullptr) {
    session.prepared->set_random_position(positions[0]);
    return true;
  }
  for (int d = 0; d < devices; ++d)
    session.parallel->set_random_position(d, positions[static_cast<size_t>(d)]);
  return true;
}

bool is_state_var(const Var& var) {
  return var.persistable() && var.kind() != VarKind::kFeedMinibatch &&
         var.kind() != VarKind::kFetchList && var.kind() != VarKind::kFeedList;
}

namespace {

// True if parameters are neither saved nor shown after the run.
bool may_release_folded(const SessionOptions& options, const Program& program) {
  const auto shows_parameter = [&](llvm::StringRef list) {
    llvm::SmallVector<llvm::StringRef, 4> names;
    list.split(names, ',');
    return llvm::any_of(names, [&](llvm::StringRef name) {
      const Var* const var = program.root().find_var(name);
      return var != nullptr && var->persistable();
    });
  };
  return !options.reads_parameters && llvm::none_of(options.fetches, shows_parameter);
}

// Declares the program in float64, and converts the values of its scope, which were read or
// initialized in the declared types.
Status widen_session(const ops::OpRegistry& registry, Session& session) {
  executor::declare_in_float64(registry, *session.read);
  for (const std::string& name : session.scope->names()) {
    Value& value = session.scope->local(name);
    if (!value.initialized()) continue;
    MILLRACE_ASSIGN_OR_RETURN(Value wide, executor::in_float64(value));
    value = std::move(wide);
  }
  return Ok();
}

void go_on_with_random_numbers(const LogSink& log, Session& session) {
  if (session.first_step == 0 || set_random_positions(session, session.random)) return;
  log(LogLevel::kWarning,
      "random numbers restart: the checkpoint has no state for them, or for another number of "
      "devices");
}

}  // namespace

StatusOr<Session> open_session(const SessionOptions& options,
                               const std::shared_ptr<const executor::Runtime>& runtime) {
  Session session;
  const auto start = Clock::now();
  MILLRACE_RETURN_IF_ERROR(find_parts(options, session));
  if (Status status = ops::check_program(*runtime->ops, session.program()); !status.ok())
    return std::move(status).in_file(session.name);
  session.scope = std::make_unique<Scope>();
  if (runtime->rings != nullptr) session.rank = runtime->rings->rank();
  session.device_values = options.device_values;
  executor::ExecutorOptions how = options.executor;
  how.seed += static_cast<uint64_t>(session.rank) * executor::kSeedStep;
  how.release_folded = how.gpu == nullptr && may_release_folded(options, session.program());
  const executor::Executor executor(runtime, how);
  MILLRACE_RETURN_IF_ERROR(run_startup(options, executor, *runtime, session));
  MILLRACE_RETURN_IF_ERROR(load_params(options, session));
  if (runtime->rings != nullptr &&
      (session.link != nullptr || has_collective_ops(session.program()))) {
    MILLRACE_ASSIGN_OR_RETURN(session.ranks, runtime->rings->world());
  }
  MILLRACE_ASSIGN_OR_RETURN(
      session.first_step,
      resume_run(options.checkpoints, options.executor.threads, options.log, session));
  if (options.in_float64) MILLRACE_RETURN_IF_ERROR(widen_session(*runtime->ops, session));
  session.load_ms = ms_since(start);
  const auto loaded = Clock::now();
  if (session.link != nullptr || options.wants_parallel) {
    if (Status status = open_parallel(options, runtime, session); !status.ok())
      return std::move(status).in_file(session.name);
    session.plan_ms = ms_since(loaded);
    go_on_with_random_numbers(options.log, session);
    return session;
  }
  StatusOr<std::unique_ptr<executor::PreparedProgram>> prepared =
      executor.prepare(std::move(session.read), *session.scope);
  if (!prepared.ok()) return std::move(prepared).status().in_file(session.name);
  session.prepared = *std::move(prepared);
  session.plan_ms = ms_since(loaded);
  go_on_with_random_numbers(options.log, session);
  return session;
}

std::vector<std::string> wanted_fetches(const std::vector<std::string>& given,
                                        const Session& session) {
  if (!given.empty()) return given;
  return session.parallel != nullptr ? session.parallel->fetch_targets()
                                     : session.prepared->fetch_targets();
}

StatusOr<NamedValues> persistables(const Session& session) {
  NamedValues values;
  for (const Var& var : session.program().root().vars()) {
    if (!is_state_var(var)) continue;
    const Value* const value = session.scope->find_local(var.name());
    if (value == nullptr || !value->initialized()) continue;
    MILLRACE_RETURN_IF_ERROR(executor::copy_value(*value, values[var.name().str()]));
  }
  return values;
}

}  // namespace millrace::jobs
