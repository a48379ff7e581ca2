#include "jobs/run/batch.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "executor/gpu/gpu_ops.h"
#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "io/npz.h"
#include "jobs/config/json_fields.h"
#include "jobs/data/feed_files.h"

namespace millrace::jobs {

StatusOr<BatchCase> parse_batch_case(const std::string& line) {
  StatusOr<nlohmann::json> object = parse_json_object(line);
  if (!object.ok()) return InvalidData("{}; the line is '{}'", object.status().message(), line);
  BatchCase result;
  JsonFields fields(*object, "");
  Status status = fields.text("program", result.program)
                      .text("startup", result.startup)
                      .text("params", result.params)
                      .text("model_dir", result.model_dir)
                      .text("feed", result.feed)
                      .strings("fetch", result.fetches)
                      .text("output", result.output)
                      .finish();
  if (!status.ok()) return InvalidData("{}; the line is '{}'", status.message(), line);
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
