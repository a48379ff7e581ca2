#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/var.h"

/// Boxes of elements within a tensor, and how the bytes of one box lie in another.
namespace millrace::io {

/// The elements [offset, offset + shape) of a tensor. Rank 0 is one element.
struct Box {
  Dims offset;
  Dims shape;

  bool operator==(const Box&) const = default;
  /// By offset, then shape.
  bool operator<(const Box& other) const;
  /// All of a tensor.
  static Box whole(llvm::ArrayRef<int64_t> dims);
  [[nodiscard]] int64_t numel() const;
  /// "[0, 4] + [2, 8]", for messages.
  [[nodiscard]] std::string text() const;
};

/// What two boxes of equal rank share; nullopt if that is no element.
std::optional<Box> overlap(const Box& a, const Box& b);

/// Checks that a box lies within a tensor: equal rank, no negative numbers.
/// Errors: kInvalidData with expected and found.
Status check_inside(const Box& box, llvm::ArrayRef<int64_t> dims);

/// Checks that boxes inside a tensor hold each of its elements exactly once.
/// Errors: kInvalidData with the boxes that overlap, or with the number of elements that are
/// missing.
Status check_exact_cover(std::vector<Box> boxes, llvm::ArrayRef<int64_t> dims);

/// How the elements that two boxes share lie in the memory of each: runs of equal length whose
/// starts rise with the index in both.
class Runs {
 public:
  /// \param element_bytes  of one element
  /// The boxes must overlap.
  Runs(const Box& from, const Box& to, int64_t element_bytes);

  [[nodiscard]] int64_t count() const { return count_; }
  /// Bytes of each run.
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  /// First byte of a run in row-major memory of `from` and of `to`.
  [[nodiscard]] int64_t from(int64_t run) const { return start(run, from_begin_, from_steps_); }
  [[nodiscard]] int64_t to(int64_t run) const { return start(run, to_begin_, to_steps_); }
  /// The first run that ends behind this byte of `from`; count() if none does.
  [[nodiscard]] int64_t first_behind(int64_t from_byte) const;

 private:
  [[nodiscard]] int64_t start(int64_t run, int64_t begin, const Dims& steps) const;

  int64_t count_ = 1;
  int64_t bytes_ = 0;
  Dims counts_;  ///< of the axes that runs do not cover, outermost first
  int64_t from_begin_ = 0;
  int64_t to_begin_ = 0;
  Dims from_steps_;
  Dims to_steps_;
};

/// The box that part `part` of `parts` has if an axis is cut into parts that are as equal as whole
/// elements allow; the first ones are the larger ones. Parts beyond the extent are empty.
Box even_part(llvm::ArrayRef<int64_t> dims, int64_t axis, int64_t part, int64_t parts);

}  // namespace millrace::io
