// 16-bit floats of GPU kernels.

#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "framework/tensor/float16.h"
#include "kernels/gpu/functors/halves.h"

namespace millrace::gpu {
namespace {

// The types of the CUDA compiler have the bits and roundings of those of the processor.
TEST(GpuHalves, AreThoseOfTheProcessor) {
  const auto same = [](float a, float b) {
    return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
  };
  for (uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto narrow = static_cast<uint16_t>(bits);
    const float value = half_value(narrow);
    ASSERT_TRUE(same(value, Float16::decode(narrow))) << bits;
    ASSERT_TRUE(std::isnan(value) || half_bits(value) == narrow) << bits;
  }
  // all exponents, and mantissas on both sides of what rounds up
  for (uint32_t high = 0; high < 0x10000U; ++high) {
    for (const uint32_t low :
         {0U, 1U, 0xfffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      const float value = std::bit_cast<float>(high << 16U | low);
      ASSERT_EQ(half_bits(value), Float16(value).bits) << value;
      ASSERT_EQ(Brain(value).bits, Bfloat16(value).bits) << value;
      ASSERT_TRUE(same(Brain(value), Bfloat16(value))) << value;
    }
  }
}

}  // namespace
}  // namespace millrace::gpu
