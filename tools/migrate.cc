// migrate: says what old programs are and what can be done with them, and writes inference models
// in the format of another framework.

#include <filesystem>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "framework/base/errors.h"
#include "interchange/onnx/export.h"
#include "interchange/survey/find_programs.h"
#include "interchange/survey/report.h"
#include "interchange/upgrade.h"
#include "io/model_folder.h"
#include "tools/common/program_options.h"
#include "tools/common/tool.h"
#include "tools/verbs.h"

namespace millrace::tools {
namespace {

struct MigrateFlags {
  std::string to;
  bool all = false;
  std::string folder;
  std::string format = "text";
  std::string params_file;
  int opset = interchange::kFirstOpset;
  std::vector<std::string> input_dims;
};

// "x=-1,3,224,224"
Status parse_dims(const std::string& text, std::map<std::string, Dims>& dims) {
  const auto [name, list] = llvm::StringRef(text).split('=');
  Dims found;
  llvm::SmallVector<llvm::StringRef, 6> parts;
  list.split(parts, ',');
  for (const llvm::StringRef part : parts) {
    int64_t dim = 0;
    if (name.empty() || part.getAsInteger(10, dim) || dim < -1)
      return {StatusCode::kUsage, "--input-dims: expected NAME=D,D,... , found '" + text + "'"};
    found.push_back(dim);
  }
  dims[name.str()] = found;
  return Ok();
}

StatusOr<interchange::OnnxOptions> onnx_options(const MigrateFlags& flags) {
  interchange::OnnxOptions options{.opset = flags.opset};
  for (const std::string& text : flags.input_dims)
    MILLRACE_RETURN_IF_ERROR(parse_dims(text, options.input_dims));
  return options;
}

// The model in a folder, or with the program file `path`, as an ONNX model.
StatusOr<std::string> convert(const Tool& tool, const MigrateFlags& flags,
                              const std::string& folder, const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const interchange::OnnxOptions options, onnx_options(flags));
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program, read_program(tool, path));
  if (Status upgraded = interchange::upgrade_and_check(*program, *registry); !upgraded.ok())
    return std::move(upgraded).in_file(path);
  io::ParamValues params;
  if (!io::persistables_of(*program).empty()) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string params_path,
                              io::find_params(folder, path, *program, flags.params_file));
    MILLRACE_ASSIGN_OR_RETURN(
        params, io::read_parameters(params_path, *program, {.threads = tool.common().threads}));
  }
  StatusOr<std::string> model = interchange::export_onnx(*program, params, options);
  if (!model.ok()) return std::move(model).status().in_file(path);
  return model;
}

Status compile_for_cpu(const Program& program) {
  Scope scope;
  return executor::Executor(executor::standard_runtime()).prepare(program, scope).status();
}

StatusOr<interchange::Report> look(const Tool& tool, const MigrateFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(const interchange::OnnxOptions onnx, onnx_options(flags));
  interchange::SurveyOptions options;
  options.reading.max_bytes = tool.common().max_model_bytes;
  options.threads = tool.common().threads;
  options.compile = compile_for_cpu;
  options.targets.push_back({"onnx", interchange::onnx_op_types(),
                             [onnx](const Program& program, const io::ParamValues& params) {
                               return interchange::export_onnx(program, params, onnx).status();
                             }});
  interchange::Report report{.folder = flags.folder, .targets = {}, .programs = {}};
  while (report.folder.size() > 1 && report.folder.back() == '/') report.folder.pop_back();
  for (const interchange::Target& target : options.targets) report.targets.push_back(target.name);
  MILLRACE_ASSIGN_OR_RETURN(report.programs, interchange::survey(report.folder, options));
  if (report.programs.empty())
    return Status(StatusCode::kNotFound, "no program files below '" + report.folder + "'")
        .with_hint("programs have names such as __model__, *.pdmodel, *.pb, main_program");
  return report;
}

StatusOr<int> survey_folder(Tool& tool, const MigrateFlags& flags) {
  if (flags.format != "text" && flags.format != "html" && flags.format != "json")
    return Status(StatusCode::kUsage, "--format: expected text, json or html");
  MILLRACE_ASSIGN_OR_RETURN(const interchange::Report report, look(tool, flags));
  const bool json = tool.common().json || flags.format == "json";
  MILLRACE_RETURN_IF_ERROR(tool.write_output(json                     ? report_json(report)
                                             : flags.format == "html" ? report_html(report)
                                                                      : report_text(report)));
  return kDone;
}

// "a/b/__model__" -> "a/b.onnx", "a/x.pdmodel" -> "a/x.onnx"; paths are relative to the folder.
std::string output_name(const std::string& folder, const std::string& path) {
  std::filesystem::path name = std::filesystem::path(path).lexically_relative(folder);
  if (name.filename() == "__model__" && name.has_parent_path()) name = name.parent_path();
  if (name == "." || name.empty()) name = std::filesystem::path(path).filename();
  const std::string extension = name.extension().string();
  if (extension == ".pdmodel" || extension == ".pb" || extension == ".desc")
    name.replace_extension();
  return name.string() + ".onnx";
}

// Converts each inference model below the folder; a model that is refused is reported.
StatusOr<int> migrate_all(Tool& tool, const MigrateFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                            interchange::find_programs(flags.folder));
  size_t written = 0;
  size_t refused = 0;
  for (const std::string& path : paths) {
    const StatusOr<std::unique_ptr<Program>> program = read_program(tool, path);
    if (!program.ok() || interchange::kind_of(**program) != interchange::ProgramKind::kInference) {
      tool.log(LogLevel::kInfo, path + ": no inference model");
      continue;
    }
    const std::string folder = std::filesystem::path(path).parent_path().string();
    const StatusOr<std::string> model = convert(tool, flags, folder.empty() ? "." : folder, path);
    if (!model.ok()) {
      ++refused;
      tool.report(model.status());
      continue;
    }
    const std::filesystem::path out =
        std::filesystem::path(tool.common().output) / output_name(flags.folder, path);
    std::error_code error;
    std::filesystem::create_directories(out.parent_path(), error);
    if (error)
      return Status(StatusCode::kIo, fmt::format("cannot create '{}': {}",
                                                 out.parent_path().string(), error.message()));
    MILLRACE_RETURN_IF_ERROR(tool.write_file(out.string(), *model));
    ++written;
  }
  tool.log(LogLevel::kInfo, fmt::format("{} models written, {} refused", written, refused));
  if (written + refused == 0)
    return Status(StatusCode::kNotFound, "no inference models below '" + flags.folder + "'");
  return refused == 0 ? kDone : kAnswerIsNo;
}

StatusOr<int> migrate_model(Tool& tool, const MigrateFlags& flags) {
  if (flags.to.empty()) {
    if (flags.all) return Status(StatusCode::kUsage, "--all: expected --to");
    return survey_folder(tool, flags);
  }
  if (flags.to == "pir" || flags.to == "program")
    return Unimplemented("--to {}: models can be written as onnx only", flags.to);
  if (flags.to != "onnx")
    return Status(StatusCode::kUsage, "--to: expected onnx, found '" + flags.to + "'");
  if (tool.given("--format") || tool.common().json)
    return Status(StatusCode::kUsage, "--format and --json are for reports, without --to");
  if (tool.common().output.empty())
    return Status(StatusCode::kUsage, flags.all ? "expected --output, the folder to write"
                                                : "expected --output, the file to write");
  if (flags.all) return migrate_all(tool, flags);
  MILLRACE_ASSIGN_OR_RETURN(const std::string path, io::find_program(flags.folder));
  MILLRACE_ASSIGN_OR_RETURN(const std::string model, convert(tool, flags, flags.folder, path));
  MILLRACE_RETURN_IF_ERROR(tool.write_output(model));
  return kDone;
}

}  // namespace
}  // namespace millrace::tools

int millrace::tools::migrate(int argc, char** argv) {
  Tool tool({.name = "migrate",
             .purpose = std::string(kMigratePurpose),
             .examples = {"migrate OLD_MODELS --format html -o report.html",
                          "migrate --to onnx MODEL_DIR -o model.onnx",
                          "migrate --to onnx --opset 21 --params-file params MODEL_DIR -o m.onnx",
                          "migrate --to onnx --all OLD_MODELS -o onnx_models"},
             .exit_codes = {{0, "done"}, {1, "with --all: some models were refused"}},
             .notes = {"Without --to: a report on every program below the folder.",
                       "Programs of older releases are upgraded first, as by upgrade-program.",
                       "An op, attribute or input without a counterpart is refused: exit code 7.",
                       "LoD of a feed x becomes the inputs x.lod0, x.lod1, ... (int64 offsets)."},
             .unread = {"--seed"}});
  MigrateFlags flags;
  tool.app()
      .add_option("--to", flags.to, "format to write: onnx; without it, a report is written")
      ->type_name("FORMAT");
  tool.app().add_flag("--all", flags.all,
                      "convert every inference model below the folder; --output is a folder");
  tool.app()
      .add_option("--format", flags.format, "of the report: text, json or html")
      ->type_name("FORMAT")
      ->capture_default_str();
  tool.app()
      .add_option("--opset", flags.opset, "operator set of ONNX, 17 to 21")
      ->type_name("N")
      ->capture_default_str();
  tool.app()
      .add_option("--params-file", flags.params_file,
                  "combined parameter file in the folder; found by its name if not given")
      ->type_name("NAME");
  tool.app()
      .add_option("--input-dims", flags.input_dims,
                  "dims of an input instead of the declared ones; -1: unknown until run time")
      ->type_name("NAME=D,...");
  tool.app()
      .add_option("folder", flags.folder,
                  "folder of the model; for a report and for --all, of any number of programs")
      ->type_name("DIR")
      ->required();
  return tool.run(argc, argv, [&] { return migrate_model(tool, flags); });
}
