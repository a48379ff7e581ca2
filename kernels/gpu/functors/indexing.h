#pragma once

#include <cstdint>

#include "kernels/gpu/functors/walk.h"

// Functors of ops that choose elements by indices or conditions, as words of 1, 2, 4 or 8 bytes.
// Indices have been checked on the processor, or the functor checks them.
namespace millrace::gpu {

/// Indices in device memory.
struct IndexValues {
  const void* data;  ///< i32 or i64
  bool wide;         ///< i64
  /// Index i.
  [[nodiscard]] constexpr int64_t at(int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i]
                : static_cast<int64_t>(static_cast<const int32_t*>(data)[i]);
  }
};

/// Coordinates of one index that a functor reads.
inline constexpr int kMostDepth = 8;

/// to[i] = from[place], where the place is that of a walk plus what the index says; or the other
/// way round, to[place] = from[i], where no two i have the same place.
template <typename Word>
struct TakeAt {
  const Word* from;           ///< start of the elements that are read
  Word* to;                   ///< start of the elements that are written
  IndexValues index;          ///< coordinates
  int64_t steps[kMostDepth];  ///< distance of adjacent coordinates, in elements
  int32_t depth;              ///< coordinates of each index
  int64_t limit;              ///< a coordinate outside [0, limit) makes NaN; 0: they were checked
  bool puts;                  ///< the place is in `to`
  Walk<2> walk;               ///< place without the index, and first coordinate
  constexpr void operator()(int64_t i) const {
    const auto at = walk.at(i);
    int64_t place = at.of[0];
    bool exists = true;
    for (int32_t d = 0; d < depth; ++d) {
      const int64_t coordinate = index.at(at.of[1] + d);
      if (limit > 0 && (coordinate < 0 || coordinate >= limit)) {
        exists = false;
      } else {
        place += coordinate * steps[d];
      }
    }
    if (!exists) {
      to[puts ? place : i] = static_cast<Word>(~Word{});
    } else if (puts) {
      to[place] = from[i];
    } else {
      to[i] = from[place];
    }
  }
};

/// to[i] = condition[i] ? x[i] : y[i]. to may be x or y.
template <typename Word>
struct Choose {
  const uint8_t* condition;  ///< bool
  const Word* x;             ///< null: zeros
  const Word* y;             ///< null: zeros
  Word* to;                  ///< result
  constexpr void operator()(int64_t i) const {
    const Word* const chosen = condition[i] != 0 ? x : y;
    to[i] = chosen == nullptr ? Word{} : chosen[i];
  }
};

/// Lines of elements, grouped by the row of a matrix that they belong to.
struct LineGroups {
  const int64_t* rows;     ///< row of the matrix, by group
  const int32_t* starts;   ///< first entry of each group in `sources`, and the end
  const int32_t* sources;  ///< lines of the group, in order
  Divider width;           ///< elements of a line
  /// An element of a group.
  struct Place {
    int64_t group;      ///< number of the group
    int64_t column;     ///< element within a line
    int64_t in_matrix;  ///< position in the matrix
  };
  /// Element i of all groups.
  [[nodiscard]] constexpr Place at(int64_t i) const {
    const auto group = static_cast<int64_t>(width.quotient(static_cast<uint32_t>(i)));
    const int64_t column = i - group * width.divisor;
    return {group, column, rows[group] * width.divisor + column};
  }
};

/// Row of each group = its last line; or zeros.
template <typename Word>
struct PutLast {
  LineGroups groups;  ///< lines by row
  const Word* lines;  ///< null: zeros
  Word* to;           ///< the matrix; other rows are not written
  constexpr void operator()(int64_t i) const {
    const auto at = groups.at(i);
    to[at.in_matrix] =
        lines == nullptr
            ? Word{}
            : lines[static_cast<int64_t>(groups.sources[groups.starts[at.group + 1] - 1]) *
                        groups.width.divisor +
                    at.column];
  }
};

/// The type in which a sum of T wraps around.
template <typename T>
struct SumType {
  using type = T;  ///< floats
};
template <>
struct SumType<int32_t> {
  using type = uint32_t;
};
template <>
struct SumType<int64_t> {
  using type = uint64_t;
};

/// Adds the lines of each group to its row, in their order, as the processor does.
template <typename T>
struct AddLines {
  LineGroups groups;  ///< lines by row
  const T* lines;     ///< [lines, width]
  T* to;              ///< the matrix
  bool replaces;      ///< the row starts as zero
  constexpr void operator()(int64_t i) const {
    const auto at = groups.at(i);
    using U = typename SumType<T>::type;
    auto sum = static_cast<U>(replaces ? T{} : to[at.in_matrix]);
    for (int32_t k = groups.starts[at.group]; k < groups.starts[at.group + 1]; ++k)
      sum += static_cast<U>(
          lines[static_cast<int64_t>(groups.sources[k]) * groups.width.divisor + at.column]);
    to[at.in_matrix] = static_cast<T>(sum);
  }
};

/// Keeps a triangle of each matrix; the rest becomes 0. to may be from.
template <typename Word>
struct Triangle {
  const Word* from;  ///< matrices
  Word* to;          ///< dims of `from`
  Divider columns;   ///< of a matrix
  Divider rows;      ///< of a matrix
  int64_t diagonal;  ///< diagonal that bounds the triangle
  bool lower;        ///< keeps what is below it, otherwise what is above; both with the diagonal
  constexpr void operator()(int64_t i) const {
    const uint32_t line = columns.quotient(static_cast<uint32_t>(i));
    const int64_t column = i - static_cast<int64_t>(line) * columns.divisor;
    const int64_t row =
        static_cast<int64_t>(line) - static_cast<int64_t>(rows.quotient(line)) * rows.divisor;
    const int64_t right = column - row - diagonal;
    to[i] = (lower ? right <= 0 : right >= 0) ? from[i] : Word{};
  }
};

/// to[i * step] = value.
template <typename Word>
struct SetEvery {
  Word* to;      ///< first element
  Word value;    ///< of all of them
  int64_t step;  ///< distance
  constexpr void operator()(int64_t i) const { to[i * step] = value; }
};

/// Most tensors that one op chooses from.
inline constexpr int kMostChoices = 64;

/// Row r of `to` is row r of one of several matrices; or the other way round.
template <typename Word>
struct Multiplex {
  Word* matrices[kMostChoices];  ///< read, or written
  Word* rows;                    ///< written, or read
  IndexValues index;             ///< number of the matrix, by row
  Divider width;                 ///< elements of a row
  bool puts;                     ///< the matrices are written; null ones are left out
  constexpr void operator()(int64_t i) const {
    Word* const matrix = matrices[index.at(width.quotient(static_cast<uint32_t>(i)))];
    if (!puts) {
      rows[i] = matrix[i];
    } else if (matrix != nullptr) {
      matrix[i] = rows[i];
    }
  }
};

}  // namespace millrace::gpu
