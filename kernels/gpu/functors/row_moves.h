#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/gpu/functors/rows.h"
#include "kernels/gpu/functors/walk.h"

// Functors that build rows of a result from rows of another tensor, chosen on the processor: most
// ops over sequences only move rows.
namespace millrace::gpu {

/// to[row, :] = from[rows[row], :] as words of any size; where rows[row] is -1 - n, row n of
/// `other`, or zeros if there is none.
template <typename Word>
struct PickRows {
  const Word* from;     ///< [.., width]
  const Word* other;    ///< null: zeros
  const int64_t* rows;  ///< by row of the result
  Word* to;             ///< result
  Divider width;        ///< words of a row
  int64_t other_step;   ///< 1; 0: `other` is one word, which all elements of its row repeat
  constexpr void operator()(int64_t i) const {
    const auto row = static_cast<int64_t>(width.quotient(static_cast<uint32_t>(i)));
    const int64_t column = i - row * width.divisor;
    const int64_t at = rows[row];
    if (at >= 0) {
      to[i] = from[at * width.divisor + column];
    } else if (other != nullptr) {
      to[i] = other[((-1 - at) * width.divisor + column) * other_step];
    } else {
      to[i] = Word{};
    }
  }
};

/// to[row, :] = sum of the rows sources[k] of `from`, for k in [starts[row], starts[row + 1]), in
/// that order; zeros where there is none.
struct AddRows {
  const float* from;       ///< [.., width]
  const int64_t* starts;   ///< by row of the result, and the end
  const int64_t* sources;  ///< rows of `from`
  float* to;               ///< result
  Divider width;           ///< elements of a row
  constexpr void operator()(int64_t i) const {
    const auto row = static_cast<int64_t>(width.quotient(static_cast<uint32_t>(i)));
    const int64_t column = i - row * width.divisor;
    float sum = 0.0F;
    for (int64_t k = starts[row]; k < starts[row + 1]; ++k)
      sum += from[sources[k] * width.divisor + column];
    to[i] = sum;
  }
};

/// Softmax of each sequence of a column.
struct SequenceSoftmax {
  const float* x;          ///< one element per row
  const int64_t* offsets;  ///< first row of each sequence, and the end
  float* y;                ///< may be x
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t sequence) const {
    const int64_t begin = offsets[sequence];
    const int64_t count = offsets[sequence + 1] - begin;
    if (count == 0) return;
    const float most = largest_of_row(team, x + begin, count);
    double part = 0;
    for (int64_t k = team.rank(); k < count; k += team.size())
      part += static_cast<double>(std::exp(x[begin + k] - most));
    const auto inverse = static_cast<float>(1.0 / team.sum(part));
    for (int64_t k = team.rank(); k < count; k += team.size())
      y[begin + k] = std::exp(x[begin + k] - most) * inverse;
  }
};

/// Its gradient: (dy - sum(y * dy)) * y.
struct SequenceSoftmaxGradient {
  const float* y;          ///< result of SequenceSoftmax
  const float* dy;         ///< its gradient
  const int64_t* offsets;  ///< as in SequenceSoftmax
  float* dx;               ///< may be dy
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t sequence) const {
    const int64_t begin = offsets[sequence];
    const int64_t end = offsets[sequence + 1];
    double part = 0;
    for (int64_t k = begin + team.rank(); k < end; k += team.size())
      part += static_cast<double>(y[k]) * static_cast<double>(dy[k]);
    const auto sum = static_cast<float>(team.sum(part));
    for (int64_t k = begin + team.rank(); k < end; k += team.size()) dx[k] = (dy[k] - sum) * y[k];
  }
};

/// Element i of rows of `most` elements: a 1 for each time step that exists, zeros after them.
template <typename Word>
struct MaskSteps {
  const int64_t* lengths;        ///< by row; null: see the next
  const int32_t* short_lengths;  ///< the same, of i32
  Word* to;                      ///< result, of an element type of that size
  Divider most;                  ///< elements of a row
  Word one;                      ///< the bytes of a 1
  constexpr void operator()(int64_t i) const {
    const auto row = static_cast<int64_t>(most.quotient(static_cast<uint32_t>(i)));
    const int64_t length =
        lengths != nullptr ? lengths[row] : static_cast<int64_t>(short_lengths[row]);
    to[i] = i - row * most.divisor < length ? one : Word{};
  }
};

}  // namespace millrace::gpu
