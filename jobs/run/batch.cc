#include "jobs/run/batch.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "executor/gpu/gpu_ops.h"
#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "io/npz.h"
#include "jobs/data/feed_files.h"

namespace millrace::jobs {

StatusOr<BatchCase> parse_batch_case(const std::string& line) {
  const auto fields = nlohmann::json::parse(line, nullptr, false);
  if (!fields.is_object()) return InvalidData("expected a JSON object, found '{}'", line);
  BatchCase result;
  const auto text = [&](const char* key, std::string& to) {
    if (!fields.contains(key)) return true;
    if (!fields[key].is_string()) return false;
    to = fields[key].get<std::string>();
    return true;
  };
  if (!text("program", result.program) || !text("feed", result.feed) ||
      !text("output", result.output) || !text("params", result.params) ||
      !text("startup", result.startup) || !text("model_dir", result.model_dir))
    return InvalidData("expected strings in '{}'", line);
  if (fields.contains("fetch")) {
    for (const auto& name : fields["fetch"]) {
      if (!name.is_string()) return InvalidData("fetch: expected a list of names in '{}'", line);
      result.fetches.push_back(name.get<std::string>());
    }
  }
  return result;
}

Status run_batch_case(const BatchCase& one, SessionOptions session, FeedOptions feed,
                      const std::shared_ptr<const executor::Runtime>& runtime,
                      BatchResult& result) {
  session.program = one.program;
  session.startup = one.startup;
  session.params = one.params;
  session.model_dir = one.model_dir;
  session.fetches = one.fetches;
  if (!one.feed.empty()) feed.values = {one.feed};
  MILLRACE_ASSIGN_OR_RETURN(Session opened, open_session(session, runtime));
  MILLRACE_ASSIGN_OR_RETURN(const executor::NamedValues feeds, read_feeds(feed, opened.program()));
  const std::vector<std::string> fetches = wanted_fetches(one.fetches, opened);
  std::vector<Value> values;
  if (Status status = opened.prepared->run(feeds, fetches, values); !status.ok())
    return std::move(status).in_file(opened.name);
  if (opened.prepared->gpu() != nullptr)
    result.ops_on_cpu = opened.prepared->gpu()->counts().on_cpu;
  executor::NamedValues results;
  for (size_t i = 0; i < fetches.size(); ++i) results[fetches[i]] = std::move(values[i]);
  if (one.output.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, io::npz_bytes(results));
  return write_file_atomically(one.output, bytes, Replace::kYes);
}

}  // namespace millrace::jobs
