#pragma once

#include <algorithm>
#include <cstdint>

#include <llvm/ADT/ArrayRef.h>

#include "framework/tensor/tensor.h"
#include "kernels/cpu/gemm.h"

/// Windows of rows inside sequences.
/// sequence_conv multiplies the matrix of these windows by its filter; rows outside of a sequence
/// are zeros, or trained rows of PaddingData.
namespace millrace::kernels {

/// The rows of its sequence that belong to the window of a row.
struct RowWindow {
  int64_t length = 1;   ///< attribute contextLength
  int64_t start = 0;    ///< attribute contextStart: first row, relative to the row itself
  bool padded = false;  ///< rows outside of a sequence come from PaddingData

  /// Rows of PaddingData before a sequence, and their total number.
  [[nodiscard]] int64_t before() const { return std::max<int64_t>(0, -start); }
  /// Number of rows of PaddingData: those before a sequence, then those after it.
  [[nodiscard]] int64_t padding_rows() const {
    return before() + std::max<int64_t>(0, start + length - 1);
  }
};

/// Calls body(row of the window's matrix, position in the window, row of X or -1, row of the
/// padding or -1) for every position.
template <typename Body>
void each_place(llvm::ArrayRef<int64_t> offsets, const RowWindow& w, Body&& body) {
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    for (int64_t r = offsets[i]; r < offsets[i + 1]; ++r) {
      for (int64_t k = 0; k < w.length; ++k) {
        const int64_t source = r + w.start + k;
        if (source >= offsets[i] && source < offsets[i + 1]) {
          body(r, k, source, int64_t{-1});
        } else if (source < offsets[i]) {
          body(r, k, int64_t{-1}, w.before() - (offsets[i] - source));
        } else {
          body(r, k, int64_t{-1}, w.before() + source - offsets[i + 1]);
        }
      }
    }
  }
}

/// The product of the matrix of windows, [rows of x, rows of filter], and the filter.
inline GemmShape windows_product(const Tensor& x, const Tensor& filter) {
  return {.rows = x.dim(0), .columns = filter.dim(1), .inner = filter.dim(0)};
}

/// The windows of all rows as a matrix; zeros outside of a sequence if padding is null.
/// \param width  elements of a row of x and of padding
/// \param out    [rows, length * width], overwritten
template <typename T>
void write_windows(llvm::ArrayRef<int64_t> offsets, const RowWindow& w, const T* x,
                   const T* padding, int64_t width, T* out) {
  each_place(offsets, w, [&](int64_t row, int64_t place, int64_t source, int64_t pad) {
    T* const to = out + (row * w.length + place) * width;
    if (source >= 0) {
      std::copy_n(x + source * width, width, to);
    } else if (padding != nullptr) {
      std::copy_n(padding + pad * width, width, to);
    } else {
      std::fill_n(to, width, T(0));
    }
  });
}

}  // namespace millrace::kernels
