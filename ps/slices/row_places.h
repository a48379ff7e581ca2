#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "framework/base/status.h"

namespace millrace::ps {

/// Where a row of a table is, parts of which are on several servers.
struct RowPlace {
  int64_t row = 0;      ///< row number or key
  uint32_t part = 0;    ///< index of the part
  size_t position = 0;  ///< of the row in its part
};

/// Adds the places of the rows of one part. \param keep  false for rows to leave out; empty: all
void add_places(std::span<const int64_t> rows, size_t part, std::vector<RowPlace>& places,
                const std::function<bool(int64_t)>& keep = {});

/// Sorts places by row. \param what  of the rows in the message: "row", "key"
/// Errors: kInvalidData naming a row that occurs twice.
Status sort_places(std::vector<RowPlace>& places, const char* what = "row");

}  // namespace millrace::ps
