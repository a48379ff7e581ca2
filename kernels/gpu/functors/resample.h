#pragma once

#include <cstdint>

// Functors of ops whose results are sums of a few weighted elements along each spatial dim:
// interpolations, borders around images, and their gradients.
namespace millrace::gpu {

/// What each result takes along one dim: elements index[k] with weight[k], for k in [starts[i],
/// starts[i + 1]).
struct TapSide {
  int64_t size = 1;                 ///< of x along the dim
  int64_t results = 1;              ///< of y along the dim
  const int32_t* starts = nullptr;  ///< [results + 1]
  const int32_t* index = nullptr;   ///< positions in x along the dim
  const double* weight = nullptr;   ///< of the elements at these positions
};

/// Element i of y: the sum over the taps of all three dims, in double.
struct SumTaps {
  TapSide sides[3];  ///< depth, height, width
  int64_t lanes;     ///< elements of a pixel
  const float* x;    ///< [parts, size..., lanes]
  float* y;          ///< [parts, results..., lanes]
  float none;        ///< a result that takes nothing along some dim

  constexpr void operator()(int64_t i) const {
    const auto& [depth, height, width] = sides;
    const int64_t pixel = i / lanes;
    const int64_t w = pixel % width.results;
    const int64_t h = pixel / width.results % height.results;
    const int64_t plane = pixel / (width.results * height.results);
    const int64_t d = plane % depth.results;
    const float* const from =
        x + plane / depth.results * (depth.size * height.size * width.size * lanes) + i % lanes;
    double sum = 0;
    bool any = false;
    for (int32_t a = depth.starts[d]; a < depth.starts[d + 1]; ++a) {
      for (int32_t b = height.starts[h]; b < height.starts[h + 1]; ++b) {
        const int64_t line = depth.index[a] * height.size + height.index[b];
        const double weight = depth.weight[a] * height.weight[b];
        for (int32_t c = width.starts[w]; c < width.starts[w + 1]; ++c) {
          const float value = from[(line * width.size + width.index[c]) * lanes];
          sum += weight * width.weight[c] * static_cast<double>(value);
          any = true;
        }
      }
    }
    y[i] = any ? static_cast<float>(sum) : none;
  }
};

}  // namespace millrace::gpu
