// migrate: says what old programs are and what can be done with them, writes inference models in
// the format of another framework, and reads ONNX models and PIR programs.

#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringRef.h>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "framework/base/errors.h"
#include "framework/export.h"
#include "interchange/from_onnx/import.h"
#include "interchange/from_pir/load.h"
#include "interchange/onnx/export.h"
#include "interchange/pir/export.h"
#include "interchange/survey/find_programs.h"
#include "interchange/survey/report.h"
#include "interchange/upgrade.h"
#include "io/model_folder.h"
#include "io/paths.h"
#include "tools/common/numbers.h"
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
  std::vector<std::string> fetches;
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

StatusOr<std::map<std::string, Dims>> input_dims(const MigrateFlags& flags) {
  std::map<std::string, Dims> dims;
  for (const std::string& text : flags.input_dims) MILLRACE_RETURN_IF_ERROR(parse_dims(text, dims));
  return dims;
}

struct Model {
  std::string path;  // of the program
  std::unique_ptr<Program> program;
  io::ParamValues params;
};

// "a/b.onnx" -> "a"
std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

Status make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return Ok();
  return {StatusCode::kIo, fmt::format("cannot create '{}': {}", path, error.message())};
}

// The program that an ONNX model becomes.
StatusOr<Model> read_onnx(const Tool& tool, const MigrateFlags& flags, const std::string& path) {
  interchange::OnnxImportOptions options{.input_dims = {}, .folder = folder_of(path)};
  MILLRACE_ASSIGN_OR_RETURN(options.input_dims, input_dims(flags));
  MILLRACE_ASSIGN_OR_RETURN(const std::string bytes,
                            read_file(path, tool.common().max_model_bytes));
  StatusOr<interchange::ImportedModel> model = interchange::import_onnx(bytes, options);
  if (!model.ok()) return std::move(model).status().in_file(path);
  return Model{path, std::move(model->program), std::move(model->params)};
}

// The program that a PIR program becomes.
StatusOr<Model> read_pir(const Tool& tool, const MigrateFlags& flags, const std::string& path) {
  interchange::PirImportOptions options;
  MILLRACE_ASSIGN_OR_RETURN(options.input_dims, input_dims(flags));
  const std::string params =
      flags.params_file.empty() ? "" : folder_of(path) + "/" + flags.params_file;
  const interchange::PirFiles files{path, params, tool.common().max_model_bytes,
                                    tool.common().threads};
  MILLRACE_ASSIGN_OR_RETURN(interchange::ImportedModel model,
                            interchange::load_pir(files, options));
  return Model{path, std::move(model.program), std::move(model.params)};
}

// The format of a file that is no program of the original's second generation; empty for those.
std::string foreign_format(const std::string& path) {
  if (interchange::is_onnx_name(path)) return "onnx";
  return interchange::is_pir_name(path) ? "pir" : "";
}

// The file or folder with the parameters of a program; empty for programs that find them in the
// scope: those that are no inference models may be stored without, and startup programs set them.
StatusOr<std::string> params_path(const MigrateFlags& flags, const std::string& folder,
                                  const std::string& path, const Program& program) {
  const std::vector<io::ParamSpec> specs = io::persistables_of(program);
  const interchange::ProgramKind kind = interchange::kind_of(program);
  if (specs.empty() || kind == interchange::ProgramKind::kStartup) return std::string();
  MILLRACE_ASSIGN_OR_RETURN(std::string found,
                            io::find_params(folder, path, program, flags.params_file));
  if (kind == interchange::ProgramKind::kInference || found != folder) return found;
  const bool has_files = llvm::any_of(specs, [&](const io::ParamSpec& spec) {
    return io::may_exist((std::filesystem::path(folder) / spec.name).string());
  });
  return has_files ? found : std::string();
}

// The model with the program file `path`, in the form of release 2.6.
StatusOr<Model> read_model(const Tool& tool, const MigrateFlags& flags, const std::string& folder,
                           const std::string& path) {
  const std::string format = foreign_format(path);
  if (format == "onnx") return read_onnx(tool, flags, path);
  if (format == "pir") return read_pir(tool, flags, path);
  Model model;
  model.path = path;
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  MILLRACE_ASSIGN_OR_RETURN(model.program, read_program(tool, path));
  if (Status upgraded = interchange::upgrade_and_check(*model.program, *registry); !upgraded.ok())
    return std::move(upgraded).in_file(path);
  MILLRACE_ASSIGN_OR_RETURN(const std::string params,
                            params_path(flags, folder, path, *model.program));
  if (!params.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(
        model.params,
        io::read_parameters(params, *model.program, {.threads = tool.common().threads}));
  }
  return model;
}

Status write_onnx(Tool& tool, const MigrateFlags& flags, const Model& model,
                  const std::string& file) {
  interchange::OnnxOptions options{.opset = flags.opset};
  MILLRACE_ASSIGN_OR_RETURN(options.input_dims, input_dims(flags));
  StatusOr<std::string> bytes = interchange::export_onnx(*model.program, model.params, options);
  if (!bytes.ok()) return std::move(bytes).status().in_file(model.path);
  return tool.write_file(file, *bytes);
}

// Two files: PREFIX.json and PREFIX.pdiparams. A model without parameters has the first only.
Status write_pir(Tool& tool, const MigrateFlags& flags, const Model& model,
                 const std::string& prefix) {
  interchange::PirOptions options;
  MILLRACE_ASSIGN_OR_RETURN(options.input_dims, input_dims(flags));
  options.fetches = flags.fetches;
  StatusOr<interchange::PirModel> made =
      interchange::export_pir(*model.program, model.params, options);
  if (!made.ok()) return std::move(made).status().in_file(model.path);
  std::vector<io::NamedValue> values;
  for (const std::string& name : made->parameters) values.push_back({name, &model.params.at(name)});
  if (!values.empty()) {
    const io::SaveOptions saving{.replace = tool.common().force ? Replace::kYes : Replace::kNo};
    MILLRACE_RETURN_IF_ERROR(io::save_combined(prefix + ".pdiparams", values, saving));
  }
  return tool.write_file(prefix + ".json", made->program);
}

// Writes `__model__` and `__params__` to a folder.
Status write_program(Tool& tool, const Model& model, const std::string& folder) {
  MILLRACE_RETURN_IF_ERROR(make_folder(folder));
  std::vector<io::NamedValue> values;
  for (const auto& [name, value] : model.params) values.push_back({name, &value});
  if (!values.empty()) {
    const io::SaveOptions saving{.replace = tool.common().force ? Replace::kYes : Replace::kNo};
    MILLRACE_RETURN_IF_ERROR(io::save_combined(folder + "/__params__", values, saving));
  }
  return tool.write_file(folder + "/__model__", export_program(*model.program));
}

// \param output  a file for onnx, a prefix for pir, a folder for program
Status convert(Tool& tool, const MigrateFlags& flags, const std::string& folder,
               const std::string& path, const std::string& output) {
  MILLRACE_ASSIGN_OR_RETURN(const Model model, read_model(tool, flags, folder, path));
  if (flags.to == "program") return write_program(tool, model, output);
  return flags.to == "onnx" ? write_onnx(tool, flags, model, output)
                            : write_pir(tool, flags, model, output);
}

Status compile_for_cpu(const Program& program) {
  Scope scope;
  return executor::Executor(executor::standard_runtime()).prepare(program, scope).status();
}

StatusOr<interchange::Report> look(const Tool& tool, const MigrateFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(const auto dims, input_dims(flags));
  interchange::SurveyOptions options;
  options.reading.max_bytes = tool.common().max_model_bytes;
  options.threads = tool.common().threads;
  options.compile = compile_for_cpu;
  const interchange::OnnxOptions onnx{.opset = flags.opset, .input_dims = dims};
  options.targets.push_back({"onnx", interchange::onnx_op_types(),
                             [onnx](const Program& program, const io::ParamValues& params) {
                               return interchange::export_onnx(program, params, onnx).status();
                             },
                             false});
  const interchange::PirOptions pir{.input_dims = dims};
  options.targets.push_back({"pir", interchange::pir_op_types(),
                             [pir](const Program& program, const io::ParamValues& params) {
                               return interchange::export_pir(program, params, pir).status();
                             },
                             true});
  interchange::Report report{.folder = flags.folder, .targets = {}, .programs = {}};
  while (report.folder.size() > 1 && report.folder.back() == '/') report.folder.pop_back();
  for (const interchange::Target& target : options.targets) report.targets.push_back(target.name);
  MILLRACE_ASSIGN_OR_RETURN(report.programs, interchange::survey(report.folder, options));
  if (report.programs.empty())
    return Status(StatusCode::kNotFound, "no program files below '" + report.folder + "'")
        .with_hint("programs have names such as __model__, *.pdmodel, *.pb, main_program");
  return report;
}

// What kept the report from being complete: a shortage or a failing disk, not the files themselves.
Status first_failure(const interchange::Report& report) {
  for (const interchange::SurveyedProgram& program : report.programs) {
    for (const Status* status : {&program.unreadable, &program.params_status}) {
      if (status->code() == StatusCode::kIo || status->code() == StatusCode::kResource)
        return Status(*status).with_note("the report lacks what could not be read");
    }
  }
  return Ok();
}

StatusOr<int> survey_folder(Tool& tool, const MigrateFlags& flags) {
  if (flags.format != "text" && flags.format != "html" && flags.format != "json")
    return Status(StatusCode::kUsage, "--format: expected text, json or html");
  MILLRACE_ASSIGN_OR_RETURN(const std::string form, tool.output_form(flags.format));
  MILLRACE_ASSIGN_OR_RETURN(const interchange::Report report, look(tool, flags));
  MILLRACE_RETURN_IF_ERROR(tool.write_output(form == "json"   ? report_json(report)
                                             : form == "html" ? report_html(report)
                                                              : report_text(report)));
  MILLRACE_RETURN_IF_ERROR(first_failure(report));
  return kDone;
}

// "a/b/__model__" -> "a/b", "a/x.pdmodel" -> "a/x"; paths are relative to the folder.
std::string output_name(const std::string& folder, const std::string& path) {
  std::filesystem::path name = std::filesystem::path(path).lexically_relative(folder);
  if (name.filename() == "__model__" && name.has_parent_path()) name = name.parent_path();
  if (name == "." || name.empty()) name = std::filesystem::path(path).filename();
  const std::string extension = name.extension().string();
  if (extension == ".pdmodel" || extension == ".pb" || extension == ".desc" ||
      !foreign_format(path).empty())
    name.replace_extension();
  return name.string();
}

// Whether programs of the kind have a form in the format. Those of jobs have none.
bool is_convertible(const MigrateFlags& flags, interchange::ProgramKind kind) {
  using interchange::ProgramKind;
  if (kind == ProgramKind::kInference) return true;
  return flags.to == "pir" && (kind == ProgramKind::kForward || kind == ProgramKind::kTraining ||
                               kind == ProgramKind::kStartup);
}

// Models of other formats are read for all but their own, programs for those that have a form for
// their kind.
StatusOr<bool> is_source(Tool& tool, const MigrateFlags& flags, const std::string& path) {
  if (const std::string format = foreign_format(path); !format.empty()) return flags.to != format;
  if (flags.to == "program") return false;
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program, read_program(tool, path));
  const interchange::ProgramKind kind = interchange::kind_of(*program);
  const bool is_wanted = is_convertible(flags, kind);
  if (!is_wanted) {
    tool.log(LogLevel::kInfo, fmt::format("{}: a {} has no form in {}", path,
                                          interchange::kind_text(kind), flags.to));
  }
  return is_wanted;
}

// Converts each program below the folder that has a form in the format; a program that is refused
// is reported.
StatusOr<int> migrate_all(Tool& tool, const MigrateFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                            interchange::find_programs(flags.folder));
  std::map<std::string, std::string> outputs;  // and the program of each
  size_t written = 0;
  size_t refused = 0;
  for (const std::string& path : paths) {
    const StatusOr<bool> is_wanted = is_source(tool, flags, path);
    if (!is_wanted.ok()) {
      ++refused;
      tool.report(is_wanted.status());
      continue;
    }
    if (!*is_wanted) continue;
    std::filesystem::path out =
        std::filesystem::path(tool.common().output) / output_name(flags.folder, path);
    const auto [other, is_new] = outputs.try_emplace(out.string(), path);
    if (!is_new)
      return Status(StatusCode::kUsage, fmt::format("'{}' and '{}' would have the same output '{}'",
                                                    other->second, path, out.string()));
    MILLRACE_RETURN_IF_ERROR(make_folder(out.parent_path().string()));
    if (flags.to == "onnx") out += ".onnx";
    const Status done = convert(tool, flags, folder_of(path), path, out.string());
    if (!done.ok()) {
      ++refused;
      tool.report(done);
      continue;
    }
    ++written;
  }
  tool.log(LogLevel::kInfo, fmt::format("{} programs written, {} refused", written, refused));
  if (written + refused == 0)
    return Status(
        StatusCode::kNotFound,
        fmt::format("no programs below '{}' that have a form in {}", flags.folder, flags.to));
  return refused == 0 ? kDone : kAnswerIsNo;
}

Status check_flags(const Tool& tool, const MigrateFlags& flags) {
  const std::string& output = tool.common().output;
  if (flags.to != "onnx" && flags.to != "pir" && flags.to != "program")
    return {StatusCode::kUsage, "--to: expected onnx, pir or program, found '" + flags.to + "'"};
  if (tool.given("--format") || tool.common().json)
    return {StatusCode::kUsage, "--format and --json are for reports, without --to"};
  if (output.empty())
    return {StatusCode::kUsage, flags.all ? "expected --output, the folder to write"
                                          : "expected --output, the file to write, for pir its "
                                            "prefix, for program its folder"};
  if (output == "-" && flags.all)
    return {StatusCode::kUsage, "--all writes many files: expected their folder as --output"};
  if (output == "-" && flags.to == "program")
    return {StatusCode::kUsage, "--to program writes two files: expected their folder as --output"};
  if (output == "-" && flags.to == "pir")
    return {StatusCode::kUsage, "--to pir writes two files: expected their prefix as --output"};
  if (!flags.fetches.empty() && (flags.to != "pir" || flags.all))
    return {StatusCode::kUsage, "--fetch belongs to --to pir, for one program"};
  if (flags.to != "onnx" && tool.given("--opset"))
    return {StatusCode::kUsage, "--opset belongs to --to onnx"};
  return Ok();
}

StatusOr<int> migrate_model(Tool& tool, const MigrateFlags& flags) {
  if (flags.to.empty()) {
    if (flags.all) return Status(StatusCode::kUsage, "--all: expected --to");
    if (!flags.params_file.empty())
      return Status(StatusCode::kUsage, "--params-file: expected --to");
    if (!flags.fetches.empty()) return Status(StatusCode::kUsage, "--fetch: expected --to pir");
    return survey_folder(tool, flags);
  }
  MILLRACE_RETURN_IF_ERROR(check_flags(tool, flags));
  if (flags.all) return migrate_all(tool, flags);
  const std::string format = foreign_format(flags.folder);
  if (flags.to == (format.empty() ? "program" : format))
    return Status(StatusCode::kUsage,
                  fmt::format("--to {}: expected {}, found '{}'", flags.to,
                              format.empty() ? "an ONNX file or a PIR program (.json)"
                                             : "the folder of a program, or another format",
                              flags.folder));
  if (format == "onnx" && !flags.params_file.empty())
    return Status(StatusCode::kUsage, "--params-file: an ONNX file names its files itself");
  const bool is_file =
      !format.empty() || (io::may_exist(flags.folder) && !io::is_folder(flags.folder));
  const std::string folder = is_file ? folder_of(flags.folder) : flags.folder;
  std::string path = flags.folder;
  if (!is_file) {
    MILLRACE_ASSIGN_OR_RETURN(path, io::find_program(folder));
  }
  MILLRACE_RETURN_IF_ERROR(convert(tool, flags, folder, path, tool.common().output));
  return kDone;
}

}  // namespace
}  // namespace millrace::tools

int millrace::tools::migrate(int argc, char** argv) {
  Tool tool(
      {.name = "migrate",
       .purpose = std::string(kMigratePurpose),
       .examples = {"migrate OLD_MODELS --format html -o report.html",
                    "migrate --to onnx MODEL_DIR -o model.onnx",
                    "migrate --to onnx --opset 21 --params-file params MODEL_DIR -o m.onnx",
                    "migrate --to pir MODEL_DIR -o model",
                    "migrate --to pir main_program --fetch loss -o main",
                    "migrate --to pir --all OLD_MODELS -o new_models",
                    "migrate --to program model.onnx -o MODEL_DIR",
                    "migrate --to program model.json -o MODEL_DIR"},
       .exit_codes = {{0, "done"}, {1, "with --all: some models were refused"}},
       .notes =
           {"Without --to: a report on every program below the folder.",
            "Programs of older releases are upgraded first, as by upgrade-program.",
            "An op, attribute or input without a counterpart is refused: exit code 7.",
            "onnx: LoD of a feed x becomes the inputs x.lod0, x.lod1, ... (int64 offsets).",
            "pir: -o PREFIX writes PREFIX.json and PREFIX.pdiparams, for PaddlePaddle 3.3.",
            "pir: training and startup programs as well; without parameters, only PREFIX.json.",
            "program: reads an ONNX file, or PREFIX.json and PREFIX.pdiparams of PaddlePaddle 3.3.",
            "program: -o DIR gets __model__ and __params__."},
       .unread = {"--seed"}});
  MigrateFlags flags;
  tool.app()
      .add_option("--to", flags.to,
                  "format to write: onnx, pir or program; without it, a report is written")
      ->type_name("FORMAT");
  tool.app().add_flag(
      "--all", flags.all,
      "convert every program below the folder that has a form in the format; --output "
      "is a folder");
  tool.app()
      .add_option("--format", flags.format, "of the report: text, json or html")
      ->type_name("FORMAT")
      ->capture_default_str();
  tool.app()
      .add_option("--opset", flags.opset, "operator set of onnx, 17 to 21")
      ->type_name("N")
      ->check(whole_number<int>())
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
      .add_option(
          "--fetch", flags.fetches,
          "pir: a var to return; default: those of the fetch ops, else the losses, else what "
          "no op reads")
      ->type_name("VAR");
  tool.app()
      .add_option("folder", flags.folder,
                  "folder of the model, its program file, an ONNX file or a PIR program; for a "
                  "report and for --all, a "
                  "folder of any number of programs")
      ->type_name("DIR")
      ->required();
  return tool.run(argc, argv, [&] { return migrate_model(tool, flags); });
}
