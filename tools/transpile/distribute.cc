#include "tools/transpile/distribute.h"

#include <chrono>
#include <filesystem>
#include <optional>

#include "framework/base/errors.h"
#include "framework/read_program.h"
#include "ops/registry.h"
#include "ops/verify.h"
#include "tools/transpile/parallel.h"
#include "tools/transpile/program_form.h"
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

// Turns programs into files and writes them below the output folder.
class RoleWriter {
 public:
  RoleWriter(Tool& tool, const TranspileOptions& options, const ops::OpRegistry& registry)
      : tool_(tool), options_(options), registry_(registry) {}

  // Verifies and serializes a program; what it appends outlives the program.
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
    // Nothing is lost with a role that the same command writes again; flushing dozens of files one
    // by one takes longer than making them.
    return tool_.write_file((folder / name).string(), bytes, Flush::kNo);
  }

 private:
  // What the transpiler writes has to verify; a finding here is a bug of it.
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

// The trainers that --trainer-id names. Errors: kInvalidArgument.
StatusOr<std::vector<int64_t>> wanted_trainers(const TranspileOptions& options, int64_t trainers) {
  std::vector<int64_t> out;
  if (options.trainer_id == "all") {
    for (int64_t id = 0; id < trainers; ++id) out.push_back(id);
    return out;
  }
  int64_t id = 0;
  if (llvm::StringRef(options.trainer_id).getAsInteger(10, id)) {
    return InvalidArgument("trainer_id must be a number or 'all' (found '{}')", options.trainer_id);
  }
  return std::vector<int64_t>{id};
}

// Save and load programs of section 13, beside the programs of the roles that run them.
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
  MILLRACE_ASSIGN_OR_RETURN(in.main, read_program(options.program, limits));
  MILLRACE_ASSIGN_OR_RETURN(in.startup, read_program(options.startup, limits));
  if (options.verify) {
    Status status = ops::check_program(*in.registry, *in.main);
    if (!status.ok()) return std::move(status).in_file(options.program);
    status = ops::check_program(*in.registry, *in.startup);
    if (!status.ok()) return std::move(status).in_file(options.startup);
  }
  return in;
}

// One transpilation a trainer; the first also gives the servers. Plans first, so that nothing is
// written for a job that is refused.
StatusOr<std::vector<std::unique_ptr<tp::Transpilation>>> plan(const Tool& tool,
                                                               const TranspileOptions& options,
                                                               const Inputs& in,
                                                               std::vector<int64_t>& trainers) {
  auto create = [&](int64_t trainer) {
    tp::TranspileArguments arguments = options.arguments;
    arguments.trainer_id = trainer;
    return tp::Transpilation::create(options.transpiler, *in.main, *in.startup, options.config,
                                     arguments, *in.registry);
  };
  MILLRACE_ASSIGN_OR_RETURN(trainers, wanted_trainers(options, 1));
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<tp::Transpilation> first, create(trainers[0]));
  MILLRACE_ASSIGN_OR_RETURN(trainers, wanted_trainers(options, first->trainer_count()));
  std::vector<std::unique_ptr<tp::Transpilation>> jobs(trainers.size());
  jobs[0] = std::move(first);
  MILLRACE_RETURN_IF_ERROR(
      parallel_for(jobs.size() - 1, tool.common().threads, [&](size_t i) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(jobs[i + 1], create(trainers[i + 1]));
        return Ok();
      }));
  return jobs;
}

// report.html, and with --explain the costs on stdout.
Status write_report(Tool& tool, const TranspileOptions& options, const RoleWriter& writer,
                    const tp::Transpilation& job) {
  std::optional<tp::CostReport> report;
  tp::CostInput input;
  if (job.server_count() > 0) {
    input = job.cost();
    if (!input.endpoints.empty()) {
      MILLRACE_ASSIGN_OR_RETURN(report, tp::estimate_cost(input));
    }
  }
  MILLRACE_RETURN_IF_ERROR(writer.write_text(
      "", "report.html",
      tp::report_html(job.properties(), job.overview(), report ? &*report : nullptr)));
  if (!options.explain) return Ok();
  const tp::CostReport* const costs = report ? &*report : nullptr;
  return tool.write_file("", tool.common().json ? tp::explain_json(job.overview(), input, costs)
                                                : tp::explain_text(job.overview(), input, costs));
}

std::string summary(const tp::Transpilation& job, size_t trainers, double milliseconds) {
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
  return fmt::format("{} trainers x {} pservers, {} vars -> {} slices, imbalance {:.2f}, {:.0f} ms",
                     trainers, job.server_count(), origins, slices, tp::imbalance(shares),
                     milliseconds);
}

}  // namespace

StatusOr<int> distribute(Tool& tool, const TranspileOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  MILLRACE_ASSIGN_OR_RETURN(const Inputs in, read_inputs(tool, options));
  std::vector<int64_t> trainers;
  MILLRACE_ASSIGN_OR_RETURN(const auto jobs, plan(tool, options, in, trainers));
  const tp::Transpilation& first = *jobs[0];
  const size_t servers = first.server_count();

  // Every program is built and serialized before the first file is written; only the bytes of a
  // role stay in memory.
  const RoleWriter writer(tool, options, *in.registry);
  std::vector<OutFiles> files(jobs.size() + servers);
  const auto build = [&](size_t i) -> Status {
    const bool is_trainer = i < jobs.size();
    const std::string folder = is_trainer ? "trainer_" + std::to_string(trainers[i])
                                          : "pserver_" + std::to_string(i - jobs.size());
    MILLRACE_ASSIGN_OR_RETURN(const tp::RolePrograms roles,
                              is_trainer ? jobs[i]->trainer() : first.pserver(i - jobs.size()));
    if (i == 0 && !options.io_programs.empty()) {
      MILLRACE_RETURN_IF_ERROR(
          add_io_programs(writer, options, files[i], folder, *roles.main, first));
    }
    MILLRACE_RETURN_IF_ERROR(writer.add_program(files[i], folder, "__model__", *roles.main));
    MILLRACE_RETURN_IF_ERROR(writer.add_program(files[i], folder, "__startup__", *roles.startup));
    if (!is_trainer) return Ok();
    for (const auto& [name, program] : jobs[i]->trainer_extras()) {
      MILLRACE_RETURN_IF_ERROR(writer.add_program(files[i], folder, name, *program));
    }
    return Ok();
  };
  MILLRACE_RETURN_IF_ERROR(parallel_for(files.size(), tool.common().threads, build));
  MILLRACE_RETURN_IF_ERROR(parallel_for(files.size(), tool.common().threads,
                                        [&](size_t i) { return writer.write_all(files[i]); }));
  MILLRACE_RETURN_IF_ERROR(
      writer.write_text("", "slices.json", tp::slices_json(first.properties(), first.overview())));
  MILLRACE_RETURN_IF_ERROR(write_report(tool, options, writer, first));
  for (const std::string& remark : first.remarks()) tool.log(LogLevel::kInfo, remark);
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
  tool.log(LogLevel::kInfo, summary(first, trainers.size(), spent.count()));
  return kDone;
}

}  // namespace millrace::tools
