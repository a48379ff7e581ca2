#include "framework/diff/align.h"

#include <algorithm>
#include <map>

namespace millrace::diff {
namespace {

using Pairs = std::vector<std::pair<size_t, size_t>>;
constexpr size_t kMaxCells = size_t{4} << 20U;

// Longest common subsequence of a[a0, a1) and b[b0, b1), with the usual table of suffix lengths.
void align_by_table(const std::vector<uint64_t>& a, size_t a0, size_t a1,
                    const std::vector<uint64_t>& b, size_t b0, size_t b1, Pairs& out) {
  const size_t rows = a1 - a0;
  const size_t columns = b1 - b0;
  std::vector<uint32_t> length((rows + 1) * (columns + 1), 0);
  const auto at = [&](size_t i, size_t j) -> uint32_t& { return length[i * (columns + 1) + j]; };
  for (size_t i = rows; i-- > 0;) {
    for (size_t j = columns; j-- > 0;) {
      at(i, j) =
          a[a0 + i] == b[b0 + j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
    }
  }
  for (size_t i = 0, j = 0; i < rows && j < columns;) {
    if (a[a0 + i] == b[b0 + j]) {
      out.emplace_back(a0 + i++, b0 + j++);
    } else if (at(i + 1, j) >= at(i, j + 1)) {
      ++i;
    } else {
      ++j;
    }
  }
}

// Pairs keys that occur once on each side, as far as they ascend on both sides (longest ascending
// run by patience sorting).
void align_unique(const std::vector<uint64_t>& a, size_t a0, size_t a1,
                  const std::vector<uint64_t>& b, size_t b0, size_t b1, Pairs& out) {
  struct Places {
    size_t count_a = 0, count_b = 0, a = 0, b = 0;
  };
  std::map<uint64_t, Places> places;
  for (size_t i = a0; i < a1; ++i) {
    Places& p = places[a[i]];
    ++p.count_a;
    p.a = i;
  }
  for (size_t j = b0; j < b1; ++j) {
    Places& p = places[b[j]];
    ++p.count_b;
    p.b = j;
  }
  Pairs unique;
  for (const auto& [key, p] : places)
    if (p.count_a == 1 && p.count_b == 1) unique.emplace_back(p.a, p.b);
  std::sort(unique.begin(), unique.end());
  std::vector<size_t> tails;  // for each run length, the index into unique of the last element
  std::vector<size_t> before(unique.size(), unique.size());
  for (size_t k = 0; k < unique.size(); ++k) {
    const auto it = std::lower_bound(tails.begin(), tails.end(), unique[k].second,
                                     [&](size_t t, size_t v) { return unique[t].second < v; });
    if (it != tails.begin()) before[k] = *std::prev(it);
    if (it == tails.end()) {
      tails.push_back(k);
    } else {
      *it = k;
    }
  }
  const size_t first = out.size();
  for (size_t k = tails.empty() ? unique.size() : tails.back(); k < unique.size(); k = before[k])
    out.push_back(unique[k]);
  std::reverse(out.begin() + static_cast<Pairs::difference_type>(first), out.end());
}

}  // namespace

Pairs align(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  Pairs out;
  size_t head = 0;
  while (head < a.size() && head < b.size() && a[head] == b[head]) {
    out.emplace_back(head, head);
    ++head;
  }
  size_t a1 = a.size();
  size_t b1 = b.size();
  while (a1 > head && b1 > head && a[a1 - 1] == b[b1 - 1]) {
    --a1;
    --b1;
  }
  const bool fits = (a1 - head + 1) <= kMaxCells / (b1 - head + 1);
  (fits ? align_by_table : align_unique)(a, head, a1, b, head, b1, out);
  for (; a1 < a.size(); ++a1, ++b1) out.emplace_back(a1, b1);
  return out;
}

}  // namespace millrace::diff
