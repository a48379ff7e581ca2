#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/gpu/functors/walk.h"

// Functors of ops over sequences, which are ranges of rows.
namespace millrace::gpu {

/// How the rows of a sequence become one.
enum class Pooling : int32_t { kSum, kAverage, kSqrt, kLast, kFirst, kMax };

/// The factor of a sum over that many rows.
constexpr float pooling_factor(Pooling pooling, int64_t rows) {
  if (pooling == Pooling::kAverage) return 1.0F / static_cast<float>(rows);
  return pooling == Pooling::kSqrt ? 1.0F / std::sqrt(static_cast<float>(rows)) : 1.0F;
}

/// One column of one sequence.
struct SequenceColumn {
  int64_t sequence;  ///< its number
  int64_t column;    ///< number of the column
  int64_t begin;     ///< first row
  int64_t end;       ///< one past the last row
  constexpr SequenceColumn(int64_t i, const Divider& width, const int64_t* offsets)
      : sequence(width.quotient(static_cast<uint32_t>(i))),
        column(i - sequence * width.divisor),
        begin(offsets[sequence]),
        end(offsets[sequence + 1]) {}
};

/// Call i computes one column of one sequence.
struct PoolSequence {
  const float* x;          ///< [rows, width]
  const int64_t* offsets;  ///< first row of each sequence, and the end
  float* y;                ///< [sequences, width]
  int32_t* index;          ///< row of each maximum, -1 for an empty sequence; null: not wanted
  Divider width;           ///< columns
  Pooling pooling;         ///< rule
  float pad;               ///< result of an empty sequence
  constexpr void operator()(int64_t i) const {
    const SequenceColumn at(i, width, offsets);
    const int64_t column = at.column;
    const int64_t begin = at.begin;
    const int64_t end = at.end;
    const int64_t step = width.divisor;
    if (begin == end) {
      y[i] = pad;
      if (index != nullptr) index[i] = -1;
      return;
    }
    const bool last = pooling == Pooling::kLast;
    float value = x[(last ? end - 1 : begin) * step + column];
    if (last || pooling == Pooling::kFirst) {
      y[i] = value;
      return;
    }
    if (pooling == Pooling::kMax) {
      int64_t row = begin;
      // the first of equal rows is kept; a NaN never replaces a number
      for (int64_t r = begin + 1; r < end; ++r) {
        const float other = x[r * step + column];
        row = other > value ? r : row;
        value = other > value ? other : value;
      }
      y[i] = value;
      if (index != nullptr) index[i] = static_cast<int32_t>(row);
      return;
    }
    for (int64_t r = begin + 1; r < end; ++r) value += x[r * step + column];
    y[i] = value * pooling_factor(pooling, end - begin);
  }
};

/// Gradient of PoolSequence: call i computes one column of one sequence of dx.
struct PoolSequenceGradient {
  const float* dy;         ///< [sequences, width]
  const int64_t* offsets;  ///< first row of each sequence, and the end
  const int32_t* index;    ///< for maxima
  float* dx;               ///< [rows, width]
  Divider width;           ///< columns
  Pooling pooling;         ///< rule
  constexpr void operator()(int64_t i) const {
    const SequenceColumn at(i, width, offsets);
    if (at.begin == at.end) return;
    const bool is_sum =
        pooling != Pooling::kLast && pooling != Pooling::kFirst && pooling != Pooling::kMax;
    int64_t chosen = pooling == Pooling::kLast ? at.end - 1 : at.begin;
    if (pooling == Pooling::kMax) chosen = index[i];
    const float slope = is_sum ? dy[i] * pooling_factor(pooling, at.end - at.begin) : dy[i];
    for (int64_t r = at.begin; r < at.end; ++r)
      dx[r * width.divisor + at.column] = is_sum || r == chosen ? slope : 0.0F;
  }
};

}  // namespace millrace::gpu
