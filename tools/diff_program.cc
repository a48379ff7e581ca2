// diff-program: shows where two programs differ.

#include <fstream>
#include <map>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "framework/base/json_writer.h"
#include "framework/diff/diff.h"
#include "framework/diff/report.h"
#include "jobs/config/json_fields.h"
#include "tools/common/numbers.h"
#include "tools/common/program_options.h"
#include "tools/common/tool.h"
#include "tools/verbs.h"

namespace millrace::tools {
namespace diff_program_parts {
namespace {

struct DiffFlags {
  std::string a;
  std::string b;
  std::string format = "text";
  std::vector<std::string> ignore;
  std::string ignore_var;
  std::string ignore_shapes;
  std::string rename;
  bool any_order = false;
  bool semantic = false;
  bool strict = false;
  bool strict_attrs = false;
  bool strict_types = false;
  bool strict_vars = false;
  int64_t limit = 200;
};

void add_flags(Tool& tool, DiffFlags& flags) {
  CLI::App& app = tool.app();
  app.add_option("A", flags.a, "first program; - is stdin")->required()->group("Arguments");
  app.add_option("B", flags.b, "second program")->required()->group("Arguments");
  app.add_option("--format", flags.format, "text, json or html")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"text", "json", "html"}).description(""));
  app.add_option("--limit", flags.limit, "number of differences shown; 0: all")
      ->type_name("N")
      ->check(whole_number<int64_t>(0));
  app.option_defaults()->group("Comparison");
  app.add_option("--ignore", flags.ignore, "attributes to ignore, comma-separated")
      ->type_name("ATTR,...")
      ->delimiter(',');
  app.add_option("--ignore-var", flags.ignore_var,
                 "regular expression: ignore declarations of matching vars")
      ->type_name("REGEX");
  app.add_option("--ignore-shapes", flags.ignore_shapes,
                 "regular expression: ignore the dims of matching vars")
      ->type_name("REGEX");
  app.add_option("--rename", flags.rename, "JSON object that maps names in A to names in B")
      ->type_name("MAP.json");
  app.add_flag("--any-order", flags.any_order,
               "allow reordered ops if no two conflicting accesses change order");
  app.add_flag("--semantic", flags.semantic, "--any-order, and ignore the names of computed vars");
  app.add_flag("--strict", flags.strict, "all three --strict-... flags below");
  app.add_flag("--strict-attrs", flags.strict_attrs,
               "distinguish an absent attribute from its default");
  app.add_flag("--strict-types", flags.strict_types,
               "distinguish int from long and ints from longs");
  app.add_flag("--strict-vars", flags.strict_vars, "compare stop_gradient");
  app.option_defaults()->group("Options");
}

StatusOr<std::map<std::string, std::string>> read_renames(const std::string& path) {
  std::map<std::string, std::string> names;
  if (path.empty()) return names;
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, int64_t{1} << 28U));
  StatusOr<nlohmann::json> parsed = jobs::parse_json_object(text);
  if (!parsed.ok()) return std::move(parsed).status().in_file(path);
  const nlohmann::json document = *std::move(parsed);
  for (const auto& [from, to] : document.items()) {
    if (!to.is_string())
      return InvalidData("the new name of '{}': expected a string, found {}", from, to.type_name())
          .in_file(path);
    names[from] = to.get<std::string>();
  }
  return names;
}

StatusOr<DiffOptions> options_of(const DiffFlags& flags) {
  DiffOptions options;
  options.any_order = flags.any_order;
  options.semantic = flags.semantic;
  options.strict_attrs = flags.strict || flags.strict_attrs;
  options.strict_types = flags.strict || flags.strict_types;
  options.strict_vars = flags.strict || flags.strict_vars;
  options.ignore_attrs.insert(flags.ignore.begin(), flags.ignore.end());
  MILLRACE_ASSIGN_OR_RETURN(options.ignore_var, name_pattern(flags.ignore_var, "--ignore-var"));
  MILLRACE_ASSIGN_OR_RETURN(options.ignore_shape,
                            name_pattern(flags.ignore_shapes, "--ignore-shapes"));
  MILLRACE_ASSIGN_OR_RETURN(options.rename, read_renames(flags.rename));
  return options;
}

StatusOr<int> compare(Tool& tool, const DiffFlags& flags) {
  if (flags.a == "-" && flags.b == "-")
    return Status(StatusCode::kUsage, "only one of the programs can be standard input");
  MILLRACE_ASSIGN_OR_RETURN(const std::string format, tool.output_form(flags.format));
  MILLRACE_ASSIGN_OR_RETURN(const DiffOptions options, options_of(flags));
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> a, read_program(tool, flags.a));
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> b, read_program(tool, flags.b));
  const DiffReport report{flags.a, flags.b, diff_programs(*a, *b, options),
                          static_cast<size_t>(std::max<int64_t>(0, flags.limit))};
  const std::string text = format == "json"   ? diff_json(report)
                           : format == "html" ? diff_html(report)
                                              : diff_text(report);
  MILLRACE_RETURN_IF_ERROR(tool.write_output(text));
  return report.differences.empty() ? kDone : kAnswerIsNo;
}

}  // namespace
}  // namespace diff_program_parts
}  // namespace millrace::tools

int millrace::tools::diff_program(int argc, char** argv) {
  using namespace diff_program_parts;
  Tool tool({.name = "diff-program",
             .purpose = std::string(kDiffProgramPurpose),
             .examples = {"diff-program before/__model__ after/__model__",
                          "diff-program a.pb b.prog --ignore op_role,op_role_var",
                          "diff-program a.pb b.pb --semantic --json"},
             .exit_codes = {{0, "the programs are equal"}, {1, "the programs differ"}},
             .notes = {"Always equal: vars, attributes and slots in any order; an empty slot and a "
                       "missing one; an absent attribute and its default; int and long; numbers "
                       "in names of control vars; the order inside grad_to_block_id and "
                       "sparse_grad_to_param. Ignored: op_callstack, with_quant_attr, "
                       "stop_gradient, versions."},
             .unread = {"--threads", "--seed", "--max-tensor-bytes"}});
  DiffFlags flags;
  add_flags(tool, flags);
  return tool.run(argc, argv, [&] { return compare(tool, flags); });
}
