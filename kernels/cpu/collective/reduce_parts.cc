#include "kernels/cpu/collective/reduce_parts.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/collective/combine_block.h"
#include "kernels/cpu/collective/sum_parts.h"
#include "kernels/dispatch.h"

namespace millrace::kernels {
namespace reduce_parts_kernels {
namespace {

struct ReducePartsProduct {
  template <typename C>
  C operator()(C a, C b) const {
    return a * b;
  }
};
// `a != a` is true for NaN only.
struct Largest {
  template <typename C>
  C operator()(C a, C b) const {
    return a < b || b != b ? b : a;
  }
};
struct Smallest {
  template <typename C>
  C operator()(C a, C b) const {
    return b < a || b != b ? b : a;
  }
};

template <typename Op>
Status combine(DType dtype, Op op, llvm::ArrayRef<const std::byte*> parts,
               llvm::ArrayRef<std::byte*> results, int64_t count) {
  return dispatch<AllNumberTypes>(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t begin = 0; begin < count; begin += kCombinedBlock)
      combine_block<T>(op, parts, results, begin, std::min(kCombinedBlock, count - begin));
    return Ok();
  });
}

}  // namespace
}  // namespace reduce_parts_kernels

const char* reduction_name(Reduction reduction) {
  constexpr std::array<const char*, 4> kNames = {"sum", "prod", "max", "min"};
  return kNames[static_cast<size_t>(reduction)];
}

bool is_combined(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBfloat16:
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kInt8:
    case DType::kUint8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      return true;
    default:
      return false;
  }
}

Status reduce_parts(DType dtype, Reduction reduction, llvm::ArrayRef<const std::byte*> parts,
                    llvm::ArrayRef<std::byte*> results, int64_t count) {
  using namespace reduce_parts_kernels;
  switch (reduction) {
    case Reduction::kSum:
      return sum_parts(dtype, parts, results, count);
    case Reduction::kProd:
      return combine(dtype, ReducePartsProduct(), parts, results, count);
    case Reduction::kMax:
      return combine(dtype, Largest(), parts, results, count);
    case Reduction::kMin:
      break;
  }
  return combine(dtype, Smallest(), parts, results, count);
}

}  // namespace millrace::kernels
