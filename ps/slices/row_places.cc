#include "ps/slices/row_places.h"

#include <algorithm>

#include "framework/base/errors.h"

namespace millrace::ps {

void add_places(std::span<const int64_t> rows, size_t part, std::vector<RowPlace>& places,
                const std::function<bool(int64_t)>& keep) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!keep || keep(rows[i])) places.push_back({rows[i], static_cast<uint32_t>(part), i});
  }
}

Status sort_places(std::vector<RowPlace>& places, const char* what) {
  std::ranges::sort(places, {}, &RowPlace::row);
  const auto twice = std::ranges::adjacent_find(places, {}, &RowPlace::row);
  if (twice == places.end()) return Ok();
  return InvalidData("two servers have {} {}", what, twice->row);
}

}  // namespace millrace::ps
