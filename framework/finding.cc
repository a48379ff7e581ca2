#include "framework/finding.h"

#include <algorithm>
#include <tuple>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace {

void FindingList::count_only(Severity severity) {
  if (severity == Severity::kError) {
    ++errors_;
    ++dropped_errors_;
  } else {
    ++dropped_warnings_;
  }
}

void FindingList::add(Severity severity, std::string_view rule, Status status) {
  if (full()) {
    count_only(severity);
    return;
  }
  if (severity == Severity::kError) ++errors_;
  findings_.push_back(Finding{severity, rule, std::move(status)});
}

std::vector<Finding> FindingList::take() {
  std::stable_sort(findings_.begin(), findings_.end(), [](const Finding& a, const Finding& b) {
    const Location& left = a.status.location();
    const Location& right = b.status.location();
    return std::tie(left.block, left.op) < std::tie(right.block, right.op);
  });
  if (dropped_errors_ + dropped_warnings_ > 0) {
    const Severity severity = dropped_errors_ > 0 ? Severity::kError : Severity::kWarning;
    findings_.push_back(Finding{severity, "more-findings",
                                InvalidProgram("{} more errors and {} more warnings are not listed",
                                               dropped_errors_, dropped_warnings_)});
  }
  return std::move(findings_);
}

bool has_errors(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& f) { return f.severity == Severity::kError; });
}

Status first_error(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    if (finding.severity == Severity::kError) return finding.status;
  }
  return Ok();
}

Status to_status(const std::vector<Finding>& findings, size_t max_listed) {
  Status result;
  size_t errors = 0;
  for (const Finding& finding : findings) {
    if (finding.severity != Severity::kError) continue;
    ++errors;
    if (errors == 1) {
      result = finding.status;
    } else if (errors <= max_listed) {
      const std::string place = finding.status.location().to_string();
      result = std::move(result).with_note("also " + (place.empty() ? "" : place + ": ") +
                                           finding.status.message());
    }
  }
  if (errors > max_listed && max_listed > 0) {
    result =
        std::move(result).with_note("and " + std::to_string(errors - max_listed) + " more errors");
  }
  return result;
}

std::string to_text(const std::vector<Finding>& findings, size_t max_listed) {
  std::string out;
  size_t listed = 0;
  for (const Finding& finding : findings) {
    if (listed == max_listed) break;
    ++listed;
    const Location& where = finding.status.location();
    const std::string place = where.to_string();
    out += finding.severity == Severity::kError ? "error: " : "warning: ";
    if (!place.empty()) out += place + ": ";
    out += printable(finding.status.message());
    out += " [" + std::string(finding.rule) + "]\n";
    if (!where.source.empty()) out += "  note: created at " + printable(where.source) + "\n";
    for (const std::string& note : finding.status.notes())
      out += "  note: " + printable(note) + "\n";
    if (!finding.status.hint().empty()) out += "  hint: " + printable(finding.status.hint()) + "\n";
  }
  if (findings.size() > listed)
    out += "and " + std::to_string(findings.size() - listed) + " more findings\n";
  return out;
}

}  // namespace millrace
