#pragma once

#include <cstdint>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"

namespace millrace::kernels::rnn {

/// Rows of LoD sequences in the order in which a recurrent layer processes them: time step 0 of all
/// sequences, longest first, then time step 1 of those that have one, and so on. The sequences of a
/// time step are the first ones of the previous time step.
/// A time step is then one product of matrices over contiguous rows, without padding.
/// Thread-safety: concurrent readers after build().
class StepOrder {
 public:
  /// \param reverse  the last row of a sequence is its time step 0
  /// \param offsets  of the sequences (LoD), which may be empty
  void build(llvm::ArrayRef<int64_t> offsets, bool reverse);

  /// Number of time steps, that is, the length of the longest sequence.
  [[nodiscard]] int64_t steps() const { return static_cast<int64_t>(starts_.size()) - 1; }
  /// First row of a time step, and its number of rows.
  [[nodiscard]] int64_t start(int64_t t) const { return starts_[static_cast<size_t>(t)]; }
  [[nodiscard]] int64_t count(int64_t t) const { return start(t + 1) - start(t); }
  /// Rows of all sequences, and number of sequences, including empty ones.
  [[nodiscard]] int64_t rows() const { return static_cast<int64_t>(rows_.size()); }
  [[nodiscard]] int64_t sequences() const { return static_cast<int64_t>(sequences_.size()); }
  /// The starts, the LoD row at each position, and the sequences by length. fluid stores these as
  /// LoD of the intermediate outputs.
  [[nodiscard]] Lod as_lod() const { return Lod({starts_, rows_, sequences_}); }

  /// to[i] = from[LoD row at position i]; scatter() is the inverse.
  /// \param width  elements of a row
  template <typename T>
  void gather(const T* from, int64_t width, T* to) const {
    for (size_t i = 0; i < rows_.size(); ++i) copy(from + rows_[i] * width, width, to, i);
  }
  template <typename T>
  void scatter(const T* from, int64_t width, T* to) const {
    for (size_t i = 0; i < rows_.size(); ++i)
      copy(from + static_cast<int64_t>(i) * width, width, to, static_cast<size_t>(rows_[i]));
  }
  /// The same for one row per sequence.
  template <typename T>
  void gather_sequences(const T* from, int64_t width, T* to) const {
    for (size_t i = 0; i < sequences_.size(); ++i) copy(from + sequences_[i] * width, width, to, i);
  }
  /// Only for the sequences that have a time step 0; these come first.
  template <typename T>
  void gather_starting(const T* from, int64_t width, T* to) const {
    const auto starting = static_cast<size_t>(steps() == 0 ? 0 : count(0));
    for (size_t i = 0; i < starting; ++i) copy(from + sequences_[i] * width, width, to, i);
  }
  template <typename T>
  void scatter_sequences(const T* from, int64_t width, T* to) const {
    for (size_t i = 0; i < sequences_.size(); ++i)
      copy(from + static_cast<int64_t>(i) * width, width, to, static_cast<size_t>(sequences_[i]));
  }

 private:
  template <typename T>
  static void copy(const T* from, int64_t width, T* to, size_t row) {
    T* const target = to + static_cast<int64_t>(row) * width;
    for (int64_t k = 0; k < width; ++k) target[k] = from[k];
  }

  LodLevel starts_;     ///< first row of each time step, then the end
  LodLevel rows_;       ///< LoD row at each position
  LodLevel sequences_;  ///< sequences, longest first
};

}  // namespace millrace::kernels::rnn
