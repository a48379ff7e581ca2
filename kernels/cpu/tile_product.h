#pragma once

#include <cstdint>

#include "framework/base/status.h"
#include "kernels/device.h"

/// Products of float matrices on processors that multiply tiles of bfloat16 (Intel's AMX), with the
/// precision of float: each factor is cut into three bfloat16 numbers that add up to it exactly,
/// and of the nine products of their parts the six that float can tell from nothing are summed in
/// float. Six of them still take a third of the time that float takes on such a processor.
///
/// Results are as near the exact sum as a sum of float products (measured: nearer). They depend on
/// neither the number of threads nor on other rows and columns, but for blocks of 32 of them with
/// an infinite number, NaN, or one above 2^127: those are multiplied in float, slowly. Numbers
/// below 2^-103 lose what is below 2^-126 (an error of at most 2^-116 a product; where the other
/// factor's block has numbers above 2^10, they are multiplied in float, too), and so do sums.
/// See docs/decisions/0020-tile-products.md.
namespace millrace::kernels::tiles {

/// c [rows, columns] = max?(alpha * a [rows, inner] x b [inner, columns] + bias + summand, 0).
struct Shape {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t inner = 0;
  bool a_transposed = false;  ///< memory holds [inner, rows]
  bool b_transposed = false;  ///< memory holds [columns, inner]
  int64_t a_stride = 0;       ///< elements from one row of the memory to the next
  int64_t b_stride = 0;
  int64_t c_stride = 0;  ///< of the summand, too
  float alpha = 1.0F;
  bool accumulate = false;  ///< adds to what c holds
  bool rectify = false;     ///< below 0, and NaN, becomes 0
};

struct Operands {
  const float* a = nullptr;
  const float* b = nullptr;
  const float* bias = nullptr;     ///< one element a column, or null
  const float* summand = nullptr;  ///< as c, or null
  float* c = nullptr;              ///< overlaps no factor
};

/// True if this processor has such tiles and the product is faster with them on so many threads.
/// ONEDNN_MAX_CPU_ISA, the limit that oneDNN heeds, holds here, too. Thread-safety: any.
bool pay(const Shape& shape, int threads);
/// True if this processor has such tiles.
bool available();

/// Any shape without empty dims; only where available(). Uses scratch slot 3 of the device.
/// Errors: kResource.
Status multiply(CpuDevice& device, const Shape& shape, const Operands& operands);

}  // namespace millrace::kernels::tiles
