#include "tools/common/log.h"

#include <ctime>

#include <fmt/format.h>

#include "framework/base/json_writer.h"
#include "framework/base/text.h"

namespace millrace::tools {
namespace {

std::string_view level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kDebug:
      return "debug";
  }
  return "info";
}

}  // namespace

std::string utc_time(std::chrono::system_clock::time_point when) {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  const int64_t ms = duration_cast<milliseconds>(when.time_since_epoch()).count();
  const std::time_t seconds = ms / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     ms % 1000);
}

std::string log_line(std::chrono::system_clock::time_point when, LogLevel level,
                     std::string_view tool, std::string_view text, bool json) {
  if (!json)
    return fmt::format("{} {} {}: {}\n", utc_time(when), level_name(level), tool, printable(text));
  JsonWriter out(0);
  out.begin_object();
  out.member("time", utc_time(when)).member("level", level_name(level)).member("tool", tool);
  return out.member("text", text).end_object().take();
}

void add_location(JsonWriter& out, const Status& status) {
  const Location& at = status.location();
  const auto text = [&](const char* key, const std::string& value) {
    if (!value.empty()) out.member(key, value);
  };
  if (at.block >= 0) out.member("block", at.block);
  if (at.op >= 0) out.member("op_index", at.op);
  text("op_type", at.op_type);
  text("slot", at.slot);
  if (at.slot_index >= 0) out.member("slot_index", at.slot_index);
  text("attr", at.attr);
  text("var", at.var);
  text("source", at.source);
  text("hint", status.hint());
}

std::string error_json(const Status& status) {
  const Location& at = status.location();
  JsonWriter out;
  out.begin_object();
  out.key("schema").begin_object().member("name", "millrace.error").member("version", 1);
  out.end_object().key("error").begin_object();
  out.member("code", status_code_name(status.code())).member("message", status.message());
  if (!at.file.empty()) out.member("file", at.file);
  add_location(out, status);
  if (!status.notes().empty()) {
    out.key("notes").begin_array();
    for (const std::string& note : status.notes()) out.value(note);
    out.end_array();
  }
  return out.end_object().end_object().take();
}

}  // namespace millrace::tools
