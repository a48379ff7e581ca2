#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "kernels/cpu/nest.h"
#include "kernels/device.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

/// c = a x b for a batch of matrices.
struct ProductShape {
  /// Index of each operand in the batch nest.
  static constexpr size_t kA = 0;
  static constexpr size_t kB = 1;
  static constexpr size_t kC = 2;

  int64_t rows = 1;     ///< of a and c
  int64_t inner = 1;    ///< columns of a, rows of b
  int64_t columns = 1;  ///< of b and c
  /// Memory holds [inner, rows] and [columns, inner] instead of [rows, inner] and [inner, columns].
  bool transpose_a = false;
  bool transpose_b = false;
  /// Offsets in elements from matrix to matrix. Where c repeats, its products are added up.
  Nest<3> batch;
};

/// Matrix products of one kernel: oneDNN for float and bfloat16, with primitives cached by shape;
/// Eigen for double; other floats are converted to float. Copies share the cache.
class MatrixProduct {
 public:
  /// \param alpha  factor of the result
  /// \param bf16   rounds the factors of float products to bfloat16 if the processor multiplies
  ///               those; sums stay float
  explicit MatrixProduct(float alpha = 1.0F, bool bf16 = false);

  /// Sets c, or adds to it. Operands must not overlap c. Uses all scratch slots of the device.
  /// Errors: kUnimplemented for integers; kResource, kExecution.
  Status run(CpuDevice& device, DType dtype, const ProductShape& shape, const std::byte* a,
             const std::byte* b, std::byte* c, bool accumulate = false) const;

 private:
  struct State;                   ///< primitives and buffers
  std::shared_ptr<State> state_;  ///< shared by copies of the kernel
};

/// True if the op is marked to multiply in bfloat16 (attribute mkldnn_data_type, as in the
/// original).
bool wants_bf16(const KernelSetup& op);

}  // namespace millrace::kernels
