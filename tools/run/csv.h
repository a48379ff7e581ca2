#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "framework/base/status.h"

namespace millrace::tools {

/// Lines of as many numbers each.
struct CsvTable {
  size_t columns = 0;         ///< >= 1
  std::vector<double> cells;  ///< line by line
};

/// Reads numbers separated by commas; blanks around them and empty lines do not matter, and a first
/// line that is no numbers is a header. Errors: kInvalidData with line and column.
StatusOr<CsvTable> parse_csv(std::string_view text);

}  // namespace millrace::tools
