#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace millrace {

enum class LogLevel { kError, kWarning, kInfo, kDebug };

/// Receives log lines, without a line end. Must not be empty. Called from several threads at once.
using LogSink = std::function<void(LogLevel level, std::string_view line)>;

/// Drops all lines.
inline void ignore_log(LogLevel /*level*/, std::string_view /*line*/) {}

/// A function that logs lines with that level.
inline std::function<void(const std::string&)> log_at(LogSink log, LogLevel level) {
  return [log = std::move(log), level](const std::string& line) { log(level, line); };
}

}  // namespace millrace
