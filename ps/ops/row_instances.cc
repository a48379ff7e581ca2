#include "ps/ops/row_instances.h"

#include <algorithm>
#include <cstdint>

#include <llvm/ADT/ArrayRef.h>

namespace millrace::ps {

StatusOr<std::vector<size_t>> instances_of(const Tensor& ids) {
  std::vector<size_t> result(static_cast<size_t>(ids.numel()));
  const int64_t rows = ids.rank() == 0 ? 1 : ids.dim(0);
  const size_t each =
      rows == 0 ? 1 : std::max<size_t>(1, result.size() / static_cast<size_t>(rows));
  std::vector<size_t> of_row(static_cast<size_t>(rows));
  for (size_t row = 0; row < of_row.size(); ++row) of_row[row] = row;
  if (!ids.lod().empty()) {
    MILLRACE_RETURN_IF_ERROR(ids.lod().check(rows));
    const llvm::ArrayRef<int64_t> level = ids.lod().last();
    for (size_t i = 0; i + 1 < level.size(); ++i) {
      for (int64_t at = level[i]; at < level[i + 1]; ++at) of_row[static_cast<size_t>(at)] = i;
    }
  }
  for (size_t i = 0; i < result.size(); ++i) result[i] = of_row[i / each];
  return result;
}

}  // namespace millrace::ps
