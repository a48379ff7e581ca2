#include "jobs/run/parallel_session.h"

#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "executor/feed_values.h"
#include "framework/base/errors.h"
#include "io/npz.h"
#include "ops/read_checked_program.h"

namespace millrace::jobs {
namespace {

using executor::NamedValues;
using executor::ParallelFeeds;

// "dev1/x" -> 1 and "x".
StatusOr<std::pair<size_t, std::string>> split_member(const std::string& name, size_t devices) {
  const auto [head, rest] = llvm::StringRef(name).split('/');
  size_t device = 0;
  if (head.startswith("dev") && !head.drop_front(3).getAsInteger(10, device) && !rest.empty() &&
      device < devices)
    return std::pair(device, rest.str());
  return InvalidData("feed '{}': expected a name like dev0/x of one of {} devices", name, devices);
}

StatusOr<std::vector<NamedValues>> feeds_by_device(const NamedValues& feeds, size_t devices) {
  std::vector<NamedValues> result(devices);
  for (const auto& [name, value] : feeds) {
    using Member = std::pair<size_t, std::string>;
    MILLRACE_ASSIGN_OR_RETURN(const Member member, split_member(name, devices));
    Value& to = result[member.first][member.second];
    if (const auto* const tensor = value.get_if<Tensor>()) {
      to.as<Tensor>() = tensor->share();
    } else {
      MILLRACE_ASSIGN_OR_RETURN(to, clone(value));
    }
  }
  return result;
}

Status run_parallel(Session& session, const NamedValues& feeds,
                    const std::vector<std::string>& fetches, NamedValues& results) {
  executor::ParallelExecutor& parallel = *session.parallel;
  std::vector<NamedValues> by_device;
  ParallelFeeds given = ParallelFeeds::rows(feeds, session.device_values.rows);
  if (session.device_values.feeds_by_device) {
    MILLRACE_ASSIGN_OR_RETURN(by_device,
                              feeds_by_device(feeds, static_cast<size_t>(parallel.device_count())));
    given = ParallelFeeds::list(by_device);
  }
  if (session.device_values.merge_fetches) {
    std::vector<Value> values;
    MILLRACE_RETURN_IF_ERROR(parallel.run(given, fetches, values));
    for (size_t i = 0; i < fetches.size(); ++i) results[fetches[i]] = std::move(values[i]);
    return Ok();
  }
  std::vector<std::vector<Value>> values;
  MILLRACE_RETURN_IF_ERROR(parallel.run_unmerged(given, fetches, values));
  for (size_t i = 0; i < fetches.size(); ++i) {
    for (size_t d = 0; d < values[i].size(); ++d)
      results[fmt::format("dev{}/{}", d, fetches[i])] = std::move(values[i][d]);
  }
  return Ok();
}

}  // namespace

Status open_parallel(const SessionOptions& options,
                     const std::shared_ptr<const executor::Runtime>& runtime, Session& session) {
  MILLRACE_ASSIGN_OR_RETURN(executor::ParallelOptions settings,
                            options.parallel(session.program()));
  if (session.link != nullptr) {
    settings.trainers = session.link.get();
    settings.trainers_on_gpu = session.gpu_link.get();
    settings.build_strategy.num_trainers = session.link->trainers();
    settings.build_strategy.trainer_id = session.link->trainer_id();
    settings.wait_timeout_ms = options.wait_ms;
  }
  MILLRACE_ASSIGN_OR_RETURN(session.parallel, executor::ParallelExecutor::create(
                                                  runtime, session.program(), *session.scope,
                                                  settings, options.executor.threads));
  for (const std::string& remark : session.parallel->remarks())
    options.log(LogLevel::kInfo, remark);
  return Ok();
}

Status run_step(Session& session, const NamedValues& feeds, const std::vector<std::string>& fetches,
                NamedValues& results) {
  if (session.parallel != nullptr) return run_parallel(session, feeds, fetches, results);
  std::vector<Value> values;
  values.reserve(fetches.size());
  for (const std::string& name : fetches) values.push_back(std::move(results[name]));
  MILLRACE_RETURN_IF_ERROR(session.prepared->run(feeds, fetches, values));
  // if a name is fetched twice, the last value is kept
  for (size_t i = 0; i < fetches.size(); ++i) results[fetches[i]] = std::move(values[i]);
  return Ok();
}

StatusOr<NamedValues> persistables_of_devices(const Session& session) {
  NamedValues values;
  for (const Var& var : session.program().root().vars()) {
    if (!is_state_var(var)) continue;
    for (int d = 0; d < session.parallel->device_count(); ++d) {
      const Value* const value = session.parallel->local_scope(d).find(var.name());
      if (value == nullptr || !value->initialized()) continue;
      MILLRACE_RETURN_IF_ERROR(
          executor::copy_value(*value, values[fmt::format("dev{}/{}", d, var.name().str())]));
    }
  }
  return values;
}

StatusOr<NamedValues> run_with_shared_vars(const SharedVarsRun& run, const SessionOptions& options,
                                           const std::shared_ptr<const executor::Runtime>& runtime,
                                           Session& session) {
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program,
                            ops::read_checked_program(*runtime->ops, run.program, options.reading));
  MILLRACE_ASSIGN_OR_RETURN(executor::ParallelOptions settings, options.parallel(*program));
  settings.share_vars_from = session.parallel.get();
  StatusOr<std::unique_ptr<executor::ParallelExecutor>> parallel =
      executor::ParallelExecutor::create(runtime, *program, *session.scope, settings,
                                         options.executor.threads);
  if (!parallel.ok()) return std::move(parallel).status().in_file(run.program);
  NamedValues feeds;
  if (!run.feeds.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(feeds, io::read_values(run.feeds));
  }
  const std::vector<std::string>& fetches =
      run.fetches.empty() ? (*parallel)->fetch_targets() : run.fetches;
  std::vector<Value> values;
  if (Status status = (*parallel)->run(ParallelFeeds::split(feeds), fetches, values); !status.ok())
    return std::move(status).in_file(run.program);
  NamedValues results;
  for (size_t i = 0; i < fetches.size(); ++i) results[fetches[i]] = std::move(values[i]);
  return results;
}

}  // namespace millrace::jobs
