#include "tools/run/run_once.h"

#include <fmt/ranges.h>

#include "executor/check_nan.h"
#include "executor/trace.h"
#include "framework/base/errors.h"
#include "io/model_folder.h"
#include "tools/run/session.h"

namespace millrace::tools {
namespace {

using executor::NamedValues;

// Feeds of --feed-steps by step; empty without it.
StatusOr<std::vector<NamedValues>> read_feed_steps(const RunOptions& options) {
  std::vector<NamedValues> steps;
  if (options.feed_steps.empty()) return steps;
  MILLRACE_ASSIGN_OR_RETURN(NamedValues all, io::read_values(options.feed_steps));
  for (auto& [name, value] : all) {
    const auto [head, rest] = llvm::StringRef(name).split('/');
    size_t step = 0;
    if (!head.startswith("step") || head.drop_front(4).getAsInteger(10, step) || rest.empty() ||
        step > 100'000'000) {
      return InvalidData("member '{}': expected a name like step0/x", name)
          .in_file(options.feed_steps);
    }
    if (step >= static_cast<size_t>(options.steps)) continue;
    if (step >= steps.size()) steps.resize(step + 1);
    steps[step][rest.str()] = std::move(value);
  }
  if (steps.size() < static_cast<size_t>(options.steps)) {
    return InvalidData("expected members for {} steps, found those of {}", options.steps,
                       steps.size())
        .in_file(options.feed_steps);
  }
  return steps;
}

void print_results(const NamedValues& results, std::string& out) {
  for (const auto& [name, value] : results) {
    out += fmt::format("{}: {}\n", name, describe(value));
    const auto* const tensor = value.get_if<Tensor>();
    if (tensor == nullptr || tensor->dtype() != DType::kFloat32) continue;
    const auto shown = tensor->values<float>().first(std::min<size_t>(tensor->numel(), 8));
    out += fmt::format("  [{}{}]\n", fmt::join(shown, ", "),
                       static_cast<size_t>(tensor->numel()) > shown.size() ? ", ..." : "");
  }
}

}  // namespace

StatusOr<int> run_once(Tool& tool, const RunOptions& options,
                       const std::shared_ptr<const executor::Runtime>& runtime) {
  MILLRACE_ASSIGN_OR_RETURN(Session session, open_session(tool, options, runtime));
  MILLRACE_ASSIGN_OR_RETURN(NamedValues feeds, read_feeds(options));
  MILLRACE_ASSIGN_OR_RETURN(std::vector<NamedValues> step_feeds, read_feed_steps(options));
  const std::vector<std::string> fetches = wanted_fetches(options, session);
  const bool prefixed = options.steps > 1 || !step_feeds.empty();
  executor::NanCheck nan_check;
  executor::Trace trace;
  if (options.check_nan && !options.profile.empty())
    return Status(StatusCode::kUsage, "--check-nan and --profile: give one of them");
  if (options.check_nan) session.prepared->observe(&nan_check);
  if (!options.profile.empty()) session.prepared->observe(&trace);
  NamedValues results;
  for (int64_t step = 0; step < options.steps; ++step) {
    if (!step_feeds.empty()) {
      for (auto& [name, value] : step_feeds[static_cast<size_t>(step)])
        feeds[name] = std::move(value);
    }
    std::vector<Value> values;
    if (Status status = session.prepared->run(feeds, fetches, values); !status.ok()) {
      status = std::move(status).in_file(session.name);
      return options.steps > 1 ? std::move(status).with_note(fmt::format("in step {}", step))
                               : status;
    }
    for (size_t i = 0; i < fetches.size(); ++i)
      results[(prefixed ? fmt::format("step{}/", step) : "") + fetches[i]] = std::move(values[i]);
  }
  if (options.print_plan) {
    MILLRACE_RETURN_IF_ERROR(tool.write_file("-", session.prepared->plan_text()));
    return kDone;
  }
  if (!options.profile.empty()) {
    MILLRACE_RETURN_IF_ERROR(tool.write_file(options.profile, trace.chrome_json()));
    llvm::SmallVector<llvm::StringRef, 32> rows;
    const std::string table = trace.op_table();
    llvm::StringRef(table).split(rows, '\n', -1, false);
    for (const llvm::StringRef row : rows) tool.log(LogLevel::kInfo, std::string_view(row));
  }
  if (!tool.common().output.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, io::npz_bytes(results));
    MILLRACE_RETURN_IF_ERROR(tool.write_output(bytes));
  } else {
    std::string text;
    print_results(results, text);
    MILLRACE_RETURN_IF_ERROR(tool.write_output(text));
  }
  if (!options.save_params.empty()) {
    const Replace replace = tool.common().force ? Replace::kYes : Replace::kNo;
    MILLRACE_RETURN_IF_ERROR(io::save_parameters(options.save_params, *session.program,
                                                 *session.scope, {.replace = replace}));
  }
  if (!options.save_persistables.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(const NamedValues saved, persistables(session));
    MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, io::npz_bytes(saved));
    MILLRACE_RETURN_IF_ERROR(tool.write_file(options.save_persistables, bytes));
  }
  return kDone;
}

}  // namespace millrace::tools
