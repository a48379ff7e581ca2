#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/strided.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

namespace millrace::kernels {
namespace {

// Sizes and strides of the two dims of a slice and of the sliced dim.
struct FocusDims {
  int64_t rows, columns, slices;
  int64_t row_step, column_step, slice_step;
};

FocusDims focus_dims(llvm::ArrayRef<int64_t> dims, size_t axis) {
  const Dims strides = row_major(dims);
  const size_t r = axis == 1 ? 2 : 1;
  const size_t c = axis == 3 ? 2 : 3;
  return {dims[r], dims[c], dims[axis], strides[r], strides[c], strides[axis]};
}

// Marks the largest element, then the largest one in the remaining rows and columns, and so on; the
// first one for ties.
template <typename T>
void mark_largest(const FocusDims& d, const T* slice, T* image, std::vector<int64_t>& order) {
  order.resize(static_cast<size_t>(d.rows * d.columns));
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto value = [&](int64_t at) {
    return slice[at / d.columns * d.row_step + at % d.columns * d.column_step];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return value(a) > value(b); });
  std::vector<bool> row_taken(static_cast<size_t>(d.rows));
  std::vector<bool> column_taken(static_cast<size_t>(d.columns));
  for (const int64_t at : order) {
    const auto row = static_cast<size_t>(at / d.columns);
    const auto column = static_cast<size_t>(at % d.columns);
    if (row_taken[row] || column_taken[column]) continue;
    row_taken[row] = column_taken[column] = true;
    T* const place = image + at / d.columns * d.row_step + at % d.columns * d.column_step;
    for (int64_t k = 0; k < d.slices; ++k) place[k * d.slice_step] = T(1);
  }
}

StatusOr<Kernel> similarity_focus(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const auto axis = static_cast<size_t>(op.attr<int32_t>("axis"));
  const auto indexes = op.attr<std::vector<int64_t>>("indexes");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    if (from.rank() != 4 || axis < 1 || axis > 3)
      return ctx.error(
          "X must have four dims and attribute 'axis' name one of the last three, "
          "found {} and {}",
          describe(from), axis);
    const FocusDims dims = focus_dims(from.dims(), axis);
    for (const int64_t index : indexes) {
      if (index < 0 || index >= dims.slices)
        return ctx.error("attribute 'indexes' has {}, expected a number in [0, {})", index,
                         dims.slices);
    }
    const Tensor copy = from.share();
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, out, copy));
    if (to->shares_memory_with(copy)) return ctx.error("Out must not be X");
    fill_zero(ctx.device(), *to);
    return dispatch<FloatTypes>(copy.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      std::vector<int64_t> order;
      const int64_t image = copy.dim(0) == 0 ? 0 : copy.numel() / copy.dim(0);
      for (int64_t b = 0; b < copy.dim(0); ++b) {
        for (const int64_t index : indexes)
          mark_largest(dims, copy.data<T>() + b * image + index * dims.slice_step,
                       to->data<T>() + b * image, order);
      }
      return Ok();
    });
  });
}

}  // namespace

void add_vision_similarity_focus(KernelRegistry& registry) {
  registry.add("similarity_focus", similarity_focus);
}

}  // namespace millrace::kernels
