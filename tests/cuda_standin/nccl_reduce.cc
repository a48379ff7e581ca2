#include "tests/cuda_standin/nccl_reduce.h"

#include <algorithm>
#include <cstring>

#include "framework/tensor/float16.h"
#include "kernels/gpu/cuda/nccl_api.h"

namespace millrace::standin {
namespace {

using namespace gpu::nccl;

// Small float types are combined as float.
template <typename T, typename Wide = T>
void combine_as(int op, std::byte* into, const std::byte* from, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    T a{};
    T b{};
    std::memcpy(&a, into + i * sizeof a, sizeof a);
    std::memcpy(&b, from + i * sizeof b, sizeof b);
    const auto x = static_cast<Wide>(a);
    const auto y = static_cast<Wide>(b);
    const auto result = op == kSum    ? static_cast<Wide>(x + y)
                        : op == kProd ? static_cast<Wide>(x * y)
                        : op == kMax  ? std::max(x, y)
                                      : std::min(x, y);
    a = static_cast<T>(result);
    std::memcpy(into + i * sizeof a, &a, sizeof a);
  }
}

}  // namespace

size_t bytes_of(int type) {
  switch (type) {
    case kInt8:
    case kUint8:
      return 1;
    case kFloat16:
    case kBfloat16:
      return 2;
    case kInt32:
    case kFloat32:
      return 4;
    case kInt64:
    case kFloat64:
      return 8;
    default:
      return 0;
  }
}

void combine(int type, int op, std::byte* into, const std::byte* from, size_t count) {
  switch (type) {
    case kInt8:
      return combine_as<int8_t>(op, into, from, count);
    case kUint8:
      return combine_as<uint8_t>(op, into, from, count);
    case kInt32:
      return combine_as<int32_t>(op, into, from, count);
    case kInt64:
      return combine_as<int64_t>(op, into, from, count);
    case kFloat16:
      return combine_as<Float16, float>(op, into, from, count);
    case kBfloat16:
      return combine_as<Bfloat16, float>(op, into, from, count);
    case kFloat32:
      return combine_as<float>(op, into, from, count);
    default:
      return combine_as<double>(op, into, from, count);
  }
}

}  // namespace millrace::standin
