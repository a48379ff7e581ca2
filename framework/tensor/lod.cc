#include "framework/tensor/lod.h"

#include <fmt/format.h>

namespace millrace {

Lod::Lod(std::vector<LodLevel> levels) {
  if (!levels.empty()) levels_ = std::make_shared<const std::vector<LodLevel>>(std::move(levels));
}

const std::vector<LodLevel>& Lod::levels() const {
  static const auto* const kNone = new std::vector<LodLevel>();
  return levels_ == nullptr ? *kNone : *levels_;
}

Status Lod::check(int64_t rows) const {
  for (size_t i = 0; i < size(); ++i) {
    const LodLevel& offsets = (*levels_)[i];
    const auto bad = [&](const std::string& expected, int64_t found) {
      return Status(StatusCode::kInvalidData,
                    fmt::format("LoD level {}: expected {}, found {}", i, expected, found));
    };
    if (offsets.empty()) return bad("at least one offset", 0);
    if (offsets.front() != 0) return bad("a first offset of 0", offsets.front());
    for (size_t k = 1; k < offsets.size(); ++k) {
      if (offsets[k] < offsets[k - 1])
        return bad(fmt::format("an offset of at least {} at {}", offsets[k - 1], k), offsets[k]);
    }
    const bool is_last = i + 1 == size();
    const int64_t below = is_last ? rows : static_cast<int64_t>((*levels_)[i + 1].size()) - 1;
    if (offsets.back() != below) {
      return bad(fmt::format("a last offset of {} ({})", below,
                             is_last ? "the rows" : "the entries of the next level"),
                 offsets.back());
    }
  }
  return Ok();
}

std::string Lod::to_string() const {
  constexpr size_t kShown = 8;
  std::string out = "[";
  for (size_t i = 0; i < size(); ++i) {
    out += i == 0 ? "[" : ", [";
    const LodLevel& offsets = (*levels_)[i];
    for (size_t k = 0; k < offsets.size() && k < kShown; ++k)
      out += (k == 0 ? "" : ", ") + std::to_string(offsets[k]);
    if (offsets.size() > kShown) out += fmt::format(", ... {}", offsets.back());
    out += "]";
  }
  return out + "]";
}

bool Lod::operator==(const Lod& other) const {
  if (levels_ == other.levels_) return true;
  if (levels_ == nullptr || other.levels_ == nullptr) return false;
  return *levels_ == *other.levels_;
}

}  // namespace millrace
