#pragma once

#include <cstdint>

#include "kernels/gpu/functors/halves.h"
#include "kernels/gpu/functors/products.h"

/// Products without a library: the fallback of devices, and the reference for library results.
/// Sums are kept in double: the results are closer to the exact ones than those of a library, and
/// slower by far. T stores the elements: float, Half or Brain.
namespace millrace::gpu {

/// Element i of the results of all matrices of the batch.
/// i counts [batch, rows, columns]. Strides are those of MatrixProduct.
template <typename T = float>
struct MultiplyElement {
  MatrixProduct p;  ///< operands and strides
  constexpr void operator()(int64_t i) const {
    const int64_t column = i % p.columns;
    const int64_t row = i / p.columns % p.rows;
    const int64_t matrix = i / (p.columns * p.rows);
    const T* const a = static_cast<const T*>(p.a) + matrix * p.a_stride;
    const T* const b = static_cast<const T*>(p.b) + matrix * p.b_stride;
    T* const c = static_cast<T*>(p.c) + matrix * p.c_stride + row * p.columns + column;
    const int64_t a_step = p.transpose_a ? p.rows : 1;
    const int64_t b_step = p.transpose_b ? 1 : p.columns;
    const T* x = a + (p.transpose_a ? row : row * p.inner);
    const T* y = b + (p.transpose_b ? column * p.inner : column);
    double sum = 0;
    for (int64_t k = 0; k < p.inner; ++k, x += a_step, y += b_step)
      sum += static_cast<double>(*x) * static_cast<double>(*y);
    const auto product = p.alpha * static_cast<float>(sum);
    *c = static_cast<T>(p.beta == 0.0F ? product : product + p.beta * static_cast<float>(*c));
  }
};

/// Element i of the output.
/// i counts [batch, out_channels, out height, out width].
template <typename T = float>
struct ConvolveOutput {
  Convolution c;  ///< operands and windows
  constexpr void operator()(int64_t i) const {
    const int64_t x = i % c.out[1];
    const int64_t y = i / c.out[1] % c.out[0];
    const int64_t oc = i / (c.out[1] * c.out[0]) % c.out_channels;
    const int64_t n = i / (c.out[1] * c.out[0] * c.out_channels);
    const int64_t depth = c.in_channels / c.groups;
    // first input channel of the group that the output channel belongs to
    const int64_t first = oc / (c.out_channels / c.groups) * depth;
    double sum = 0;
    for (int64_t ic = 0; ic < depth; ++ic) {
      const T* const image =
          static_cast<const T*>(c.input) + (n * c.in_channels + first + ic) * c.in[0] * c.in[1];
      const T* const taps =
          static_cast<const T*>(c.filter) + (oc * depth + ic) * c.kernel[0] * c.kernel[1];
      for (int64_t ky = 0; ky < c.kernel[0]; ++ky) {
        const int64_t at_y = y * c.stride[0] - c.before[0] + ky * c.dilation[0];
        // rows of padding contribute nothing
        if (at_y < 0 || at_y >= c.in[0]) continue;
        for (int64_t kx = 0; kx < c.kernel[1]; ++kx) {
          const int64_t at_x = x * c.stride[1] - c.before[1] + kx * c.dilation[1];
          if (at_x < 0 || at_x >= c.in[1]) continue;
          sum += static_cast<double>(image[at_y * c.in[1] + at_x]) *
                 static_cast<double>(taps[ky * c.kernel[1] + kx]);
        }
      }
    }
    static_cast<T*>(c.output)[i] = static_cast<T>(static_cast<float>(sum));
  }
};

/// Element i of the gradient of the input.
/// i counts [batch, in_channels, in height, in width]. Sums over the output positions whose windows
/// contain the pixel, so that no two calls write to the same element.
template <typename T = float>
struct ConvolveInputGradient {
  Convolution c;  ///< operands and windows
  constexpr void operator()(int64_t i) const {
    const int64_t x = i % c.in[1];
    const int64_t y = i / c.in[1] % c.in[0];
    const int64_t ic = i / (c.in[1] * c.in[0]) % c.in_channels;
    const int64_t n = i / (c.in[1] * c.in[0] * c.in_channels);
    const int64_t depth = c.in_channels / c.groups;
    const int64_t height = c.out_channels / c.groups;
    const int64_t first = ic / depth * height;
    double sum = 0;
    for (int64_t k = 0; k < height; ++k) {
      const int64_t oc = first + k;
      const T* const image =
          static_cast<const T*>(c.output) + (n * c.out_channels + oc) * c.out[0] * c.out[1];
      const T* const taps =
          static_cast<const T*>(c.filter) + (oc * depth + ic % depth) * c.kernel[0] * c.kernel[1];
      for (int64_t ky = 0; ky < c.kernel[0]; ++ky) {
        const int64_t at_y = y + c.before[0] - ky * c.dilation[0];
        // only every stride-th position has a window
        if (at_y < 0 || at_y % c.stride[0] != 0 || at_y / c.stride[0] >= c.out[0]) continue;
        for (int64_t kx = 0; kx < c.kernel[1]; ++kx) {
          const int64_t at_x = x + c.before[1] - kx * c.dilation[1];
          if (at_x < 0 || at_x % c.stride[1] != 0 || at_x / c.stride[1] >= c.out[1]) continue;
          sum += static_cast<double>(image[at_y / c.stride[0] * c.out[1] + at_x / c.stride[1]]) *
                 static_cast<double>(taps[ky * c.kernel[1] + kx]);
        }
      }
    }
    static_cast<T*>(c.input)[i] = static_cast<T>(static_cast<float>(sum));
  }
};

/// Element `row` of the gradient of the filter.
/// row counts [out_channels, in_channels / groups, kernel height, kernel width]. The team divides
/// the output positions of all images among its threads.
template <typename T = float>
struct ConvolveFilterGradient {
  Convolution c;  ///< operands and windows
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t kx = row % c.kernel[1];
    const int64_t ky = row / c.kernel[1] % c.kernel[0];
    const int64_t depth = c.in_channels / c.groups;
    const int64_t ic = row / (c.kernel[1] * c.kernel[0]) % depth;
    const int64_t oc = row / (c.kernel[1] * c.kernel[0] * depth);
    const int64_t first = oc / (c.out_channels / c.groups) * depth;
    const int64_t places = c.out[0] * c.out[1];
    double sum = 0;
    for (int64_t i = team.rank(); i < c.batch * places; i += team.size()) {
      const int64_t n = i / places;
      const int64_t at_y = i / c.out[1] % c.out[0] * c.stride[0] - c.before[0] + ky * c.dilation[0];
      const int64_t at_x = i % c.out[1] * c.stride[1] - c.before[1] + kx * c.dilation[1];
      if (at_y < 0 || at_y >= c.in[0] || at_x < 0 || at_x >= c.in[1]) continue;
      const int64_t from = ((n * c.in_channels + first + ic) * c.in[0] + at_y) * c.in[1] + at_x;
      const int64_t to = (n * c.out_channels + oc) * places + i % places;
      sum += static_cast<double>(static_cast<const T*>(c.input)[from]) *
             static_cast<double>(static_cast<const T*>(c.output)[to]);
    }
    sum = team.sum(sum);
    if (team.rank() == 0) static_cast<T*>(c.filter)[row] = static_cast<T>(static_cast<float>(sum));
  }
};

}  // namespace millrace::gpu
