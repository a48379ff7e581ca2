#include "interchange/survey/survey.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "framework/diff/diff.h"
#include "framework/read_program.h"
#include "interchange/from_onnx/import.h"
#include "interchange/from_pir/load.h"
#include "interchange/survey/find_programs.h"
#include "interchange/upgrade.h"
#include "io/model_folder.h"
#include "ops/registry.h"

namespace millrace::interchange {
namespace {

constexpr size_t kMostUpgrades = 50;
constexpr size_t kMostReasons = 20;

std::string declared(const Program& program, llvm::StringRef name) {
  const Var* const var = program.root().find_var(name);
  if (var == nullptr || !var->spec().has_tensor()) return name.str();
  std::string dims;
  for (const int64_t dim : var->dims()) dims += fmt::format("{}{}", dims.empty() ? "" : ",", dim);
  return fmt::format("{} {}[{}]", name.str(), dtype_name(var->dtype()), dims);
}

void count_ops(const Program& program, SurveyedProgram& found) {
  for (const Block& block : program.blocks()) {
    ++found.blocks;
    found.ops += block.op_count();
    for (const Op& op : block.ops()) ++found.op_types[op.type().str()];
  }
  for (const Op& op : program.root().ops()) {
    if (op.type() == "feed") found.inputs.push_back(declared(program, op.first_output("Out")));
    if (op.type() == "fetch") found.outputs.push_back(declared(program, op.first_input("X")));
  }
}

std::vector<std::string> reasons_of(const Status& status) {
  Location where = status.location();
  where.file.clear();  // the path of the program is above
  where.source.clear();
  const std::string place = where.to_string();
  std::vector<std::string> reasons{place.empty() ? status.message()
                                                 : place + ": " + status.message()};
  for (const std::string& note : status.notes()) reasons.push_back(note);
  if (reasons.size() > kMostReasons) reasons.resize(kMostReasons);
  return reasons;
}

Verdict verdict_of(const Status& status) {
  if (status.ok()) return {Answer::kYes, {}};
  return {Answer::kNo, reasons_of(status)};
}

// Rewrites the program into the form of release 2.6 and lists what changed.
Status upgrade(Program& program, const ops::OpRegistry& registry, SurveyedProgram& found) {
  const std::unique_ptr<Program> before = program.clone();
  MILLRACE_RETURN_IF_ERROR(upgrade_and_check(program, registry));
  const std::vector<Difference> changes =
      diff_programs(*before, program, {.strict_attrs = true, .strict_types = true});
  found.upgrade_count = changes.size();
  for (const Difference& change : llvm::ArrayRef(changes).take_front(kMostUpgrades))
    found.upgrades.push_back(change.to_string());
  return Ok();
}

io::ParamValues read_params(const Program& program, const SurveyOptions& options,
                            SurveyedProgram& found) {
  if (found.kind == ProgramKind::kStartup) return {};
  const std::vector<io::ParamSpec> specs = io::persistables_of(program);
  found.param_count = specs.size();
  if (specs.empty()) return {};
  const std::string folder = std::filesystem::path(found.path).parent_path().string();
  const StatusOr<std::string> path =
      io::find_params(folder.empty() ? "." : folder, found.path, program);
  if (!path.ok()) {
    found.params_status = path.status();
    return {};
  }
  StatusOr<io::ParamValues> values =
      io::read_parameters(*path, program, {.threads = options.threads});
  if (values.ok()) {
    found.params = *path;
    return *std::move(values);
  }
  found.params_status = std::move(values).status();
  return {};
}

bool is_of_training(ProgramKind kind) {
  return kind == ProgramKind::kForward || kind == ProgramKind::kTraining ||
         kind == ProgramKind::kStartup;
}

Verdict convertible(const Target& target, const Program& program, const io::ParamValues& params,
                    const SurveyedProgram& found) {
  const bool is_model = found.kind == ProgramKind::kInference;
  if (!is_model && !(target.takes_training && is_of_training(found.kind)))
    return {Answer::kNotMeant, {}};
  Verdict verdict{Answer::kNo, {}};
  for (const auto& [type, count] : found.op_types) {
    if (type != "feed" && type != "fetch" && !llvm::is_contained(target.op_types, type))
      verdict.reasons.push_back(fmt::format("op '{}' has no converter ({} of them)", type, count));
  }
  if (!verdict.reasons.empty()) return verdict;
  // Programs of training may be stored without parameters: a startup program sets them.
  if (!is_model) return verdict_of(target.convert(program, params));
  if (!found.params_status.ok())
    return {Answer::kUnknown, {"its parameters are not there, or cannot be read"}};
  return verdict_of(target.convert(program, params));
}

Verdict runs_here(const Program& program, ProgramKind kind, const SurveyOptions& options) {
  if (kind == ProgramKind::kTrainer || kind == ProgramKind::kServer)
    return {Answer::kUnknown, {"it needs the other processes of its job; it is valid"}};
  if (!options.compile) return {Answer::kUnknown, {"it has not been compiled; it is valid"}};
  return verdict_of(options.compile(program));
}

StatusOr<ImportedModel> read_onnx(const std::string& path, const SurveyOptions& options) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, read_file(path, options.reading.max_bytes));
  return import_onnx(bytes, {.input_dims = {}, .folder = folder.empty() ? "." : folder});
}

// A model of another format is looked at as the program that the import makes of it.
SurveyedProgram survey_imported(const std::string& path, const char* format,
                                StatusOr<ImportedModel> model, const SurveyOptions& options) {
  SurveyedProgram found;
  found.path = path;
  found.release = format;
  found.kind = ProgramKind::kInference;
  if (!model.ok()) {
    found.unreadable = std::move(model).status();
    return found;
  }
  count_ops(*model->program, found);
  found.param_count = model->params.size();
  found.params = model->params.empty() ? "" : path;
  found.runs = runs_here(*model->program, found.kind, options);
  for (const Target& target : options.targets)
    found.targets.push_back(convertible(target, *model->program, model->params, found));
  return found;
}

}  // namespace

SurveyedProgram survey_program(const std::string& path, const SurveyOptions& options) {
  if (is_onnx_name(path)) return survey_imported(path, "ONNX", read_onnx(path, options), options);
  if (is_pir_name(path)) {
    const PirFiles files{path, "", options.reading.max_bytes, options.threads};
    return survey_imported(path, "PIR", load_pir(files), options);
  }
  SurveyedProgram found;
  found.path = path;
  StatusOr<std::unique_ptr<Program>> read = read_program(path, options.reading);
  if (!read.ok()) {
    found.unreadable = std::move(read).status();
    return found;
  }
  Program& program = **read;
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  found.kind = kind_of(program);
  found.release = release_of(program);
  count_ops(program, found);
  const Status upgraded = upgrade(program, *registry, found);
  if (!upgraded.ok()) {
    found.runs = verdict_of(upgraded);
    for (const Target& target : options.targets) {
      const bool is_meant = found.kind == ProgramKind::kInference ||
                            (target.takes_training && is_of_training(found.kind));
      found.targets.push_back(is_meant ? found.runs : Verdict());
    }
    return found;
  }
  found.runs = runs_here(program, found.kind, options);
  const io::ParamValues params = read_params(program, options, found);
  for (const Target& target : options.targets)
    found.targets.push_back(convertible(target, program, params, found));
  return found;
}

StatusOr<std::vector<SurveyedProgram>> survey(const std::string& folder,
                                              const SurveyOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> paths, find_programs(folder));
  std::vector<SurveyedProgram> found;
  found.reserve(paths.size());
  for (const std::string& path : paths) found.push_back(survey_program(path, options));
  return found;
}

}  // namespace millrace::interchange
