#pragma once

#include <cstdint>

#include "framework/base/status.h"
#include "kernels/device.h"

/// Products of float matrices on processors that multiply tiles of bfloat16 (Intel's AMX), with the
/// precision of float. Each factor is split into three bfloat16 numbers that add up to it exactly.
/// Of the nine products of their parts, the six that affect a float result are summed in float.
/// These six still take a third of the time of a float product on such a processor.
///
/// Results are as close to the exact sum as a sum of float products (measured: closer). They depend
/// neither on the number of threads nor on other rows and columns. The exception are blocks of 32
/// rows or columns with an infinite number, NaN, or a number above 2^127: those are multiplied in
/// float, slowly. Numbers below 2^-103 lose what is below 2^-126 (an error of at most 2^-116 per
/// product; if the other factor's block has numbers above 2^10, the blocks are also multiplied in
/// float), and so do sums. See docs/decisions/0020-tile-products.md.
namespace millrace::kernels::tiles {

/// c [rows, columns] = max?(alpha * a [rows, inner] x b [inner, columns] + bias + summand, 0).
struct Shape {
  int64_t rows = 0;           ///< of A and C
  int64_t columns = 0;        ///< of B and C
  int64_t inner = 0;          ///< columns of A, rows of B
  bool a_transposed = false;  ///< stored as [inner, rows]
  bool b_transposed = false;  ///< stored as [columns, inner]
  int64_t a_stride = 0;       ///< elements from one row in memory to the next
  int64_t b_stride = 0;
  int64_t c_stride = 0;  ///< also of the summand
  float alpha = 1.0F;
  bool accumulate = false;  ///< adds to the old content of c
  bool rectify = false;     ///< numbers below 0, and NaN, become 0
};

struct Operands {
  const float* a = nullptr;
  const float* b = nullptr;
  const float* bias = nullptr;     ///< one element per column, or null
  const float* summand = nullptr;  ///< same shape as c, or null
  float* c = nullptr;              ///< must not overlap a factor
};

/// True if this processor has such tiles and the product is faster with them on that many threads.
/// Respects the limit of cpu_isa.h. Thread-safety: any.
bool pay(const Shape& shape, int threads);
/// True if this processor has such tiles.
bool available();

/// Any shape without empty dims; only if available(). Uses scratch slot 3 of the device. Errors:
/// kResource.
Status multiply(CpuDevice& device, const Shape& shape, const Operands& operands);

}  // namespace millrace::kernels::tiles
