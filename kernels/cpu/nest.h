#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/SmallVector.h>

#include "kernels/device.h"

namespace millrace::kernels {

/// Minimum number of elements for which a loop uses another thread.
inline constexpr int64_t kGrain = 32768;

/// A loop nest over N arrays that share one index space, each with its own strides (0 where an
/// array repeats). Neighbouring dims are merged where every array allows it, so that the innermost
/// level is as long as possible. If the arrays are dense, all strides of that level are 0 or 1.
template <size_t N>
class Nest {
 public:
  using Offsets = std::array<int64_t, N>;
  /// One loop: its length, and how far each array moves per iteration, in elements.
  struct Level {
    int64_t size;    ///< positions of this level
    Offsets stride;  ///< elements from one position to the next, by operand
  };

  /// Adds a level inside the existing ones; dims of size 1 are dropped.
  /// \param size    length of the loop; 0 makes the whole nest empty
  /// \param stride  per array, in elements; 0 repeats, negative goes backwards
  void add(int64_t size, const Offsets& stride) {
    count_ *= size;
    if (size == 1) return;
    if (!levels_.empty() && fits(levels_.back(), size, stride)) {
      levels_.back() = {levels_.back().size * size, stride};
      return;
    }
    levels_.push_back({size, stride});
  }

  /// Number of points of the index space.
  [[nodiscard]] int64_t count() const { return count_; }
  /// Levels, outermost first; none for a single point.
  [[nodiscard]] llvm::ArrayRef<Level> levels() const { return levels_; }
  /// Strides of the innermost level; 1 for all arrays if there is a single point.
  [[nodiscard]] Offsets run_stride() const {
    if (!levels_.empty()) return levels_.back().stride;
    Offsets ones;
    ones.fill(1);
    return ones;
  }

  /// The nest without its innermost level; there must be one.
  [[nodiscard]] Nest without_run() const {
    Nest outer = *this;
    outer.levels_.pop_back();
    outer.count_ = 1;
    for (const Level& level : outer.levels_) outer.count_ *= level.size;
    return outer;
  }

  /// Calls body(offsets, length) for every innermost run, in order.
  template <typename Body>
  void each_run(Body&& body) const {
    if (count_ == 0) return;
    Offsets at = base_;
    if (levels_.empty()) return body(at, int64_t{1});
    const int last = static_cast<int>(levels_.size()) - 1;
    const int64_t length = levels_.back().size;
    llvm::SmallVector<int64_t, 8> index(levels_.size(), 0);
    while (true) {
      body(at, length);
      // like a counter: the innermost of the outer levels advances, and carries over to the next
      // one
      int d = last - 1;
      for (; d >= 0; --d) {
        const Level& level = levels_[static_cast<size_t>(d)];
        if (++index[static_cast<size_t>(d)] < level.size) {
          for (size_t k = 0; k < N; ++k) at[k] += level.stride[k];
          break;
        }
        index[static_cast<size_t>(d)] = 0;
        for (size_t k = 0; k < N; ++k) at[k] -= level.stride[k] * (level.size - 1);
      }
      if (d < 0) return;
    }
  }

  /// The part of the nest with the indices [begin, end) of one level.
  [[nodiscard]] Nest slice(size_t level, int64_t begin, int64_t end) const {
    Nest part = *this;
    Level& cut = part.levels_[level];
    part.count_ = count_ / cut.size * (end - begin);
    for (size_t k = 0; k < N; ++k) part.base_[k] += begin * cut.stride[k];
    cut.size = end - begin;
    return part;
  }

  /// Like each_run(), on the threads of the device.
  /// \param written  index of an array that body writes. Each thread gets a part of it that
  ///                 overlaps no other part; if that is impossible, one thread does all the work
  template <typename Body>
  void parallel_runs(CpuDevice& device, size_t written, Body&& body) const {
    // the longest level along which the written array moves, so that ranges of it do not overlap
    size_t widest = levels_.size();
    for (size_t i = 0; i < levels_.size(); ++i) {
      if (levels_[i].stride[written] == 0) continue;
      if (widest == levels_.size() || levels_[i].size > levels_[widest].size) widest = i;
    }
    if (device.threads() == 1 || count_ < kGrain || widest == levels_.size()) return each_run(body);
    const int64_t each = count_ / levels_[widest].size;
    const int64_t grain = each >= kGrain ? 1 : kGrain / each;
    device.parallel_for(levels_[widest].size, grain, [&](int64_t begin, int64_t end) {
      slice(widest, begin, end).each_run(body);
    });
  }

 private:
  /// True if the outer level continues exactly where the inner one ends, in every array.
  static bool fits(const Level& outer, int64_t size, const Offsets& stride) {
    for (size_t k = 0; k < N; ++k) {
      if (outer.stride[k] != stride[k] * size) return false;
    }
    return true;
  }

  llvm::SmallVector<Level, 4> levels_;  ///< outermost first
  /// Offsets of the first point; not 0 after slice().
  Offsets base_{};
  int64_t count_ = 1;  ///< product of the sizes
};

}  // namespace millrace::kernels
