#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

namespace millrace::ps {

/// Rows of a table that is cut into pieces of consecutive rows: each distinct row once, by piece.
/// Keeps its memory from one list to the next. Thread-safety: one thread at a time.
class RowRoutes {
 public:
  /// Where a row is: its piece, and its position among the rows of that piece.
  struct Place {
    int32_t piece = -1;  ///< -1: padding, which no piece has
    int32_t position = 0;
  };

  /// Forgets all rows.
  /// \param ends  row behind the last one of each piece, rising
  /// \param most  rows that add() will be given at most, repeats included
  void begin(llvm::ArrayRef<int64_t> ends, size_t most);
  /// Finds the places of more rows. \param padding  row to pass over; negative: none
  /// \returns the first row that no piece has, behind which nothing was done
  std::optional<int64_t> add(std::span<const int64_t> rows, int64_t padding = -1);

  /// One for each given row, in order.
  [[nodiscard]] llvm::ArrayRef<Place> places() const { return places_; }
  /// Distinct rows of a piece in the order of their first occurrence, counted from its begin.
  [[nodiscard]] std::vector<int64_t>& rows(size_t piece) { return rows_[piece]; }
  /// Distinct rows of all pieces.
  [[nodiscard]] size_t distinct() const { return firsts_.size(); }

 private:
  [[nodiscard]] Place new_place(int64_t row);

  std::vector<int64_t> ends_;
  std::vector<Place> places_;
  std::vector<std::vector<int64_t>> rows_;
  struct First {
    int64_t row;
    Place place;
  };
  std::vector<First> firsts_;   ///< distinct rows
  std::vector<int32_t> table_;  ///< open addressing: position in firsts_ + 1, 0 is free
  unsigned shift_ = 0;
};

}  // namespace millrace::ps
