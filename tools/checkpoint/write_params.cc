#include "tools/checkpoint/write_params.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "framework/base/text.h"

namespace millrace::tools {

Status report_written(Tool& tool, const CheckpointFlags& flags, const WriteReport& report) {
  const std::string& output = tool.common().output;
  if (tool.common().json) {
    JsonWriter out;
    out.begin_object();
    out.key("schema").begin_object().member("name", "millrace.checkpoint_" + report.command);
    out.member("version", 1).end_object().member("dry_run", flags.dry_run);
    out.member("from", report.from).member("to", report.to).member("output", output);
    if (report.ranks) out.member("ranks", static_cast<int64_t>(*report.ranks));
    out.member("vars", static_cast<uint64_t>(report.vars)).member("bytes", report.bytes);
    return tool.write_file("-", out.end_object().take());
  }
  const std::string ranks = report.ranks ? fmt::format(", {} ranks", *report.ranks) : "";
  const std::string text = fmt::format("{} -> {}, {} vars, {}{}", report.from, report.to,
                                       report.vars, byte_text(report.bytes), ranks);
  if (flags.dry_run) {
    return tool.write_file("-", fmt::format("would write {}: {}\n", printable(output), text));
  }
  tool.log(LogLevel::kInfo, text);
  return Ok();
}

jobs::WriteOptions write_options(const Tool& tool, const CheckpointFlags& flags,
                                 ByteProgress& progress) {
  jobs::WriteOptions options;
  options.replace = tool.common().force ? Replace::kYes : Replace::kNo;
  options.sync = flags.sync;
  options.step = std::max<int64_t>(flags.source.step, 0);
  options.calls = flags.source.calls;
  options.proceed = flags.source.proceed;
  options.progress = progress.callback();
  return options;
}

Status check_writable(const Tool& tool, const std::vector<std::string>& paths) {
  if (tool.common().force) return Ok();
  std::error_code error;
  for (const std::string& path : paths) {
    if (!std::filesystem::exists(path, error)) continue;
    return Status(StatusCode::kUsage, "output exists already")
        .in_file(path)
        .with_hint("--force replaces existing outputs");
  }
  return Ok();
}

}  // namespace millrace::tools
