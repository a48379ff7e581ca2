#pragma once

#include <string>
#include <vector>

#include "framework/diff/diff.h"

namespace millrace {

/// A list of differences to print.
struct DiffReport {
  std::string name_a;
  std::string name_b;
  std::vector<Difference> differences;
  size_t limit = 0;  ///< show at most this many and count the others; 0 shows all
};

/// One line per difference; empty if there is none. Safe on terminals.
std::string diff_text(const DiffReport& report);
/// JSON document with the schema millrace.diff, version 1: same, count, differences.
std::string diff_json(const DiffReport& report);
/// A self-contained HTML page with a table of old and new values.
std::string diff_html(const DiffReport& report);

}  // namespace millrace
