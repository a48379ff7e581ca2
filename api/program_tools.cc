#include <utility>

#include "api/program.h"
#include "framework/diff/diff.h"
#include "framework/program.h"
#include "framework/views/graph.h"
#include "framework/views/html.h"
#include "framework/views/json.h"
#include "framework/views/summary.h"
#include "ops/registry.h"
#include "ops/verify.h"
#include "transpiler/pass_manager.h"
#include "transpiler/register_all.h"

namespace millrace::api {

std::vector<ProblemFound> verify(const Program& program, const VerifyOptions& options) {
  ops::VerifyOptions rules;
  rules.lint = options.lint;
  rules.allow_outside_paths = options.allow_outside_paths;
  rules.allow_network = options.allow_network;
  rules.allow_old_forms = options.allow_old_forms;
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  std::vector<ProblemFound> problems;
  for (Finding& finding : ops::verify_program(*registry, program, rules)) {
    problems.push_back({finding.severity == Severity::kError, std::string(finding.rule),
                        std::move(finding.status)});
  }
  return problems;
}

std::vector<ProgramDifference> compare(const Program& a, const Program& b,
                                       const CompareOptions& options) {
  DiffOptions rules;
  rules.any_order = options.any_order;
  rules.semantic = options.semantic;
  rules.strict_attrs = options.strict_attrs;
  rules.strict_types = options.strict_types;
  rules.strict_vars = options.strict_vars;
  rules.ignore_attrs = {options.ignore_attrs.begin(), options.ignore_attrs.end()};
  std::vector<ProgramDifference> differences;
  for (const Difference& found : diff_programs(a, b, rules)) {
    differences.push_back({found.block, found.op_a, found.op_b, found.op_type, found.what, found.a,
                           found.b, found.to_string()});
  }
  return differences;
}

StatusOr<PassesResult> run_passes(const Program& program, const std::string& pipeline,
                                  const Program* startup) {
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  transpiler::PassRegistry passes;
  transpiler::register_all(passes);
  MILLRACE_ASSIGN_OR_RETURN(const transpiler::PassManager manager,
                            transpiler::PassManager::create(passes, pipeline));
  transpiler::PassManagerOptions options;
  options.verify = [&registry](const Program& p) { return ops::check_program(*registry, p); };
  options.verify_old_forms = [&registry](const Program& p) {
    ops::VerifyOptions rules;
    rules.allow_old_forms = true;
    return ops::check_program(*registry, p, rules);
  };
  const std::shared_ptr<Program> main = program.clone();
  const std::shared_ptr<Program> initial = startup == nullptr ? nullptr : startup->clone();
  transpiler::PassContext context(*registry);
  context.startup = initial.get();
  MILLRACE_RETURN_IF_ERROR(manager.run(*main, context, options).status());
  return PassesResult{main, initial, std::move(context.remarks)};
}

std::vector<std::string> pass_names() {
  transpiler::PassRegistry passes;
  transpiler::register_all(passes);
  std::vector<std::string> names;
  for (const transpiler::PassInfo* const info : passes.passes())
    names.push_back(info->name().str());
  return names;
}

std::vector<std::string> op_types() {
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  std::vector<std::string> types;
  for (const llvm::StringRef type : registry->types()) types.push_back(type.str());
  return types;
}

std::string view_program(const Program& program, ProgramView view, const std::string& name) {
  switch (view) {
    case ProgramView::kSummary:
      return summary_text(program, name);
    case ProgramView::kHtml:
      return html_view(program, name);
    case ProgramView::kJson:
      return json_view(program, name);
    case ProgramView::kDot:
      return dot_view(program);
    case ProgramView::kSvg:
      break;
  }
  return svg_view(program);
}

}  // namespace millrace::api
