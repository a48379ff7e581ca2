// job-report: writes a page about a finished parameter-server job from the files of its trainers.

#include "jobs/stats/job_report.h"

#include "framework/base/file.h"
#include "jobs/stats/job_trace.h"
#include "tools/common/tool.h"
#include "tools/verbs.h"

namespace millrace::tools {
namespace {

constexpr int64_t kMaxStatsBytes = int64_t{1} << 28;
constexpr int64_t kMaxTraceBytes = int64_t{1} << 31;

struct ReportFlags {
  std::string transpiled;
  std::vector<std::string> stats;
  std::vector<std::string> traces;
};

StatusOr<int> trace(Tool& tool, const ReportFlags& flags) {
  std::vector<std::string> texts;
  for (const std::string& path : flags.traces) {
    MILLRACE_ASSIGN_OR_RETURN(texts.emplace_back(), read_file(path, kMaxTraceBytes));
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string joined, jobs::join_traces(texts));
  MILLRACE_RETURN_IF_ERROR(tool.write_output(joined));
  return kDone;
}

StatusOr<int> report(Tool& tool, const ReportFlags& flags) {
  if (!flags.traces.empty() && (!flags.transpiled.empty() || !flags.stats.empty()))
    return Status(StatusCode::kUsage,
                  "--traces writes a trace, --transpiled a page: expected only one of them");
  if (!flags.traces.empty()) return trace(tool, flags);
  if (flags.transpiled.empty() || flags.stats.empty())
    return Status(StatusCode::kUsage, "expected --transpiled and the trainers' files, or --traces");
  std::vector<jobs::TrainerStats> trainers;
  for (const std::string& path : flags.stats) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxStatsBytes));
    StatusOr<jobs::TrainerStats> stats = jobs::parse_stats_json(text);
    if (!stats.ok()) return std::move(stats).status().in_file(path);
    trainers.push_back(*std::move(stats));
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string page,
                            jobs::make_job_report(flags.transpiled, trainers));
  MILLRACE_RETURN_IF_ERROR(tool.write_output(page));
  tool.log(LogLevel::kInfo, jobs::job_summary(trainers));
  return kDone;
}

}  // namespace
}  // namespace millrace::tools

int millrace::tools::job_report(int argc, char** argv) {
  Tool tool({.name = "job-report",
             .purpose = std::string(kJobReportPurpose),
             .examples = {"job-report --transpiled OUT stats_0.json stats_1.json -o job.html",
                          "job-report --traces trainer_0.json server_0.json -o trace.json"},
             .exit_codes = {{0, "done"}},
             .notes = {"run-program --role trainer --stats FILE writes the statistics of a trainer",
                       "--profile FILE makes trainers and servers write traces"},
             .unread = {"--threads", "--seed", "--max-model-bytes", "--max-tensor-bytes"}});
  ReportFlags flags;
  tool.app()
      .add_option("--transpiled", flags.transpiled, "folder written by transpile-program")
      ->type_name("DIR");
  tool.app()
      .add_option("--traces", flags.traces,
                  "merge traces of trainers and servers into one, instead of writing a page")
      ->type_name("FILE...");
  tool.app()
      .add_option("stats", flags.stats, "statistics files of the trainers")
      ->type_name("FILE...");
  return tool.run(argc, argv, [&] { return report(tool, flags); });
}
