#pragma once

#include <string>

namespace millrace::tools {

/// Ends the process after a time unless the object is destroyed before: SIGALRM writes the texts
/// and exits. It needs no thread and no memory, so that it also ends a process that has neither. At
/// most one object at a time.
class TimeLimit {
 public:
  /// \param seconds  0: no limit
  /// \param error    written to standard error, then `output` to standard output
  /// \param code     exit code
  TimeLimit(double seconds, std::string error, std::string output, int code);
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;
  ~TimeLimit();

 private:
  bool armed_ = false;
};

}  // namespace millrace::tools
