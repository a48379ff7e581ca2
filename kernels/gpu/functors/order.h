#pragma once

#include <cstdint>
#include <limits>

// Functors of ops that compare elements of any number type: extremes, sorting, the largest of a
// row. Elements are compared by integers in the same order.
namespace millrace::gpu {

/// Types of elements; those up to kBf16 have infinity and NaN.
enum class ElementType : int32_t {
  kF32,   ///< float
  kF64,   ///< double
  kF16,   ///< half
  kBf16,  ///< bfloat16
  kI8,    ///< signed byte
  kU8,    ///< byte, or bool
  kI16,   ///< 16-bit integer
  kI32,   ///< 32-bit integer
  kI64    ///< 64-bit integer
};

/// Elements of a type that is known when the functor runs.
struct Elements {
  const void* data;  ///< device memory
  ElementType type;  ///< of the elements
  /// The key of NaN, which is above all numbers.
  static constexpr int64_t kNan = std::numeric_limits<int64_t>::max();

  /// An integer for element i: numbers have the order of their keys, and equal ones the same key.
  [[nodiscard]] constexpr int64_t key(int64_t i) const {
    switch (type) {
      case ElementType::kF32: {
        const auto bits = static_cast<int64_t>(__builtin_bit_cast(int32_t, at<float>(i)));
        return ordered(bits, bits & 0x7FFFFFFF, 0x7F800000);
      }
      case ElementType::kF64: {
        const auto bits = __builtin_bit_cast(int64_t, at<double>(i));
        return ordered(bits, bits & std::numeric_limits<int64_t>::max(), 0x7FF0000000000000);
      }
      case ElementType::kF16:
        return ordered(at<int16_t>(i), at<int16_t>(i) & 0x7FFF, 0x7C00);
      case ElementType::kBf16:
        return ordered(at<int16_t>(i), at<int16_t>(i) & 0x7FFF, 0x7F80);
      case ElementType::kI8:
        return at<int8_t>(i);
      case ElementType::kU8:
        return at<uint8_t>(i);
      case ElementType::kI16:
        return at<int16_t>(i);
      case ElementType::kI32:
        return at<int32_t>(i);
      default:
        return at<int64_t>(i);
    }
  }
  /// Element i as f64; of i64, rounded.
  [[nodiscard]] constexpr double real(int64_t i) const {
    if (type == ElementType::kF32) return static_cast<double>(at<float>(i));
    if (type == ElementType::kF64) return at<double>(i);
    return static_cast<double>(key(i));
  }
  /// True for infinite numbers; the type has them.
  [[nodiscard]] constexpr bool is_infinite(int64_t i) const {
    const int64_t infinity = type == ElementType::kF32   ? 0x7F800000
                             : type == ElementType::kF64 ? 0x7FF0000000000000
                             : type == ElementType::kF16 ? 0x7C00
                                                         : 0x7F80;
    return key(i) == infinity || key(i) == -infinity;
  }
  /// True if the type has infinity and NaN.
  [[nodiscard]] constexpr bool is_real() const { return type <= ElementType::kBf16; }
  /// to[place] = element i.
  constexpr void copy(int64_t i, void* to, int64_t place) const {
    switch (type) {
      case ElementType::kF64:
      case ElementType::kI64:
        static_cast<uint64_t*>(to)[place] = at<uint64_t>(i);
        break;
      case ElementType::kF16:
      case ElementType::kBf16:
      case ElementType::kI16:
        static_cast<uint16_t*>(to)[place] = at<uint16_t>(i);
        break;
      case ElementType::kI8:
      case ElementType::kU8:
        static_cast<uint8_t*>(to)[place] = at<uint8_t>(i);
        break;
      default:
        static_cast<uint32_t*>(to)[place] = at<uint32_t>(i);
    }
  }

 private:
  /// Element i, whose type is T.
  template <typename T>
  [[nodiscard]] constexpr T at(int64_t i) const {
    return static_cast<const T*>(data)[i];
  }
  /// The key of a real number, from its bits. Both zeros have the key 0.
  /// \param bits       sign-extended
  /// \param magnitude  bits without the sign
  /// \param infinity   bits of infinity
  static constexpr int64_t ordered(int64_t bits, int64_t magnitude, int64_t infinity) {
    if (magnitude > infinity) return kNan;
    return bits < 0 ? -magnitude : magnitude;
  }
};

/// The largest of the integers of a team's threads. Teams compare floats, which are exact for parts
/// of 22 bits.
template <typename Team>
constexpr int64_t largest_integer(const Team& team, int64_t value) {
  constexpr int64_t kPart = 21;
  constexpr int64_t kMask = (int64_t{1} << kPart) - 1;
  const auto high = static_cast<float>(value >> (2 * kPart));
  const auto middle = static_cast<float>((value >> kPart) & kMask);
  const auto low = static_cast<float>(value & kMask);
  const float most_high = team.max(high);
  const bool leads = high == most_high;
  const float most_middle = team.max(leads ? middle : -1.0F);
  const bool still_leads = leads && middle == most_middle;
  const float most_low = team.max(still_leads ? low : -1.0F);
  return static_cast<int64_t>(most_high) * (int64_t{1} << (2 * kPart)) +
         static_cast<int64_t>(most_middle) * (int64_t{1} << kPart) + static_cast<int64_t>(most_low);
}

/// An element of a row with its key in ascending order of what is wanted first.
struct Candidate {
  int64_t key;    ///< smaller ones are wanted first
  int64_t index;  ///< position in the row
  /// True if this one is wanted before the other; of equal keys, the first.
  [[nodiscard]] constexpr bool before(const Candidate& other) const {
    return key != other.key ? key < other.key : index < other.index;
  }
};
/// After all candidates.
inline constexpr Candidate kNoCandidate{std::numeric_limits<int64_t>::max(),
                                        std::numeric_limits<int64_t>::max()};

/// The first of the candidates of a team's threads.
template <typename Team>
constexpr Candidate first_candidate(const Team& team, const Candidate& mine) {
  const int64_t key = ~largest_integer(team, ~mine.key);
  const int64_t none = std::numeric_limits<int64_t>::min();
  return {key, ~largest_integer(team, mine.key == key ? ~mine.index : none)};
}

/// Index of the first largest or smallest element of each row. NaN is skipped, but one at the start
/// is the result, as on the processor.
struct FindExtreme {
  Elements x;     ///< [outer, size, inner]
  void* out;      ///< [outer, inner]
  bool wide;      ///< results are i64, otherwise i32
  bool largest;   ///< the largest, not the smallest
  int64_t size;   ///< elements of a row
  int64_t inner;  ///< distance of the elements of a row
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t start = row / inner * size * inner + row % inner;
    const bool is_first = x.key(start) == Elements::kNan;
    Candidate best = kNoCandidate;
    for (int64_t j = team.rank(); j < size; j += team.size()) {
      const int64_t key = x.key(start + j * inner);
      const Candidate next{largest ? ~key : key, j};
      if (!(is_nan(key)) && next.before(best)) best = next;
    }
    best = first_candidate(team, best);
    if (team.rank() != 0) return;
    const int64_t found = is_first || best.index == kNoCandidate.index ? 0 : best.index;
    if (wide) {
      static_cast<int64_t*>(out)[row] = found;
    } else {
      static_cast<int32_t*>(out)[row] = static_cast<int32_t>(found);
    }
  }

 private:
  /// True for the key of a NaN. The largest i64 has the same key, and is a number.
  [[nodiscard]] constexpr bool is_nan(int64_t key) const {
    return key == Elements::kNan && x.type != ElementType::kI64;
  }
};

/// Elements first, first + 1, ... of the order of a row: equal ones keep their order, NaN counts as
/// the largest number.
struct OrderedRows {
  Elements x;        ///< [outer, size, inner]
  void* out;         ///< [outer, kept, inner]
  int64_t* indices;  ///< dims of `out`
  int64_t size;      ///< elements of a row
  int64_t inner;     ///< distance of the elements of a row
  int64_t first;     ///< first position of the order that is kept
  int64_t kept;      ///< positions
  bool largest;      ///< descending order
  /// Element j of the row that begins at `start`.
  [[nodiscard]] constexpr Candidate candidate(int64_t start, int64_t j) const {
    const int64_t key = x.key(start + j * inner);
    return {largest ? ~key : key, j};
  }
  /// Writes element j of a row as that position of the order.
  constexpr void put(int64_t row, int64_t start, int64_t j, int64_t position) const {
    const int64_t place = (row / inner * kept + position - first) * inner + row % inner;
    x.copy(start + j * inner, out, place);
    indices[place] = j;
  }
};

/// By counting the elements before each one: call i has one element of one row.
struct PlaceInOrder {
  OrderedRows rows;  ///< rows and results
  constexpr void operator()(int64_t i) const {
    const int64_t row = i / rows.size;
    const int64_t j = i - row * rows.size;
    const int64_t start = row / rows.inner * rows.size * rows.inner + row % rows.inner;
    const Candidate mine = rows.candidate(start, j);
    int64_t before = 0;
    for (int64_t other = 0; other < rows.size; ++other)
      before += rows.candidate(start, other).before(mine) ? 1 : 0;
    if (before >= rows.first && before < rows.first + rows.kept) rows.put(row, start, j, before);
  }
};

/// By looking for one after another, for few positions at the start of the order.
struct FindInOrder {
  OrderedRows rows;  ///< rows and results
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t start = row / rows.inner * rows.size * rows.inner + row % rows.inner;
    Candidate last{std::numeric_limits<int64_t>::min(), -1};
    for (int64_t position = 0; position < rows.first + rows.kept; ++position) {
      Candidate best = kNoCandidate;
      for (int64_t j = team.rank(); j < rows.size; j += team.size()) {
        const Candidate next = rows.candidate(start, j);
        if (last.before(next) && next.before(best)) best = next;
      }
      last = first_candidate(team, best);
      if (team.rank() == 0 && position >= rows.first) rows.put(row, start, last.index, position);
    }
  }
};

}  // namespace millrace::gpu
