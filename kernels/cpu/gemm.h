#pragma once

#include <cstdint>

#include "framework/base/status.h"
#include "kernels/cpu/onednn.h"
#include "kernels/device.h"

namespace millrace::kernels {

/// Shape of a matrix product: c [rows, columns] = op(a) [rows, inner] times op(b) [inner, columns],
/// all row-major; added to c if accumulate is set.
struct GemmShape {
  int64_t rows = 0;           ///< of c
  int64_t columns = 0;        ///< of c
  int64_t inner = 0;          ///< terms of each sum
  bool a_transposed = false;  ///< a is [inner, rows]
  bool b_transposed = false;  ///< b is [columns, inner]
  bool accumulate = false;    ///< adds to the old content of c
  /// Row stride of each matrix in elements; 0: rows are contiguous.
  int64_t a_stride = 0;
  int64_t b_stride = 0;
  int64_t c_stride = 0;
};

/// Matrix products of one kernel, for kernels that need several. f32 uses prepared oneDNN
/// primitives, cached by shape; f64 uses Eigen on one thread.
///
/// Empty matrices are allowed. Uses scratch slot 3 of the device. Errors: kResource,
/// kUnimplemented. Thread-safety: one call at a time.
class Gemm {
 public:
  /// c must not overlap a or b.
  Status operator()(CpuDevice& device, const GemmShape& shape, const float* a, const float* b,
                    float* c);
  Status operator()(CpuDevice& device, const GemmShape& shape, const double* a, const double* b,
                    double* c);

 private:
  dnn::ShapeCache<dnn::Primitive> products_;  ///< primitives by shape
};

}  // namespace millrace::kernels
