#include "jobs/checkpoint/verify.h"

#include <memory>

#include "framework/base/json_writer.h"
#include "tools/checkpoint/byte_progress.h"
#include "tools/checkpoint/options.h"
#include "tools/common/flag_names.h"
#include "tools/common/program_options.h"

namespace millrace::tools {
namespace {

std::string verify_json(const jobs::VerifyOutcome& outcome) {
  JsonWriter out;
  out.begin_object();
  out.key("schema").begin_object().member("name", "millrace.checkpoint_verify");
  out.member("version", 1).end_object().member("ok", outcome.wrong.empty());
  out.key("looked_at").begin_array();
  for (const std::string& path : outcome.looked_at) out.value(path);
  out.end_array().key("findings").begin_array();
  for (const Status& status : outcome.wrong) {
    out.begin_object().member("code", status_code_name(status.code()));
    out.member("message", with_flags(status).message());
    if (!status.location().file.empty()) out.member("file", status.location().file);
    if (!status.location().var.empty()) out.member("var", status.location().var);
    out.end_object();
  }
  return out.end_array().end_object().take();
}

}  // namespace

StatusOr<int> checkpoint_verify(Tool& tool, const CheckpointFlags& flags) {
  std::unique_ptr<Program> program;
  // A combined file needs the program for its names.
  if (!flags.source.program.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(program, read_program(tool, flags.source.program));
  }
  const auto progress = [&](const std::string& folder, uint64_t bytes) {
    const auto shown = progress_pointer(tool, flags, "verify " + folder, bytes);
    return [shown](uint64_t more) { shown->add(more); };
  };
  jobs::VerifyOutcome outcome;
  for (const std::string& path : flags.paths) {
    MILLRACE_RETURN_IF_ERROR(
        jobs::verify_path(flags.source, path, program.get(), progress, outcome));
  }
  MILLRACE_RETURN_IF_ERROR(flags.source.proceed());
  for (const Status& status : outcome.wrong) tool.report(status);
  if (tool.common().json) MILLRACE_RETURN_IF_ERROR(tool.write_output(verify_json(outcome)));
  if (!outcome.wrong.empty()) return kAnswerIsNo;
  for (const std::string& path : outcome.looked_at) tool.log(LogLevel::kInfo, path + " verifies");
  return kDone;
}

}  // namespace millrace::tools
