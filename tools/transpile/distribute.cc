#include "tools/transpile/distribute.h"

#include <chrono>
#include <utility>

#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "framework/read_program.h"
#include "jobs/distribute/distribution.h"
#include "jobs/distribute/earlier_job.h"
#include "jobs/distribute/parallel_for.h"
#include "ops/registry.h"
#include "ops/verify.h"
#include "tools/transpile/run_passes.h"
#include "tools/transpile/write_below.h"

namespace millrace::tools {
namespace {

struct Inputs {
  std::unique_ptr<Program> main;
  std::unique_ptr<Program> startup;
};

StatusOr<Inputs> read_inputs(const Tool& tool, const TranspileOptions& options,
                             const ops::OpRegistry& registry) {
  if (options.startup.empty())
    return Status(StatusCode::kUsage, "--startup is required to distribute a program");
  if (tool.common().output.empty())
    return Status(StatusCode::kUsage, "-o FOLDER is required to distribute a program");
  Inputs in;
  const ImportOptions limits{.max_bytes = tool.common().max_model_bytes};
  const auto read = [&](size_t i) -> Status {
    const std::string& path = i == 0 ? options.program : options.startup;
    std::unique_ptr<Program>& program = i == 0 ? in.main : in.startup;
    MILLRACE_ASSIGN_OR_RETURN(program, read_program(path, limits));
    return options.verify ? ops::check_program(registry, *program).in_file(path) : Ok();
  };
  MILLRACE_RETURN_IF_ERROR(jobs::parallel_for(2, tool.common().threads, read));
  return in;
}

StatusOr<jobs::DistributionOptions> distribution_options(const Tool& tool,
                                                         const TranspileOptions& options) {
  jobs::DistributionOptions out;
  out.transpiler = options.transpiler;
  out.config = options.config;
  out.arguments = options.arguments;
  out.sparse_tables = options.sparse_tables;
  out.io_programs = options.io_programs;
  out.heter = options.heter;
  out.verify = options.verify;
  out.strip_debug = options.strip_debug;
  out.as_text = options.format == "text";
  out.report = true;
  out.threads = tool.common().threads;
  if (options.trainer_id == "all") return out;
  int64_t id = 0;
  if (llvm::StringRef(options.trainer_id).getAsInteger(10, id))
    return InvalidArgument("trainer_id must be a number or 'all' (found '{}')", options.trainer_id);
  out.trainers = {id};
  return out;
}

// Removes files of an earlier job that would be taken for those of this one.
Status clear_output(const Tool& tool, const jobs::Distribution& job) {
  jobs::WrittenJob written{job.trainers(), job.servers(),    {},
                           false,          job.has_tables(), job.heter_workers()};
  for (const std::vector<jobs::JobFile>& files : job.files())
    for (const jobs::JobFile& file : files) written.roles.push_back(file.role);
  return jobs::clear_earlier_job(tool.common().output, written,
                                 tool.common().force ? Replace::kYes : Replace::kNo);
}

// All files are generated before the first one is written. Programs are freed in parallel.
Status write_files(Tool& tool, jobs::Distribution& job) {
  return jobs::parallel_for(job.files().size() + 1, tool.common().threads, [&](size_t i) -> Status {
    if (i == 0) {
      job.release();
      return Ok();
    }
    // No flush: if files are lost, running the command again restores them. Flushing dozens of
    // files one by one takes longer than generating them.
    for (const jobs::JobFile& file : job.files()[i - 1])
      MILLRACE_RETURN_IF_ERROR(write_below(tool, file.role, file.name, file.bytes, Flush::kNo));
    return Ok();
  });
}

}  // namespace

StatusOr<int> distribute(Tool& tool, const TranspileOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  MILLRACE_ASSIGN_OR_RETURN(Inputs in, read_inputs(tool, options, *registry));
  MILLRACE_ASSIGN_OR_RETURN(jobs::DistributionOptions how, distribution_options(tool, options));
  const WatchedPasses watched(options, *registry);
  if (WatchedPasses::wanted(options)) how.first_passes = &watched.options();
  MILLRACE_ASSIGN_OR_RETURN(
      jobs::Distribution job,
      jobs::Distribution::make(std::move(in.main), std::move(in.startup), *registry, how));
  const std::string summary = job.summary();
  const std::vector<std::string> remarks = job.remarks();
  std::string explained;
  if (options.explain) {
    MILLRACE_ASSIGN_OR_RETURN(explained, job.explanation(tool.common().json));
  }
  MILLRACE_RETURN_IF_ERROR(clear_output(tool, job));
  MILLRACE_RETURN_IF_ERROR(write_files(tool, job));
  if (options.explain) MILLRACE_RETURN_IF_ERROR(tool.write_file("", explained));
  // Remarks report differences from the program, so they are warnings; with print_log every stage
  // reports what it did.
  const LogLevel level = options.config.print_log ? LogLevel::kInfo : LogLevel::kWarning;
  for (const std::string& remark : remarks) tool.log(level, remark);
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
  if (options.timing) tool.log(LogLevel::kInfo, "\n" + watched.times());
  tool.log(LogLevel::kInfo, fmt::format("{}, {:.0f} ms", summary, spent.count()));
  return kDone;
}

}  // namespace millrace::tools
