#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "framework/base/json_writer.h"
#include "framework/base/log.h"
#include "framework/base/status.h"

namespace millrace::tools {

/// "2026-11-21T09:44:13.123Z", UTC with milliseconds.
std::string utc_time(std::chrono::system_clock::time_point when);

/// One log line: "<time> <level> <tool>: <text>", or a JSON object. Control characters in the text
/// are escaped, so that names read from files cannot control a terminal.
std::string log_line(std::chrono::system_clock::time_point when, LogLevel level,
                     std::string_view tool, std::string_view text, bool json);

/// An error as a JSON document with code, message, file, block, op_index, op_type, slot,
/// slot_index, attr, var, hint and notes; unknown fields are absent.
std::string error_json(const Status& status);

/// Writes the members of `error_json` that say where an error is, from "block" to "source", and
/// "hint", into the open object; unknown ones are left out.
void add_location(JsonWriter& out, const Status& status);

}  // namespace millrace::tools
