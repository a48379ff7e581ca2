#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"

namespace millrace {

/// How much a finding weighs: an error makes a program unfit to run, a warning does not.
enum class Severity { kError, kWarning };

/// One fault that a check of a program found.
struct Finding {
  Severity severity = Severity::kError;
  /// Stable id of the rule, for example "undeclared-var"; docs/verifier.md lists them. Static text.
  std::string_view rule;
  /// Message, location (block, op index and type, slot, attr, var, the user's source line) and
  /// hint.
  Status status;
};

/// Collects findings up to a limit, so that a hostile program cannot make the report larger than
/// itself.
class FindingList {
 public:
  /// \param limit  number of findings kept; further ones are only counted
  explicit FindingList(size_t limit) : limit_(limit) {}

  void error(std::string_view rule, const Status& status) { add(Severity::kError, rule, status); }
  void warning(std::string_view rule, const Status& status) {
    add(Severity::kWarning, rule, status);
  }
  void add(Severity severity, std::string_view rule, Status status);

  /// Errors so far, those beyond the limit included.
  [[nodiscard]] size_t error_count() const { return errors_; }
  /// True if nothing more is kept; callers may then skip building messages.
  [[nodiscard]] bool full() const { return findings_.size() >= limit_; }
  /// Counts a finding without a message; for callers that asked full().
  void count_only(Severity severity);

  /// Everything found, sorted by block and op (facts of the program and of a block come before its
  /// ops), else in order of discovery. If findings were dropped, a last one says how many.
  std::vector<Finding> take();

 private:
  size_t limit_;
  size_t errors_ = 0;
  size_t dropped_errors_ = 0;
  size_t dropped_warnings_ = 0;
  std::vector<Finding> findings_;
};

/// True if one of the findings is an error.
bool has_errors(const std::vector<Finding>& findings);

/// The first error; ok if there is none.
Status first_error(const std::vector<Finding>& findings);

/// All errors as one status: the first with its place and hint, the next as notes up to max_listed
/// in all, then how many more there are; ok if there is no error.
Status to_status(const std::vector<Finding>& findings, size_t max_listed = 20);

/// One paragraph a finding ("error: place: message [rule]", "  note: ...", "  hint: ..."),
/// max_listed at most, then a count of the rest. Escaped for terminals; empty if there are no
/// findings.
std::string to_text(const std::vector<Finding>& findings, size_t max_listed = 20);

}  // namespace millrace
