#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/var.h"

/// Boxes of elements within a tensor, and how elements that two boxes share are laid out in each.
namespace millrace::io {

/// The elements [offset, offset + shape) of a tensor. Rank 0 is one element.
struct Box {
  Dims offset;
  Dims shape;

  bool operator==(const Box&) const = default;
  /// Orders by offset, then shape.
  bool operator<(const Box& other) const;
  /// The box that covers a whole tensor.
  static Box whole(llvm::ArrayRef<int64_t> dims);
  [[nodiscard]] int64_t numel() const;
  /// "[0, 4] + [2, 8]", for messages.
  [[nodiscard]] std::string text() const;
};

/// The intersection of two boxes of equal rank; nullopt if it is empty.
std::optional<Box> overlap(const Box& a, const Box& b);

/// Checks that a box is inside a tensor: equal rank, no negative numbers.
/// Errors: kInvalidData with expected and found.
Status check_inside(const Box& box, llvm::ArrayRef<int64_t> dims);

/// Checks that boxes inside a tensor cover each of its elements exactly once.
/// Errors: kInvalidData with two boxes that overlap, or with the number of elements that are
/// missing.
Status check_exact_cover(std::vector<Box> boxes, llvm::ArrayRef<int64_t> dims);

/// The elements that two boxes share, as runs: ranges of equal length that are contiguous in the
/// memory of both boxes. Start offsets increase with the index of the run in both.
class Runs {
 public:
  /// The boxes must overlap.
  /// \param element_bytes  size of one element
  Runs(const Box& from, const Box& to, int64_t element_bytes);

  [[nodiscard]] int64_t count() const { return count_; }
  /// Size of each run in bytes.
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  /// Offset of a run in row-major memory of `from` and of `to`.
  [[nodiscard]] int64_t from(int64_t run) const { return start(run, from_begin_, from_steps_); }
  [[nodiscard]] int64_t to(int64_t run) const { return start(run, to_begin_, to_steps_); }
  /// The first run that ends after this byte of `from`; count() if there is none.
  [[nodiscard]] int64_t first_ending_after(int64_t from_byte) const;

 private:
  [[nodiscard]] int64_t start(int64_t run, int64_t begin, const Dims& steps) const;

  int64_t count_ = 1;
  int64_t bytes_ = 0;
  Dims counts_;  ///< extents of the axes that runs do not cover, outermost first
  int64_t from_begin_ = 0;
  int64_t to_begin_ = 0;
  Dims from_steps_;
  Dims to_steps_;
};

/// Box number `part` of `parts` if an axis is split as evenly as possible. If the extent is not
/// divisible, the first boxes are larger by one. Boxes beyond the extent are empty.
Box even_part(llvm::ArrayRef<int64_t> dims, int64_t axis, int64_t part, int64_t parts);

}  // namespace millrace::io
