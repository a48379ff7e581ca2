#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

#include "executor/gpu/gpu_ops.h"
#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "jobs/data/feed_files.h"
#include "jobs/run/session.h"
#include "tools/run/parallel.h"
#include "tools/run/run_once.h"
#include "tools/run/session_options.h"

namespace millrace::tools {
namespace {

using executor::NamedValues;

struct Case {
  RunOptions options;
  std::string output;
};

// \param all  options of the command
StatusOr<Case> parse_case(const std::string& line, const RunOptions& all) {
  const auto fields = nlohmann::json::parse(line, nullptr, false);
  if (!fields.is_object()) return InvalidData("expected a JSON object, found '{}'", line);
  Case result;
  result.options.devices = all.gpu == nullptr ? "cpu:1" : all.devices;
  result.options.gpu = all.gpu;
  result.options.debug_memory = all.debug_memory;
  result.options.optimize = all.optimize;
  result.options.precision = all.precision;
  result.options.inter_op = all.inter_op;
  const auto text = [&](const char* key, std::string& to) {
    if (!fields.contains(key)) return true;
    if (!fields[key].is_string()) return false;
    to = fields[key].get<std::string>();
    return true;
  };
  std::string feed;
  if (!text("program", result.options.program) || !text("feed", feed) ||
      !text("output", result.output) || !text("params", result.options.params) ||
      !text("startup", result.options.startup) || !text("model_dir", result.options.model_dir))
    return InvalidData("expected strings in '{}'", line);
  if (!feed.empty()) result.options.feeds.push_back(feed);
  if (fields.contains("fetch")) {
    for (const auto& name : fields["fetch"]) {
      if (!name.is_string()) return InvalidData("fetch: expected a list of names in '{}'", line);
      result.options.fetches.push_back(name.get<std::string>());
    }
  }
  return result;
}

Status run_case(const Tool& tool, const RunOptions& all, const std::string& line,
                const std::shared_ptr<const executor::Runtime>& runtime, int64_t& ops_on_cpu) {
  MILLRACE_ASSIGN_OR_RETURN(const Case one, parse_case(line, all));
  MILLRACE_ASSIGN_OR_RETURN(const jobs::SessionOptions how, session_options(tool, one.options));
  MILLRACE_ASSIGN_OR_RETURN(jobs::Session session, jobs::open_session(how, runtime));
  MILLRACE_ASSIGN_OR_RETURN(const jobs::FeedOptions feed, feed_options(tool, one.options));
  MILLRACE_ASSIGN_OR_RETURN(const NamedValues feeds, jobs::read_feeds(feed, session.program()));
  const std::vector<std::string> fetches = jobs::wanted_fetches(one.options.fetches, session);
  std::vector<Value> values;
  if (Status status = session.prepared->run(feeds, fetches, values); !status.ok())
    return std::move(status).in_file(session.name);
  if (session.prepared->gpu() != nullptr) ops_on_cpu = session.prepared->gpu()->counts().on_cpu;
  NamedValues results;
  for (size_t i = 0; i < fetches.size(); ++i) results[fetches[i]] = std::move(values[i]);
  if (one.output.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, io::npz_bytes(results));
  return write_file_atomically(one.output, bytes, Replace::kYes);
}

}  // namespace

StatusOr<int> run_batch(Tool& tool, const RunOptions& options,
                        const std::shared_ptr<const executor::Runtime>& runtime,
                        const SignalWatch& watch) {
  if (options.gpu == nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(const int devices, device_count(options));
    if (devices > 1 && options.devices.find(':') != std::string::npos) {
      return Status(StatusCode::kUsage,
                    "--devices " + options.devices + ": the cases of --batch run on one device");
    }
  }
  std::ifstream list(options.batch);
  if (!list) return NotFound("cannot open '{}'", options.batch);
  std::string line;
  while (!watch.stopped() && std::getline(list, line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    int64_t ops_on_cpu = 0;
    const Status status = run_case(tool, options, line, runtime, ops_on_cpu);
    nlohmann::json answer = {{"ok", status.ok()}};
    if (!status.ok()) answer["error"] = status.to_string();
    if (ops_on_cpu > 0) answer["ops_on_cpu"] = ops_on_cpu;
    const std::string text =
        answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  if (watch.seen() == 0) return kDone;
  tool.log(LogLevel::kWarning, fmt::format("stopped by signal {}", watch.seen()));
  return watch.exit_code();
}

}  // namespace millrace::tools
