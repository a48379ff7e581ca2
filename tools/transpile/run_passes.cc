#include "tools/transpile/run_passes.h"

#include <memory>

#include "framework/base/file.h"
#include "framework/read_program.h"
#include "framework/text_form/parse.h"
#include "ops/registry.h"
#include "ops/verify.h"
#include "tools/transpile/program_form.h"
#include "transpiler/instrumentation.h"
#include "transpiler/pass_manager.h"
#include "transpiler/register_all.h"

namespace millrace::tools {
namespace {

namespace tp = millrace::transpiler;

// The instrumentations that the flags ask for.
StatusOr<std::vector<std::unique_ptr<tp::PassInstrumentation>>> instrumentations(
    const TranspileOptions& options, const tp::Pipeline& pipeline) {
  std::vector<std::unique_ptr<tp::PassInstrumentation>> out;
  if (options.print_after_all || !options.print_after.empty()) {
    const auto to_stderr = [](const std::string& text) {
      std::fwrite(text.data(), 1, text.size(), stderr);
    };
    MILLRACE_ASSIGN_OR_RETURN(
        auto printer,
        tp::print_after(options.print_after_all ? std::vector<std::string>() : options.print_after,
                        pipeline, readable_text, to_stderr));
    out.push_back(std::move(printer));
  }
  if (!options.dump_dir.empty())
    out.push_back(tp::dump_to_folder(options.dump_dir, pipeline, readable_text));
  return out;
}

}  // namespace

StatusOr<int> run_passes(Tool& tool, const TranspileOptions& options) {
  const std::unique_ptr<ops::OpRegistry> ops = ops::standard_registry();
  tp::PassRegistry passes;
  tp::register_all_passes(passes);
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
    tp::PassManagerOptions run_options;
    if (options.verify) {
      run_options.verify = [&ops](const Program& p) { return ops::check_program(*ops, p); };
      run_options.verify_old_forms = [&ops](const Program& p) {
        ops::VerifyOptions rules;
        rules.allow_old_forms = true;
        return ops::check_program(*ops, p, rules);
      };
    }
    MILLRACE_ASSIGN_OR_RETURN(const auto watchers, instrumentations(options, manager.pipeline()));
    for (const auto& watcher : watchers) run_options.instrumentations.push_back(watcher.get());
    MILLRACE_ASSIGN_OR_RETURN(const tp::PipelineReport report,
                              manager.run(*program, context, run_options));
    for (const std::string& remark : context.remarks) tool.log(LogLevel::kDebug, remark);
    if (options.timing) tool.log(LogLevel::kInfo, "\n" + report.table());
  }
  if (options.strip_debug) strip_debug(*program);
  const bool as_text = tool.given("--format") ? options.format == "text"
                                              : form_is_text(tool.common().output, is_text);
  MILLRACE_RETURN_IF_ERROR(tool.write_output(serialize(*program, as_text)));
  return kDone;
}

}  // namespace millrace::tools
