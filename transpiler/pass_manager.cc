#include "transpiler/pass_manager.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "framework/base/errors.h"
#include "framework/fingerprint.h"

namespace millrace::transpiler {
namespace pass_manager {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

size_t count_ops(const Program& program) {
  size_t count = 0;
  for (const Block& block : program.blocks()) count += block.op_count();
  return count;
}

// Fingerprints of all programs that a pass may change.
struct State {
  uint64_t program = 0;
  uint64_t startup = 0;
  bool operator==(const State&) const = default;
};

State state_of(const Program& program, const PassContext& context) {
  return {fingerprint(program), context.startup == nullptr ? 0 : fingerprint(*context.startup)};
}

Status verify(const Program& program, const PassContext& context, bool may_be_old,
              const PassManagerOptions& options) {
  const bool old_forms = may_be_old && options.verify_old_forms;
  const auto& check = old_forms ? options.verify_old_forms : options.verify;
  if (!check) return Ok();
  MILLRACE_RETURN_IF_ERROR(check(program));
  if (context.startup == nullptr) return Ok();
  return check(*context.startup).with_note("in the startup program");
}

// The input verified, so a finding now is an error of the pass, not of the user.
Status blame_pass(const Status& finding, llvm::StringRef pass) {
  Status status = Internal("pass '{}' left an invalid program: {}",
                           std::string_view(pass.data(), pass.size()), finding.message())
                      .at(finding.location())
                      .with_hint(finding.hint());
  for (const std::string& note : finding.notes()) status = std::move(status).with_note(note);
  return status;
}

}  // namespace
}  // namespace pass_manager

Status PassInstrumentation::begin(const Pipeline& /*pipeline*/) {
  return Ok();
}
Status PassInstrumentation::before(const PassEvent& /*event*/) {
  return Ok();
}
Status PassInstrumentation::after(const PassEvent& /*event*/) {
  return Ok();
}
void PassInstrumentation::failed(const PassEvent& /*event*/, const Status& /*status*/) {}
void PassInstrumentation::finished(const PipelineReport& /*report*/) {}

bool PipelineReport::changed() const {
  return std::any_of(passes.begin(), passes.end(), [](const auto& pass) { return pass.changed; });
}

std::string PipelineReport::table() const {
  size_t width = 5;
  PassRecord sum;
  for (const PassRecord& pass : passes) {
    width = std::max(width, pass.pass.size());
    sum.run_ms += pass.run_ms;
    sum.check_ms += pass.check_ms;
  }
  std::string out = fmt::format("{:<{}}  {:<7}  {:>12} -> {:<12}  {:>8}  {:>8}\n", "pass", width,
                                "changed", "ops before", "after", "run ms", "check ms");
  for (const PassRecord& pass : passes) {
    out += fmt::format("{:<{}}  {:<7}  {:>12} -> {:<12}  {:>8.3f}  {:>8.3f}\n", pass.pass, width,
                       pass.changed ? "yes" : "no", pass.ops_before, pass.ops_after, pass.run_ms,
                       pass.check_ms);
  }
  return out + fmt::format("{:<{}}  {:<7}  {:>12}    {:<12}  {:>8.3f}  {:>8.3f}\n", "total", width,
                           changed() ? "yes" : "no", "", "", sum.run_ms, sum.check_ms);
}

StatusOr<PassManager> PassManager::create(const PassRegistry& registry, Pipeline pipeline) {
  PassManager manager;
  for (const PipelineStep& step : pipeline.steps) {
    StatusOr<std::unique_ptr<Pass>> pass = registry.make(step);
    if (!pass.ok())
      return std::move(pass).status().with_note("in pipeline '" + pipeline.to_string() + "'");
    manager.passes_.push_back(std::move(pass).value());
  }
  manager.pipeline_ = std::move(pipeline);
  return manager;
}

StatusOr<PassManager> PassManager::create(const PassRegistry& registry, llvm::StringRef pipeline) {
  MILLRACE_ASSIGN_OR_RETURN(Pipeline parsed, parse_pipeline(pipeline));
  return create(registry, std::move(parsed));
}

PassManager PassManager::of(std::unique_ptr<Pass> pass) {
  PassManager manager;
  manager.pipeline_.steps.push_back({pass->name().str(), {}});
  manager.passes_.push_back(std::move(pass));
  return manager;
}

Status PassManager::with_note(Status status, size_t index, ErrorNote note) const {
  const std::string& name = pipeline_.steps[index].pass;
  switch (note) {
    case ErrorNote::kPipeline:
      return std::move(status).with_note(fmt::format("in pass '{}' ({} of {}) of '{}'", name,
                                                     index + 1, passes_.size(),
                                                     pipeline_.to_string()));
    case ErrorNote::kPass:
      return std::move(status).with_note(fmt::format("in pass '{}'", name));
    case ErrorNote::kNothing:
      break;
  }
  return status;
}

StatusOr<PassRecord> PassManager::run_pass(size_t index, Program& program, PassContext& context,
                                           const PassManagerOptions& options) const {
  using namespace pass_manager;
  Pass& pass = *passes_[index];
  PassRecord record;
  record.pass = pass.name().str();
  record.ops_before = count_ops(program);
  PassEvent event{pass.name(), index, passes_.size(), program, context.startup, false};

  const Clock::time_point start = Clock::now();
  for (PassInstrumentation* watcher : options.instrumentations)
    MILLRACE_RETURN_IF_ERROR(watcher->before(event));
  std::optional<State> before;
  if (options.check_changes) before = state_of(program, context);

  const Clock::time_point pass_start = Clock::now();
  MILLRACE_ASSIGN_OR_RETURN(record.changed, pass.run(program, context));
  record.run_ms = ms_since(pass_start);

  if (before && !record.changed && state_of(program, context) != *before) {
    return Internal("pass '{}' changed the program but reported that it did not", record.pass);
  }
  if (record.changed) {
    const Status finding = verify(program, context, pass.takes_old_forms(), options);
    if (!finding.ok()) return blame_pass(finding, pass.name());
  }
  event.changed = record.changed;
  for (PassInstrumentation* watcher : options.instrumentations)
    MILLRACE_RETURN_IF_ERROR(watcher->after(event));
  record.ops_after = count_ops(program);
  record.check_ms = ms_since(start) - record.run_ms;
  return record;
}

StatusOr<PipelineReport> PassManager::run(Program& program, PassContext& context,
                                          const PassManagerOptions& options) const {
  using namespace pass_manager;
  for (PassInstrumentation* watcher : options.instrumentations)
    MILLRACE_RETURN_IF_ERROR(watcher->begin(pipeline_));
  bool may_be_old = !passes_.empty() && passes_.front()->takes_old_forms();
  MILLRACE_RETURN_IF_ERROR(
      verify(program, context, may_be_old, options)
          .with_note("before the first pass of '" + pipeline_.to_string() + "'"));
  PipelineReport report;
  for (size_t i = 0; i < passes_.size(); ++i) {
    // Only passes of upgrade-program may see old forms: before any other pass none may remain.
    if (may_be_old && !passes_[i]->takes_old_forms()) {
      may_be_old = false;
      MILLRACE_RETURN_IF_ERROR(
          verify(program, context, may_be_old, options)
              .with_note(fmt::format("before pass '{}' of '{}'", pipeline_.steps[i].pass,
                                     pipeline_.to_string())));
    }
    StatusOr<PassRecord> record = run_pass(i, program, context, options);
    if (!record.ok()) {
      const Status status = with_note(std::move(record).status(), i, options.error_note);
      const PassEvent event{passes_[i]->name(), i, passes_.size(), program, context.startup, false};
      for (PassInstrumentation* watcher : options.instrumentations) watcher->failed(event, status);
      return status;
    }
    report.passes.push_back(*std::move(record));
  }
  for (PassInstrumentation* watcher : options.instrumentations) watcher->finished(report);
  return report;
}

}  // namespace millrace::transpiler
