#include <string>
#include <vector>

#include <fmt/format.h>

#include "framework/base/json_writer.h"
#include "framework/base/text.h"
#include "jobs/checkpoint/compare.h"
#include "tools/checkpoint/byte_progress.h"
#include "tools/checkpoint/options.h"
#include "tools/common/program_options.h"

namespace millrace::tools {
namespace {

std::string diff_text(const std::vector<jobs::ValueDifference>& differences) {
  std::string out;
  for (const jobs::ValueDifference& each : differences) {
    out += printable(each.name) + ": ";
    out += each.what.empty() ? fmt::format("{} elements differ, by at most {:.6g}, at element {}",
                                           each.count, each.largest, each.at)
                             : printable(each.what);
    out += '\n';
  }
  return out;
}

std::string diff_json(const std::vector<jobs::ValueDifference>& differences, size_t compared) {
  JsonWriter out;
  out.begin_object();
  out.key("schema").begin_object().member("name", "millrace.checkpoint_diff");
  out.member("version", 1).end_object().member("same", differences.empty());
  out.member("compared", static_cast<uint64_t>(compared)).key("differences").begin_array();
  for (const jobs::ValueDifference& each : differences) {
    out.begin_object().member("name", each.name);
    if (!each.what.empty()) {
      out.member("what", each.what);
    } else {
      out.member("elements", each.count).member("largest", each.largest).member("at", each.at);
    }
    out.end_object();
  }
  return out.end_array().end_object().take();
}

}  // namespace

StatusOr<int> checkpoint_diff(Tool& tool, const CheckpointFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(const auto a, jobs::open_source(flags.source, flags.paths[0]));
  MILLRACE_ASSIGN_OR_RETURN(const auto b, jobs::open_source(flags.source, flags.paths[1]));
  MILLRACE_RETURN_IF_ERROR(jobs::check_read(flags.source, {a->form(), b->form()}));
  jobs::SourceComparison found;
  {
    ByteProgress progress = progress_of(tool, flags, "diff", a->bytes());
    MILLRACE_ASSIGN_OR_RETURN(found, jobs::compare_sources(*a, *b,
                                                           {.tolerance = {flags.rtol, flags.atol},
                                                            .wanted = name_globs(flags.vars),
                                                            .proceed = flags.source.proceed,
                                                            .progress = progress.callback()}));
  }
  MILLRACE_RETURN_IF_ERROR(tool.write_output(tool.common().json
                                                 ? diff_json(found.differences, found.compared)
                                                 : diff_text(found.differences)));
  return found.differences.empty() ? kDone : kAnswerIsNo;
}

}  // namespace millrace::tools
