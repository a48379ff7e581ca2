#include "tools/checkpoint/write_params.h"

#include <filesystem>
#include <string_view>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "framework/base/text.h"
#include "io/output_file.h"
#include "io/params.h"
#include "io/params_manifest.h"
#include "tools/checkpoint/byte_progress.h"
#include "tools/checkpoint/staged_folder.h"

namespace millrace::tools {

Status write_combined(const std::string& path, const std::vector<std::string>& names,
                      const LoadValue& load, Replace replace, bool sync) {
  MILLRACE_ASSIGN_OR_RETURN(io::OutputFile file, io::OutputFile::create(path, replace));
  for (const std::string& name : names) {
    MILLRACE_ASSIGN_OR_RETURN(const Value value, load(name));
    MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, io::combined_bytes({{name, &value}}));
    const std::string_view piece = bytes;
    MILLRACE_RETURN_IF_ERROR(file.write({&piece, 1}));
  }
  io::forget_manifests(path);
  return file.commit(sync);
}

Status write_separate(const std::string& target, const std::vector<std::string>& names,
                      const LoadValue& load, Replace replace, bool sync) {
  MILLRACE_ASSIGN_OR_RETURN(StagedFolder staged, StagedFolder::create(target));
  const std::string& folder = staged.path();
  for (const std::string& name : names) {
    MILLRACE_ASSIGN_OR_RETURN(const Value value, load(name));
    MILLRACE_RETURN_IF_ERROR(
        io::save_separate(folder, {{name, &value}}, {.replace = replace, .sync = sync}));
  }
  return staged.commit(sync);
}

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
