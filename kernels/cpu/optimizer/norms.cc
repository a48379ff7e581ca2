#include "kernels/cpu/optimizer/norms.h"

#include <algorithm>

#include <llvm/ADT/SmallVector.h>

#include "kernels/cpu/lane_sum.h"
#include "kernels/dispatch.h"

namespace millrace::kernels::optimizer {
namespace {

constexpr int64_t kNormsBlock = 16384;

template <typename T>
double squares(const T* x, int64_t count, CpuDevice& device) {
  const int64_t blocks = (count + kNormsBlock - 1) / kNormsBlock;
  llvm::SmallVector<double, 64> sums(static_cast<size_t>(blocks));
  device.parallel_for(blocks, 2, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const T* const block = x + b * kNormsBlock;
      sums[static_cast<size_t>(b)] = static_cast<double>(
          lane_sum<Compute<T>>(std::min(kNormsBlock, count - b * kNormsBlock), [&](int64_t i) {
            const auto value = static_cast<Compute<T>>(block[i]);
            return value * value;
          }));
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace

double squared_norm(const Tensor& tensor, CpuDevice& device) {
  double total = 0;
  (void)dispatch<AllFloatTypes>(tensor.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    total = squares(tensor.data<T>(), tensor.numel(), device);
    return Ok();
  });
  return total;
}

}  // namespace millrace::kernels::optimizer
