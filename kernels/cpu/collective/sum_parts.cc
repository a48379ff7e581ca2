#include "kernels/cpu/collective/sum_parts.h"

#include <algorithm>
#include <functional>

#include "kernels/cpu/collective/combine_block.h"
#include "kernels/dispatch.h"

namespace millrace::kernels {
namespace {

// In place, so that each element is read and written once and the loop vectorizes.
template <typename T>
void sum_two_in_place(T* a, T* b, int64_t count) {
  using C = Compute<T>;
  for (int64_t i = 0; i < count; ++i) {
    const T sum = static_cast<T>(static_cast<C>(a[i]) + static_cast<C>(b[i]));
    a[i] = sum;
    b[i] = sum;
  }
}

// The result may be one of the parts.
template <typename T>
void sum_two(const T* a, const T* b, T* result, int64_t count) {
  using C = Compute<T>;
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i)
    result[i] = static_cast<T>(static_cast<C>(a[i]) + static_cast<C>(b[i]));
}

}  // namespace

Status sum_parts(DType dtype, llvm::ArrayRef<const std::byte*> parts,
                 llvm::ArrayRef<std::byte*> results, int64_t count) {
  return dispatch<AllNumberTypes>(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (parts.size() == 2 && results.size() == 2 && parts[0] == results[0] &&
        parts[1] == results[1]) {
      sum_two_in_place(reinterpret_cast<T*>(results[0]), reinterpret_cast<T*>(results[1]), count);
      return Ok();
    }
    if (parts.size() == 2 && results.size() == 1) {
      sum_two(reinterpret_cast<const T*>(parts[0]), reinterpret_cast<const T*>(parts[1]),
              reinterpret_cast<T*>(results[0]), count);
      return Ok();
    }
    for (int64_t begin = 0; begin < count; begin += kCombinedBlock)
      combine_block<T>(std::plus<>(), parts, results, begin,
                       std::min(kCombinedBlock, count - begin));
    return Ok();
  });
}

}  // namespace millrace::kernels
