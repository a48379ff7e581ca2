#pragma once

#include <string>
#include <vector>

#include "framework/diff/diff.h"

namespace millrace {

/// A comparison that is to be shown.
struct DiffReport {
  std::string name_a;
  std::string name_b;
  std::vector<Difference> differences;
  size_t limit = 0;  ///< at most so many are shown, and the others counted; 0 shows all
};

/// One line a difference; empty if there is none. Safe on terminals.
std::string diff_text(const DiffReport& report);
/// Document with the schema millrace.diff, version 1: same, count, differences.
std::string diff_json(const DiffReport& report);
/// One self-contained page with a table of old and new values.
std::string diff_html(const DiffReport& report);

}  // namespace millrace
