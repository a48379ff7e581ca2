#include "executor/inference_model.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "executor/feed_targets.h"
#include "executor/optimize.h"
#include "framework/base/errors.h"
#include "framework/export.h"
#include "framework/op_attrs.h"
#include "framework/persistable.h"
#include "framework/read_program.h"
#include "io/params_manifest.h"
#include "io/paths.h"
#include "io/persistables.h"
#include "transpiler/register_all.h"

namespace millrace::executor {
namespace {

namespace fs = std::filesystem;

// Development builds of the original write 0; the newest known release is 3.x.
constexpr int64_t kVersionsEnd = 4'000'000;

StatusOr<InferenceModel> model_of(std::unique_ptr<Program> program, const std::string& file) {
  if (const std::optional<int64_t> version = program->version();
      version && (*version < 0 || *version >= kVersionsEnd))
    return InvalidProgram("unsupported program version {}", *version).in_file(file);
  InferenceModel model;
  model.program = std::move(program);
  model.feeds = targets_of(*model.program, "feed");
  model.fetches = targets_of(*model.program, "fetch");
  return model;
}

Status run_passes(Program& program, const ops::OpRegistry& registry,
                  transpiler::Pipeline pipeline) {
  transpiler::PassRegistry passes;
  transpiler::register_all(passes);
  MILLRACE_ASSIGN_OR_RETURN(const transpiler::PassManager manager,
                            transpiler::PassManager::create(passes, std::move(pipeline)));
  transpiler::PassContext context(registry);
  return manager.run(program, context, pass_options(program, registry, /*verify=*/false)).status();
}

// Pass prune checks this if there are feeds.
Status check_needs_no_feeds(const Program& program) {
  for (const Op& op : program.root().ops()) {
    if (op.type() == "read" || op.type() == "create_py_reader") continue;
    for (const llvm::StringRef name : op.input_names()) {
      const Var* const var = program.root().find_var(name);
      if (var == nullptr || var->persistable() || !program.root().writers_of(name).empty())
        continue;
      Location location = op.location();
      location.var = name.str();
      return InvalidArgument("the fetches need '{}', which is neither fed nor computed", name.str())
          .at(std::move(location))
          .with_hint("add it to the feeds of the model");
    }
  }
  return Ok();
}

// The last component of the path, as in the original: names never lead out of the folder.
std::string base_name(const std::string& name) {
  return fs::path(name).filename().string();
}

// The attribute of an op that lists the servers of a table; empty for other ops.
llvm::StringRef servers_attr(const Op& op) {
  if (op.type() == "prefetch") return "epmap";
  return op.type() == "distributed_lookup_table" ? "endpoints" : "";
}

// Replaces the server endpoints in a program.
// \returns the tables that are on these servers
StatusOr<std::set<std::string>> move_servers(Program& program,
                                             const std::vector<std::string>& endpoints) {
  std::set<std::string> tables;
  std::vector<std::string> named;  // in order of appearance
  for (const bool count : {true, false}) {
    if (!count && named.size() != endpoints.size()) {
      return InvalidArgument("pserver_endpoints: the program names {} servers, {} are given",
                             named.size(), endpoints.size());
    }
    for (Op& op : program.root().ops()) {
      const llvm::StringRef attr = servers_attr(op);
      if (attr.empty()) continue;
      auto places = get_attr_or(op, attr, std::vector<std::string>());
      for (std::string& place : places) {
        const auto found = std::find(named.begin(), named.end(), place);
        if (!count) {
          place = endpoints[static_cast<size_t>(found - named.begin())];
        } else if (found == named.end()) {
          named.push_back(place);
        }
      }
      if (!count) op.set_strings(attr, std::move(places));
      for (const std::string& table : get_attr_or(op, "table_names", std::vector<std::string>()))
        tables.insert(table);
      for (const llvm::StringRef name : op.input_names())
        if (op.type() == "distributed_lookup_table" && name == op.first_input("W"))
          tables.insert(name.str());
    }
  }
  return tables;
}

// The files of a model folder. \param params_filename  empty: one file per var
std::vector<std::string> model_files(const Program& program, const std::string& model_filename,
                                     const std::string& params_filename) {
  const std::vector<io::ParamSpec> specs = io::vars_where(program, is_persistable);
  std::vector<std::string> files;
  if (!params_filename.empty() && !specs.empty()) files.push_back(params_filename);
  if (params_filename.empty()) files = io::names_of(specs);
  files.push_back(model_filename);
  return files;
}

// Reads the program of a folder and checks it against the manifest next to the folder. Separate
// parameter files are checked when they are loaded.
StatusOr<InferenceModel> read_model(const std::string& folder, const std::string& model_filename,
                                    const std::string& params_filename) {
  const std::string name = model_filename.empty() ? "__model__" : base_name(model_filename);
  MILLRACE_ASSIGN_OR_RETURN(const std::string path, io::path_below(folder, name));
  std::vector<std::string> files = {name};
  if (!params_filename.empty()) files.push_back(base_name(params_filename));
  MILLRACE_RETURN_IF_ERROR(io::check_folder(folder, files, io::CheckFiles::kBytes));
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Program> program, read_program(path));
  return model_of(std::move(program), path);
}

// Which vars are loaded, after the server endpoints were replaced.
StatusOr<io::VarPredicate> wanted_vars(InferenceModel& model,
                                       const std::vector<std::string>& endpoints) {
  if (endpoints.empty()) return io::VarPredicate(is_persistable);
  MILLRACE_ASSIGN_OR_RETURN(const std::set<std::string> tables,
                            move_servers(*model.program, endpoints));
  return io::VarPredicate([tables](const Var& var) {
    return is_persistable(var) && !tables.contains(var.name().str());
  });
}

}  // namespace

StatusOr<std::unique_ptr<Program>> make_inference_program(const Program& program,
                                                          const ops::OpRegistry& registry,
                                                          const std::vector<std::string>& feeds,
                                                          const std::vector<std::string>& fetches) {
  if (fetches.empty()) return InvalidArgument("fetches: expected at least one var, found none");
  for (const std::vector<std::string>* const names : {&feeds, &fetches}) {
    for (const std::string& name : *names) {
      if (program.root().find_var(name) != nullptr) continue;
      Location location;
      location.var = name;
      return InvalidArgument("the program has no such var in block 0").at(std::move(location));
    }
  }
  std::unique_ptr<Program> pruned = program.clone();
  transpiler::Pipeline pipeline;
  pipeline.steps.push_back({"remove-feed-fetch", {}});
  pipeline.steps.push_back({"prune", {{"targets", fetches}, {"feeds", feeds}}});
  pipeline.steps.push_back({"set-is-test", {}});
  pipeline.steps.push_back({"add-feed-fetch", {{"feeds", feeds}, {"fetches", fetches}}});
  MILLRACE_RETURN_IF_ERROR(run_passes(*pruned, registry, std::move(pipeline)));
  if (feeds.empty()) MILLRACE_RETURN_IF_ERROR(check_needs_no_feeds(*pruned));
  return pruned;
}

Status save_inference_model(const std::string& folder, const Program& program,
                            const ops::OpRegistry& registry, const Scope& scope,
                            const std::vector<std::string>& feeds,
                            const std::vector<std::string>& fetches,
                            const SaveModelOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> pruned,
                            make_inference_program(program, registry, feeds, fetches));
  MILLRACE_ASSIGN_OR_RETURN(const std::string path,
                            io::make_path_below(folder, options.model_filename));
  io::forget_manifests(path);
  if (!options.program_only) {
    io::SaveVarsOptions save;
    save.filename = options.params_filename;
    save.save.replace = options.replace;
    save.manifest = false;  // one manifest of the whole folder is written last
    MILLRACE_RETURN_IF_ERROR(io::save_persistables(scope, *pruned, folder, save).status());
  }
  MILLRACE_RETURN_IF_ERROR(write_file_atomically(path, export_program(*pruned), options.replace));
  if (options.program_only) return Ok();
  return io::write_folder_manifest(
      folder, model_files(*pruned, options.model_filename, options.params_filename), {},
      /*sync=*/true);
}

StatusOr<ModelBytes> inference_model_bytes(const Program& program, const ops::OpRegistry& registry,
                                           const Scope& scope,
                                           const std::vector<std::string>& feeds,
                                           const std::vector<std::string>& fetches) {
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> pruned,
                            make_inference_program(program, registry, feeds, fetches));
  ModelBytes bytes;
  MILLRACE_ASSIGN_OR_RETURN(bytes.params, io::persistables_to_memory(scope, *pruned));
  bytes.program = export_program(*pruned);
  return bytes;
}

StatusOr<InferenceModel> load_inference_model(const std::string& folder, Scope& scope,
                                              const std::string& model_filename,
                                              const std::string& params_filename) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return NotFound("there is no such folder").in_file(folder);
  MILLRACE_ASSIGN_OR_RETURN(InferenceModel model,
                            read_model(folder, model_filename, params_filename));
  MILLRACE_RETURN_IF_ERROR(
      io::load_persistables(scope, *model.program, folder, base_name(params_filename)));
  return model;
}

StatusOr<InferenceModel> load_inference_model_bytes(std::string program, std::string_view params,
                                                    Scope& scope) {
  const std::string name = "program in memory";
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Program> read,
                            read_program_bytes(std::move(program), name));
  MILLRACE_ASSIGN_OR_RETURN(InferenceModel model, model_of(std::move(read), name));
  if (params.empty() && !io::vars_where(*model.program, is_persistable).empty())
    return InvalidArgument("the program has parameters, but their bytes are not given");
  if (!params.empty())
    MILLRACE_RETURN_IF_ERROR(io::persistables_from_memory(scope, *model.program, params));
  return model;
}

StatusOr<InferenceModel> load_inference_model_distributed(
    const std::string& folder, Scope& scope, const std::string& model_filename,
    const std::string& params_filename, const std::vector<std::string>& pserver_endpoints) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    return NotFound("there is no directory named '{}'", folder).in_file(folder);
  MILLRACE_ASSIGN_OR_RETURN(InferenceModel model,
                            read_model(folder, model_filename, params_filename));
  MILLRACE_ASSIGN_OR_RETURN(const io::VarPredicate wanted, wanted_vars(model, pserver_endpoints));
  MILLRACE_RETURN_IF_ERROR(
      io::load_vars(scope, *model.program, folder, wanted, base_name(params_filename)));
  return model;
}

StatusOr<InferenceModel> load_inference_model_distributed_bytes(
    std::string program, std::optional<std::string_view> params, Scope& scope,
    const std::vector<std::string>& pserver_endpoints) {
  if (!params) return InvalidArgument("without a directory the parameters must be given as bytes");
  const std::string name = "program in memory";
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Program> read,
                            read_program_bytes(std::move(program), name));
  MILLRACE_ASSIGN_OR_RETURN(InferenceModel model, model_of(std::move(read), name));
  MILLRACE_ASSIGN_OR_RETURN(const io::VarPredicate wanted, wanted_vars(model, pserver_endpoints));
  MILLRACE_RETURN_IF_ERROR(io::vars_from_memory(scope, *model.program, *params, wanted));
  return model;
}

}  // namespace millrace::executor
