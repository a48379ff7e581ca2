#include "io/multi_slot/line.h"

#include <limits>

#include "framework/base/errors.h"
#include "io/multi_slot/float_text.h"

namespace millrace::io {
namespace {

constexpr size_t kShownBytes = 24;

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

// The rest of a line.
class Cursor {
 public:
  explicit Cursor(std::string_view line) : at_(line.data()), end_(line.data() + line.size()) {}

  void skip_blanks() {
    while (at_ != end_ && is_blank(*at_)) ++at_;
  }
  [[nodiscard]] bool at_end() const { return at_ == end_; }
  [[nodiscard]] std::string_view rest() const { return {at_, end_}; }
  // The next word, for messages.
  [[nodiscard]] std::string word() const {
    const char* end = at_;
    while (end != end_ && !is_blank(*end) && end - at_ < static_cast<int64_t>(kShownBytes)) ++end;
    return at_ == end_ ? "the end of the line" : fmt::format("'{}'", std::string_view(at_, end));
  }

  // Reads digits up to a blank. On false the position is unchanged.
  bool read_unsigned(uint64_t& value) {
    constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
    const char* p = at_;
    uint64_t sum = 0;
    // nineteen digits cannot overflow
    for (const char* safe = end_ - p > 19 ? p + 19 : end_; p != safe; ++p) {
      const auto digit = static_cast<unsigned char>(*p - '0');
      if (digit > 9) break;
      sum = sum * 10 + digit;
    }
    for (; p != end_; ++p) {
      const auto digit = static_cast<unsigned char>(*p - '0');
      if (digit > 9) break;
      if (sum > (kMax - digit) / 10) return false;
      sum = sum * 10 + digit;
    }
    if (p == at_ || (p != end_ && !is_blank(*p))) return false;
    at_ = p;
    value = sum;
    return true;
  }

  bool read_id(int64_t& id) {
    uint64_t value = 0;
    if (at_ == end_ || *at_ != '-') {
      if (!read_unsigned(value)) return false;
      id = static_cast<int64_t>(value);
      return true;
    }
    const char* const begin = at_++;
    constexpr uint64_t kLowest = uint64_t{1} << 63U;
    if (read_unsigned(value) && value <= kLowest) {
      id = static_cast<int64_t>(0 - value);
      return true;
    }
    at_ = begin;
    return false;
  }

  bool read_float(float& value) {
    const char* const begin = at_ != end_ && *at_ == '+' ? at_ + 1 : at_;
    const auto [end, error] = float_from_chars(begin, end_, value);
    if (error != std::errc() || (end != end_ && !is_blank(*end))) return false;
    at_ = end;
    return true;
  }

 private:
  const char* at_;
  const char* end_;
};

Status read_values(Cursor& cursor, const Slot& slot, size_t count, SlotColumn& column) {
  const auto fail = [&](size_t done) {
    return InvalidData("slot '{}': expected {} numbers, number {} is {}", slot.name, count, done,
                       cursor.word());
  };
  if (slot.is_float) {
    for (size_t i = 0; i < count; ++i) {
      float value = 0;
      cursor.skip_blanks();
      if (!cursor.read_float(value)) return fail(i);
      if (slot.is_used) column.floats.push_back(value);
    }
    if (slot.is_used) column.ends.push_back(static_cast<int64_t>(column.floats.size()));
    return Ok();
  }
  for (size_t i = 0; i < count; ++i) {
    int64_t value = 0;
    cursor.skip_blanks();
    if (!cursor.read_id(value)) return fail(i);
    if (slot.is_used) column.ids.push_back(value);
  }
  if (slot.is_used) column.ends.push_back(static_cast<int64_t>(column.ids.size()));
  return Ok();
}

}  // namespace

void SlotRows::clear() {
  rows = 0;
  for (SlotColumn& column : columns) {
    column.floats.clear();
    column.ids.clear();
    column.ends.clear();
  }
}

void append_rows(const SlotRows& from, SlotRows& to) {
  to.columns.resize(from.columns.size());
  for (size_t s = 0; s < from.columns.size(); ++s) {
    const SlotColumn& source = from.columns[s];
    SlotColumn& column = to.columns[s];
    const int64_t shift = column.ends.empty() ? 0 : column.ends.back();
    for (const int64_t end : source.ends) column.ends.push_back(end + shift);
    column.floats.insert(column.floats.end(), source.floats.begin(), source.floats.end());
    column.ids.insert(column.ids.end(), source.ids.begin(), source.ids.end());
  }
  to.rows += from.rows;
}

Status parse_multi_slot_line(std::string_view line, std::span<const Slot> slots, SlotRows& to) {
  constexpr uint64_t kMaxCount = (uint64_t{1} << 31U) - 1;
  to.columns.resize(slots.size());
  Cursor cursor(line);
  for (size_t s = 0; s < slots.size(); ++s) {
    const Slot& slot = slots[s];
    uint64_t count = 0;
    cursor.skip_blanks();
    const std::string_view before = cursor.rest();
    if (!cursor.read_unsigned(count) || count < 1 || count > kMaxCount)
      return InvalidData("slot '{}': expected a count from 1 to {}, found {}", slot.name, kMaxCount,
                         Cursor(before).word());
    if (slot.is_dense && slot.is_used && count != slot.width())
      return InvalidData("slot '{}': expected {} numbers per instance, found a count of {}",
                         slot.name, slot.width(), count);
    MILLRACE_RETURN_IF_ERROR(read_values(cursor, slot, count, to.columns[s]));
  }
  cursor.skip_blanks();
  if (!cursor.at_end())
    return InvalidData("after the last slot '{}': expected the end of the line, found {}",
                       slots.empty() ? "" : slots.back().name, cursor.word());
  ++to.rows;
  return Ok();
}

}  // namespace millrace::io
