#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"

namespace millrace {

/// Severity of a finding. A program with an error must not be run; a program with warnings may be.
enum class Severity { kError, kWarning };

/// One problem that a check of a program found.
struct Finding {
  Severity severity = Severity::kError;
  /// Stable id of the rule, for example "undeclared-var"; docs/verifier.md lists them. Static text.
  std::string_view rule;
  /// Message, location (block, op index and type, slot, attr, var, the user's source line) and
  /// hint.
  Status status;
};

/// Collects findings up to a limit, so that a hostile program cannot make the report arbitrarily
/// large.
class FindingList {
 public:
  /// \param limit  number of findings kept; further findings are only counted
  explicit FindingList(size_t limit) : limit_(limit) {}

  /// Add a finding with one of the severities.
  void error(std::string_view rule, const Status& status) { add(Severity::kError, rule, status); }
  void warning(std::string_view rule, const Status& status) {
    add(Severity::kWarning, rule, status);
  }
  void add(Severity severity, std::string_view rule, Status status);

  /// Number of errors so far, including those beyond the limit.
  [[nodiscard]] size_t error_count() const { return errors_; }
  /// True if the limit is reached. Callers may then skip building messages.
  [[nodiscard]] bool full() const { return findings_.size() >= limit_; }
  /// Counts a finding without a message; for callers that checked full().
  void count_only(Severity severity);

  /// All findings, sorted by block and op; findings about the program or a block come before those
  /// of its ops, and otherwise the order of discovery is kept. If findings were dropped, a last one
  /// states how many.
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

/// All errors as one status: the first with its location and hint, the others as notes, at most
/// max_listed in all, then the number of further errors; ok if there is no error.
Status to_status(const std::vector<Finding>& findings, size_t max_listed = 20);

/// One paragraph per finding ("error: <location>: <message> [<rule>]", then lines "  note: ..." and
/// "  hint: ..."), at most max_listed, then the number of the remaining ones. Escaped for
/// terminals; empty if there are no findings.
std::string to_text(const std::vector<Finding>& findings, size_t max_listed = 20);

}  // namespace millrace
