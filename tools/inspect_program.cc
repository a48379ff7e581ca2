// inspect-program: print, draw and check one program.

#include <algorithm>
#include <string_view>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "framework/finding.h"
#include "framework/text_form/print.h"
#include "framework/views/graph.h"
#include "framework/views/html.h"
#include "framework/views/json.h"
#include "framework/views/summary.h"
#include "jobs/inspect/selection.h"
#include "ops/register_all.h"
#include "ops/verify.h"
#include "tools/common/log.h"
#include "tools/common/numbers.h"
#include "tools/common/program_options.h"
#include "tools/common/tool.h"
#include "tools/inspect/costs.h"
#include "tools/inspect/devices.h"
#include "tools/inspect/params.h"
#include "tools/verbs.h"

namespace millrace::tools {
namespace inspect_program_parts {
namespace {

struct InspectFlags {
  std::string program;
  std::string format = "text";
  std::string params;
  std::vector<std::string> ops;
  std::string vars;
  int block = -1;
  int64_t shapes = 0;
  bool flops = false;
  bool memory = false;
  bool no_attrs = false;
  bool no_callstack = false;
  bool verify = false;
  bool lint = false;
  bool devices = false;
};

void add_flags(Tool& tool, InspectFlags& flags) {
  CLI::App& app = tool.app();
  app.add_option("PROGRAM", flags.program, "program file, binary or text; - is stdin")
      ->group("Arguments");
  app.add_option("--format", flags.format, "text, summary, json, csv, dot, svg or html")
      ->type_name("FORMAT")
      ->check(
          CLI::IsMember({"text", "summary", "json", "csv", "dot", "svg", "html"}).description(""));
  app.add_flag("--verify", flags.verify, "list all errors; exit 3 if there are any");
  app.add_flag("--lint", flags.lint, "with --verify: also show warnings about style");
  app.add_flag("--flops", flags.flops, "show floating-point operations of one run, by op type");
  app.add_flag("--memory", flags.memory,
               "show memory of one run, and the largest tensors at its peak");
  app.add_option("--shapes", flags.shapes, "count unknown dims as N, for example a batch size")
      ->type_name("N")
      ->default_str("")
      ->check(whole_number(int64_t{1}, int64_t{1} << 40U));
  app.add_option("--params", flags.params,
                 "show dtype, dims, LoD and values of the parameters in a file or folder")
      ->type_name("PATH");
  app.add_flag("--devices", flags.devices,
               "list the GPUs of this machine (no PROGRAM needed); exit 7 with the reason if none "
               "can be used");
  app.option_defaults()->group("Selection");
  app.add_option("--block", flags.block, "this block only")
      ->type_name("N")
      ->default_str("")
      ->check(whole_number(0));
  app.add_option("--ops", flags.ops, "ops of these types only")
      ->type_name("TYPE,...")
      ->delimiter(',')
      ->allow_extra_args(false);  // the next argument is PROGRAM
  app.add_option("--vars", flags.vars, "only vars whose names match these globs (* and ?)")
      ->type_name("GLOB,...");
  app.add_flag("--no-attrs", flags.no_attrs, "leave out attributes");
  app.add_flag("--no-callstack", flags.no_callstack, "leave out the attribute op_callstack");
  app.option_defaults()->group("Options");
}

std::string findings_json(const std::vector<Finding>& findings, const std::string& file) {
  JsonWriter out;
  out.begin_object();
  out.key("schema").begin_object().member("name", "millrace.verify").member("version", 1);
  out.end_object().member("file", file).member("ok", !has_errors(findings));
  out.key("findings").begin_array();
  for (const Finding& finding : findings) {
    out.begin_object();
    out.member("severity", finding.severity == Severity::kError ? "error" : "warning");
    out.member("rule", finding.rule).member("message", finding.status.message());
    add_location(out, finding.status);
    out.end_object();
  }
  return out.end_array().end_object().take();
}

StatusOr<int> verify(Tool& tool, const Program& program, const InspectFlags& flags) {
  ops::OpRegistry registry;
  ops::register_all(registry);
  ops::VerifyOptions options;
  options.lint = flags.lint;
  const std::vector<Finding> findings = ops::verify_program(registry, program, options);
  const std::string text = flags.format == "json" ? findings_json(findings, flags.program)
                                                  : to_text(findings, findings.size());
  MILLRACE_RETURN_IF_ERROR(tool.write_output(text));
  const bool bad = has_errors(findings);
  if (!bad) tool.log(LogLevel::kInfo, flags.program + " verifies");
  return bad ? exit_code(StatusCode::kInvalidProgram) : kDone;
}

StatusOr<int> show_costs(Tool& tool, const Program& program, const InspectFlags& flags) {
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  const jobs::ProgramCosts costs = jobs::program_costs(program, *registry);
  const int64_t unknown = std::max<int64_t>(flags.shapes, 1);
  const bool json = flags.format == "json";
  MILLRACE_RETURN_IF_ERROR(
      tool.write_output(json ? costs_json(costs, flags.program, unknown)
                             : costs_text(costs, flags.flops, flags.memory, unknown)));
  return kDone;
}

std::string render(const Program& program, const InspectFlags& flags, bool is_part,
                   const std::string& format) {
  if (format == "json")
    return json_view(program, flags.program, {!flags.no_attrs, !flags.no_callstack});
  if (format == "summary") return summary_text(program, flags.program);
  if (format == "csv") return ops_csv(program, *ops::standard_registry());
  if (format == "dot") return dot_view(program);
  if (format == "svg") return svg_view(program);
  if (format == "html") return html_view(program, flags.program);
  return print_program(
      program, {.attrs = !flags.no_attrs, .callstack = !flags.no_callstack, .is_part = is_part});
}

StatusOr<int> show_params(Tool& tool, const Program& program, const InspectFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<jobs::ParamFacts> facts,
                            jobs::read_param_facts(program, flags.params, name_globs(flags.vars)));
  const bool json = flags.format == "json";
  MILLRACE_RETURN_IF_ERROR(
      tool.write_output(json ? params_json(facts, flags.params) : params_text(facts)));
  return kDone;
}

// What the tool shows, and the options that it reads for that.
struct Shown {
  std::string words;
  std::vector<std::string_view> reads;
  bool is_program = false;
};

// Some forms of a program show no dims, and most no attributes.
Shown program_in(const std::string& format) {
  Shown shown{"--format " + format, {"--block", "--ops", "--vars"}, true};
  if (format != "summary" && format != "dot" && format != "svg") shown.reads.push_back("--shapes");
  if (format == "text" || format == "json")
    shown.reads.insert(shown.reads.end(), {"--no-attrs", "--no-callstack"});
  return shown;
}

StatusOr<Shown> shown_by(const InspectFlags& flags) {
  std::vector<Shown> wanted;
  if (flags.devices) wanted.push_back({"--devices", {}});
  if (!flags.params.empty()) wanted.push_back({"--params", {"--vars"}});
  if (flags.verify || flags.lint) wanted.push_back({flags.verify ? "--verify" : "--lint", {}});
  if (flags.flops || flags.memory)
    wanted.push_back(
        {flags.flops ? "--flops" : "--memory", {"--shapes", "--block", "--ops", "--vars"}});
  if (wanted.empty()) return program_in(flags.format);
  if (wanted.size() > 1)
    return Status(StatusCode::kUsage,
                  fmt::format("expected only one of {} and {}", wanted[0].words, wanted[1].words));
  return wanted.front();
}

// Kinds of output exclude each other: a status of 0 must mean what each of them says. Other options
// that are not read are warned about.
Status check_flags(const Tool& tool, const InspectFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(const Shown shown, shown_by(flags));
  if (flags.devices && !flags.program.empty())
    return {StatusCode::kUsage, "--devices: expected no PROGRAM"};
  if (!shown.is_program && flags.format != "text" && flags.format != "json")
    return {StatusCode::kUsage,
            fmt::format("--format {}: expected text or json with {}", flags.format, shown.words)};
  for (const char* const flag :
       {"--shapes", "--block", "--ops", "--vars", "--no-attrs", "--no-callstack"}) {
    if (tool.given(flag) &&
        std::find(shown.reads.begin(), shown.reads.end(), flag) == shown.reads.end())
      tool.log(LogLevel::kWarning,
               fmt::format("{} has no effect: {} does not read it", flag, shown.words));
  }
  return Ok();
}

StatusOr<int> inspect(Tool& tool, InspectFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(flags.format, tool.output_form(flags.format));
  MILLRACE_RETURN_IF_ERROR(check_flags(tool, flags));
  if (flags.devices) return show_devices(tool, flags.format == "json");
  if (flags.program.empty()) return Status(StatusCode::kUsage, "expected a PROGRAM");
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program,
                            read_program(tool, flags.program));
  if (!flags.params.empty()) return show_params(tool, *program, flags);
  if (flags.verify || flags.lint) return verify(tool, *program, flags);
  if (flags.shapes > 0) jobs::fill_unknown_dims(*program, flags.shapes);
  StatusOr<bool> selected =
      jobs::select_part(*program, {flags.block, flags.ops, name_globs(flags.vars)});
  if (!selected.ok()) return std::move(selected).status().in_file(flags.program);
  const bool is_part = *selected;
  if (flags.flops || flags.memory) return show_costs(tool, *program, flags);
  MILLRACE_RETURN_IF_ERROR(tool.write_output(render(*program, flags, is_part, flags.format)));
  return kDone;
}

}  // namespace
}  // namespace inspect_program_parts
}  // namespace millrace::tools

int millrace::tools::inspect_program(int argc, char** argv) {
  using namespace inspect_program_parts;
  Tool tool(
      {.name = "inspect-program",
       .purpose = std::string(kInspectProgramPurpose),
       .examples = {"inspect-program __model__",
                    "inspect-program __model__ --format html -o model.html",
                    "inspect-program __model__ --verify --lint",
                    "inspect-program __model__ --flops --memory --shapes 32",
                    "inspect-program __model__ --params params --vars 'fc_*'",
                    "inspect-program main.prog --ops sgd,momentum --no-attrs"},
       .exit_codes = {{3, "bad input, or --verify found errors"}},
       .notes = {"The text form is complete, and every tool can read it, unless a selection or "
                 "--no-attrs left something out. json is for other programs; csv has one "
                 "line per op; svg needs no other tools; html is one page that loads "
                 "nothing from the network."},
       .unread = {"--threads", "--seed"}});
  InspectFlags flags;
  add_flags(tool, flags);
  return tool.run(argc, argv, [&] { return inspect(tool, flags); });
}
