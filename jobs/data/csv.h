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

/// Reads numbers separated by commas. Spaces around them, empty lines and a byte order mark are
/// ignored. A first line is a header if no cell begins like a number, also in quotes.
/// \param text  UTF-8
/// Errors: kInvalidData with line and column (from 0).
StatusOr<CsvTable> parse_csv(std::string_view text);

}  // namespace millrace::jobs
