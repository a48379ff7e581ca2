#include "tools/transpile/distribute.h"

#include <chrono>
#include <filesystem>
#include <optional>

#include "framework/base/errors.h"
#include "framework/read_program.h"
#include "jobs/config/typed_tables.h"
#include "ops/registry.h"
#include "ops/verify.h"
#include "tools/transpile/earlier_job.h"
#include "tools/transpile/parallel.h"
#include "tools/transpile/program_form.h"
#include "tools/transpile/run_passes.h"
#include "transpiler/distribute/cost_model.h"
#include "transpiler/distribute/explain.h"
#include "transpiler/distribute/io_programs.h"
#include "transpiler/distribute/report_html.h"
#include "transpiler/distribute/slices_json.h"
#include "transpiler/distribute/transpilation.h"

namespace millrace::tools {
namespace {

namespace tp = millrace::transpiler;
namespace fs = std::filesystem;

// One file of the output folder, ready to be written.
struct OutFile {
  std::string role;
  std::string name;
  std::string bytes;
};
using OutFiles = std::vector<OutFile>;

// Serializes programs and writes them below the output folder.
class RoleWriter {
 public:
  RoleWriter(Tool& tool, const TranspileOptions& options, const ops::OpRegistry& registry)
      : tool_(tool), options_(options), registry_(registry) {}

  // Verifies and serializes a program; the appended file does not reference the program.
  Status add_program(OutFiles& files, const std::string& role, const std::string& name,
                     Program& program) const {
    if (options_.strip_debug) strip_debug(program);
    if (options_.verify) MILLRACE_RETURN_IF_ERROR(verify_output(program, role + "/" + name));
    files.push_back({role, name, serialize(program, options_.format == "text")});
    return Ok();
  }

  Status write_all(const OutFiles& files) const {
    for (const OutFile& file : files) {
      MILLRACE_RETURN_IF_ERROR(write_text(file.role, file.name, file.bytes));
    }
    return Ok();
  }

  Status write_text(const std::string& role, const std::string& name,
                    const std::string& bytes) const {
    const fs::path folder = fs::path(tool_.common().output) / role;
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) return IoError("cannot create folder '{}': {}", folder.string(), error.message());
    // No flush: if files are lost, running the command again restores them. Flushing dozens of
    // files one by one takes longer than generating them.
    return tool_.write_file((folder / name).string(), bytes, Flush::kNo);
  }

 private:
  // The programs that the transpiler writes must verify; an error here is a bug in the transpiler.
  [[nodiscard]] Status verify_output(const Program& program, const std::string& name) const {
    Status status = ops::check_program(registry_, program);
    if (status.ok()) return status;
    return Internal("the transpiler wrote a program that does not verify: {}", status.message())
        .at(status.location())
        .in_file(name);
  }

  Tool& tool_;
  const TranspileOptions& options_;
  const ops::OpRegistry& registry_;
};

// The trainers that --trainer-id selects. Errors: kInvalidArgument.
StatusOr<std::vector<int64_t>> wanted_trainers(const TranspileOptions& options) {
  std::vector<int64_t> out;
  if (options.trainer_id == "all") {
    const int64_t trainers =
        tp::Transpilation::count_trainers(options.transpiler, options.config, options.arguments);
    for (int64_t id = 0; id < std::max<int64_t>(trainers, 1); ++id) out.push_back(id);
    return out;
  }
  int64_t id = 0;
  if (llvm::StringRef(options.trainer_id).getAsInteger(10, id)) {
    return InvalidArgument("trainer_id must be a number or 'all' (found '{}')", options.trainer_id);
  }
  return std::vector<int64_t>{id};
}

// Adds the save and load programs of spec section 13 next to the programs of the roles that run
// them.
Status add_io_programs(const RoleWriter& writer, const TranspileOptions& options, OutFiles& files,
                       const std::string& trainer_folder, const Program& trainer,
                       const tp::Transpilation& job) {
  MILLRACE_ASSIGN_OR_RETURN(
      tp::SavePrograms save,
      tp::make_save_programs(trainer, job.overview(), job.properties(), options.io_programs));
  for (size_t i = 0; i < save.remote.size(); ++i) {
    MILLRACE_RETURN_IF_ERROR(
        writer.add_program(files, trainer_folder, "io_save" + std::to_string(i), *save.remote[i]));
  }
  for (size_t i = 0; i < job.server_count(); ++i) {
    tp::ProgramProperties at_server = job.properties();
    at_server.ps_endpoint = at_server.endpoints[i];
    MILLRACE_ASSIGN_OR_RETURN(
        const std::unique_ptr<Program> load,
        tp::make_load_program(job.overview(), at_server, options.io_programs));
    MILLRACE_RETURN_IF_ERROR(
        writer.add_program(files, "pserver_" + std::to_string(i), "io_load", *load));
  }
  return Ok();
}

struct Inputs {
  std::unique_ptr<ops::OpRegistry> registry;
  std::unique_ptr<Program> main;
  std::unique_ptr<Program> startup;
};

StatusOr<Inputs> read_inputs(const Tool& tool, const TranspileOptions& options) {
  Inputs in;
  in.registry = ops::standard_registry();
  if (options.startup.empty())
    return Status(StatusCode::kUsage, "--startup is required to distribute a program");
  if (tool.common().output.empty())
    return Status(StatusCode::kUsage, "-o FOLDER is required to distribute a program");
  const ImportOptions limits{.max_bytes = tool.common().max_model_bytes};
  const auto read = [&](size_t i) -> Status {
    const std::string& path = i == 0 ? options.program : options.startup;
    std::unique_ptr<Program>& program = i == 0 ? in.main : in.startup;
    MILLRACE_ASSIGN_OR_RETURN(program, read_program(path, limits));
    return options.verify ? ops::check_program(*in.registry, *program).in_file(path) : Ok();
  };
  MILLRACE_RETURN_IF_ERROR(parallel_for(2, tool.common().threads, read));
  return in;
}

// Embeddings that become typed tables are removed from the programs before anything else is split.
StatusOr<std::vector<ps::TypedTable>> take_tables(const TranspileOptions& options, Inputs& in) {
  std::vector<ps::TypedTable> none;
  if (options.sparse_tables.empty()) return none;
  if (options.transpiler != "distribute" || options.config.mode != "pserver")
    return Unimplemented("'sparse_tables' with transpiler '{}' and mode '{}'", options.transpiler,
                         options.config.mode);
  std::vector<std::string> endpoints;
  llvm::SmallVector<llvm::StringRef, 8> servers;
  llvm::StringRef(options.arguments.pservers).split(servers, ',', -1, false);
  for (const llvm::StringRef server : servers) endpoints.push_back(server.str());
  return jobs::make_typed_tables(options.sparse_tables, endpoints, *in.main, *in.startup);
}

// Builds every role of one distribution and turns it into files. Each trainer has its own
// transpilation; that of the first trainer also produces the servers.
class Roles {
 public:
  Roles(const Tool& tool, const TranspileOptions& options, const ops::OpRegistry& registry,
        const RoleWriter& writer, Inputs in, std::vector<int64_t> trainers)
      : threads_(tool.common().threads),
        options_(options),
        registry_(registry),
        writer_(writer),
        in_(std::move(in)),
        trainers_(std::move(trainers)),
        jobs_(trainers_.size()),
        watched_(options, registry) {}

  // Plans one trainer per thread; the others are planned when they are built, so that not all
  // copies of a large program are in memory at once.
  Status plan() {
    const size_t at_once = std::min(trainers_.size(), static_cast<size_t>(threads_));
    MILLRACE_RETURN_IF_ERROR(
        parallel_for(at_once, threads_, [&](size_t i) { return plan_trainer(i); }));
    if (at_once == trainers_.size()) in_ = {};  // the inputs are no longer needed
    return Ok();
  }

  [[nodiscard]] const tp::Transpilation& first() const { return *jobs_[0]; }
  // The times of the passes of the first trainer, with --timing.
  [[nodiscard]] std::string times() const { return watched_.times(); }
  // The trainers first, because they are the largest, then the servers.
  [[nodiscard]] size_t count() const { return trainers_.size() + first().server_count(); }

  // Files of one role.
  Status build(size_t role, OutFiles& files) {
    if (role < trainers_.size()) return build_trainer(role, files);
    const size_t server = role - trainers_.size();
    MILLRACE_ASSIGN_OR_RETURN(const tp::RolePrograms programs, first().pserver(server));
    return add_both(files, "pserver_" + std::to_string(server), programs);
  }

  // Drops all programs and first().
  void release() {
    jobs_.clear();
    in_ = {};
  }

 private:
  Status plan_trainer(size_t i) {
    tp::TranspileArguments arguments = options_.arguments;
    arguments.trainer_id = trainers_[i];
    const bool is_watched = i == 0 && WatchedPasses::wanted(options_);
    MILLRACE_ASSIGN_OR_RETURN(
        jobs_[i], tp::Transpilation::create(options_.transpiler, *in_.main, *in_.startup,
                                            options_.config, arguments, registry_,
                                            is_watched ? watched_.options() : tp::fast_options()));
    return Ok();
  }

  Status add_both(OutFiles& files, const std::string& folder,
                  const tp::RolePrograms& programs) const {
    MILLRACE_RETURN_IF_ERROR(writer_.add_program(files, folder, "__model__", *programs.main));
    return writer_.add_program(files, folder, "__startup__", *programs.startup);
  }

  Status build_trainer(size_t i, OutFiles& files) {
    if (jobs_[i] == nullptr) MILLRACE_RETURN_IF_ERROR(plan_trainer(i));
    const std::string folder = "trainer_" + std::to_string(trainers_[i]);
    // The servers still need the programs of the first trainer.
    MILLRACE_ASSIGN_OR_RETURN(const tp::RolePrograms programs,
                              i == 0 ? jobs_[0]->trainer() : jobs_[i]->take_trainer());
    if (i == 0 && !options_.io_programs.empty()) {
      MILLRACE_RETURN_IF_ERROR(
          add_io_programs(writer_, options_, files, folder, *programs.main, first()));
    }
    MILLRACE_RETURN_IF_ERROR(add_both(files, folder, programs));
    for (const auto& [name, program] : jobs_[i]->trainer_extras()) {
      MILLRACE_RETURN_IF_ERROR(writer_.add_program(files, folder, name, *program));
    }
    if (i > 0) jobs_[i].reset();
    return Ok();
  }

  int threads_;
  const TranspileOptions& options_;
  const ops::OpRegistry& registry_;
  const RoleWriter& writer_;
  Inputs in_;
  std::vector<int64_t> trainers_;
  std::vector<std::unique_ptr<tp::Transpilation>> jobs_;
  WatchedPasses watched_;  // the passes of the first trainer
};

// What report.html and --explain show; without a report for modes without servers.
struct Costs {
  tp::CostInput input;
  std::optional<tp::CostReport> report;
  [[nodiscard]] const tp::CostReport* get() const { return report ? &*report : nullptr; }
};

StatusOr<Costs> costs_of(const tp::Transpilation& job) {
  Costs costs;
  if (job.server_count() == 0) return costs;
  costs.input = job.cost();
  if (costs.input.endpoints.empty()) return costs;
  MILLRACE_ASSIGN_OR_RETURN(costs.report, tp::estimate_cost(costs.input));
  return costs;
}

std::string explanation(const tp::Transpilation& job, const Costs& costs, bool as_json) {
  return as_json ? tp::explain_json(job.overview(), costs.input, costs.get())
                 : tp::explain_text(job.overview(), costs.input, costs.get());
}

std::string summary(const tp::Transpilation& job, size_t trainers) {
  size_t origins = 0;
  size_t slices = 0;
  for (const tp::OriginSlices& origin : tp::slices_by_origin(job.overview())) {
    if (origin.vtype == "Optimizer") continue;
    ++origins;
    slices += origin.slices.size();
  }
  std::vector<double> shares;
  for (const tp::ServerBytes& server : tp::bytes_by_server(job.properties(), job.overview())) {
    shares.push_back(static_cast<double>(server.bytes()));
  }
  return fmt::format("{} trainers x {} pservers, {} vars -> {} slices, imbalance {:.2f}", trainers,
                     job.server_count(), origins, slices, tp::imbalance(shares));
}

}  // namespace

StatusOr<int> distribute(Tool& tool, const TranspileOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const int threads = tool.common().threads;
  MILLRACE_ASSIGN_OR_RETURN(Inputs in, read_inputs(tool, options));
  const std::unique_ptr<ops::OpRegistry> registry = std::move(in.registry);
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<ps::TypedTable> tables, take_tables(options, in));
  MILLRACE_ASSIGN_OR_RETURN(std::vector<int64_t> trainers, wanted_trainers(options));
  const size_t trainer_count = trainers.size();
  const RoleWriter writer(tool, options, *registry);
  Roles roles(tool, options, *registry, writer, std::move(in), std::move(trainers));
  MILLRACE_RETURN_IF_ERROR(roles.plan());
  const tp::Transpilation& first = roles.first();

  // All files are generated before the first one is written; only the serialized bytes of a role
  // stay in memory. The last two files describe the whole job.
  const size_t count = roles.count();
  std::vector<OutFiles> files(count + 2);
  Costs costs;
  const auto build = [&](size_t i) -> Status {
    if (i < count) return roles.build(i, files[i]);
    if (i == count) {
      files[i].push_back(
          {"", "slices.json", tp::slices_json(first.properties(), first.overview())});
      if (!tables.empty()) files[i].push_back({"", "tables.json", jobs::typed_tables_json(tables)});
      return Ok();
    }
    MILLRACE_ASSIGN_OR_RETURN(costs, costs_of(first));
    files[i].push_back(
        {"", "report.html", tp::report_html(first.properties(), first.overview(), costs.get())});
    return Ok();
  };
  MILLRACE_RETURN_IF_ERROR(parallel_for(files.size(), threads, build));
  const std::string result = summary(first, trainer_count);
  const std::vector<std::string> remarks = first.remarks();
  const std::string explained =
      options.explain ? explanation(first, costs, tool.common().json) : std::string();
  WrittenJob job;
  job.trainers = std::max<int64_t>(
      1, tp::Transpilation::count_trainers(options.transpiler, options.config, options.arguments));
  job.servers = static_cast<int64_t>(first.server_count());
  job.has_tables = !tables.empty();
  for (const OutFiles& role : files)
    for (const OutFile& file : role) job.roles.push_back(file.role);
  MILLRACE_RETURN_IF_ERROR(clear_earlier_job(tool, job));
  // Freed in parallel, because freeing a large program takes as long as writing it.
  MILLRACE_RETURN_IF_ERROR(parallel_for(files.size() + 1, threads, [&](size_t i) -> Status {
    if (i > 0) return writer.write_all(files[i - 1]);
    roles.release();
    return Ok();
  }));
  if (options.explain) MILLRACE_RETURN_IF_ERROR(tool.write_file("", explained));
  // Remarks report differences from the program, so they are warnings; with print_log every stage
  // reports what it did.
  const LogLevel level = options.config.print_log ? LogLevel::kInfo : LogLevel::kWarning;
  for (const std::string& remark : remarks) tool.log(level, remark);
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
  if (options.timing) tool.log(LogLevel::kInfo, "\n" + roles.times());
  tool.log(LogLevel::kInfo, fmt::format("{}, {:.0f} ms", result, spent.count()));
  return kDone;
}

}  // namespace millrace::tools
