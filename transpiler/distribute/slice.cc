#include "transpiler/distribute/slice.h"

#include <algorithm>

#include "framework/base/errors.h"

namespace millrace::transpiler {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace

StatusOr<std::vector<Slice>> slice_variable(llvm::ArrayRef<int64_t> dims, int64_t max_slices,
                                            int64_t min_elems) {
  if (max_slices < 1)
    return InvalidArgument("number of slices must be at least 1 (found {})", max_slices);
  if (min_elems < 1)
    return InvalidArgument("smallest slice must have at least 1 element (found {})", min_elems);
  for (const int64_t dim : dims) {
    if (dim <= 0)
      return InvalidArgument("a variable to be sliced needs positive dims (found {})", dim);
  }
  const std::optional<int64_t> total = element_count(dims);
  if (!total) return InvalidArgument("a variable to be sliced has more than 2^63 elements");
  const int64_t row = dims.size() < 2 ? 1 : *element_count(dims.drop_front());

  const int64_t wanted = std::min(max_slices, std::max<int64_t>(1, *total / min_elems));
  // Whole rows: the size is rounded up, so the count may shrink.
  const int64_t size = ceil_div(ceil_div(*total, wanted), row) * row;
  std::vector<Slice> slices;
  for (int64_t offset = 0; offset < *total; offset += size) {
    Slice slice;
    slice.offset = offset;
    slice.elems = std::min(size, *total - offset);
    if (!dims.empty()) {
      slice.dims.push_back(slice.elems / row);
      slice.dims.append(dims.begin() + 1, dims.end());
    }
    slices.push_back(std::move(slice));
  }
  if (slices.size() == 1) slices[0].dims.assign(dims.begin(), dims.end());
  return slices;
}

}  // namespace millrace::transpiler
