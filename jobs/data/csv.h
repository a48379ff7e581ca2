#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "framework/base/status.h"

namespace millrace::jobs {

/// Lines that all have the same number of numbers.
struct CsvTable {
  size_t columns = 0;         ///< >= 1
  std::vector<double> cells;  ///< line by line
};

/// Reads numbers separated by commas. Spaces around them and empty lines are ignored. A first line
/// without any number is a header. Errors: kInvalidData with line and column.
StatusOr<CsvTable> parse_csv(std::string_view text);

}  // namespace millrace::jobs
