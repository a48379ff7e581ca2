#include "tools/transpile/run_passes.h"

#include <cstdio>

#include "framework/base/file.h"
#include "framework/export.h"
#include "framework/read_program.h"
#include "framework/text_form/parse.h"
#include "jobs/distribute/made_program.h"
#include "ops/registry.h"
#include "ops/verify.h"
#include "tools/transpile/program_form.h"
#include "transpiler/instrumentation.h"
#include "transpiler/register_all.h"

namespace millrace::tools {
namespace {

namespace tp = millrace::transpiler;

}  // namespace

// Keeps the report of the last run.
class WatchedPasses::Times final : public tp::PassInstrumentation {
 public:
  void finished(const tp::PipelineReport& report) override { table_ = report.table(); }
  [[nodiscard]] const std::string& table() const { return table_; }

 private:
  std::string table_;
};

bool WatchedPasses::wanted(const TranspileOptions& options) {
  return options.print_after_all || !options.print_after.empty() || !options.dump_dir.empty() ||
         options.timing;
}

WatchedPasses::WatchedPasses(const TranspileOptions& options, const ops::OpRegistry& registry) {
  if (options.verify) {
    run_options_.verify = [&registry](const Program& p) { return ops::check_program(registry, p); };
    run_options_.verify_old_forms = [&registry](const Program& p) {
      ops::VerifyOptions rules;
      rules.allow_old_forms = true;
      return ops::check_program(registry, p, rules);
    };
  }
  if (options.print_after_all || !options.print_after.empty()) {
    const auto to_stderr = [](const std::string& text) {
      std::fwrite(text.data(), 1, text.size(), stderr);
    };
    watchers_.push_back(
        tp::print_after(options.print_after_all ? std::vector<std::string>() : options.print_after,
                        readable_text, to_stderr));
  }
  if (!options.dump_dir.empty())
    watchers_.push_back(tp::dump_to_folder(options.dump_dir, readable_text));
  if (options.timing) {
    auto times = std::make_unique<Times>();
    times_ = times.get();
    watchers_.push_back(std::move(times));
  }
  for (const auto& watcher : watchers_) run_options_.instrumentations.push_back(watcher.get());
}

std::string WatchedPasses::times() const {
  return times_ == nullptr ? std::string() : times_->table();
}

StatusOr<int> run_passes(Tool& tool, const TranspileOptions& options) {
  const std::unique_ptr<ops::OpRegistry> ops = ops::standard_registry();
  tp::PassRegistry passes;
  tp::register_all(passes);
  MILLRACE_ASSIGN_OR_RETURN(const tp::PassManager manager,
                            tp::PassManager::create(passes, options.passes));
  const ImportOptions limits{.max_bytes = tool.common().max_model_bytes};
  MILLRACE_ASSIGN_OR_RETURN(std::string bytes, read_file(options.program, limits.max_bytes));
  const bool is_text = is_text_form(bytes);
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program,
                            read_program_bytes(std::move(bytes), options.program, limits));
  std::unique_ptr<Program> startup;
  if (!options.startup.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(startup, read_program(options.startup, limits));
  }
  if (!manager.pipeline().steps.empty()) {
    tp::PassContext context(*ops);
    context.startup = startup.get();
    const std::string before = startup == nullptr ? std::string() : export_program(*startup);
    const WatchedPasses watched(options, *ops);
    MILLRACE_RETURN_IF_ERROR(manager.run(*program, context, watched.options()).status());
    if (startup != nullptr && export_program(*startup) != before)
      tool.log(LogLevel::kWarning,
               "the passes have changed the startup program, too, which is not written");
    for (const std::string& remark : context.remarks) tool.log(LogLevel::kInfo, remark);
    if (options.timing) tool.log(LogLevel::kInfo, "\n" + watched.times());
  }
  if (options.strip_debug) jobs::strip_debug(*program);
  const bool as_text = tool.given("--format") ? options.format == "text"
                                              : form_is_text(tool.common().output, is_text);
  MILLRACE_RETURN_IF_ERROR(tool.write_output(jobs::made_program_bytes(*program, as_text)));
  return kDone;
}

}  // namespace millrace::tools
