#include "io/multi_slot/cells.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <string>

#include <xxhash.h>
#include <zlib.h>

#include "framework/base/errors.h"
#include "io/multi_slot/float_text.h"

namespace millrace::io {
namespace {

constexpr size_t kShownCellBytes = 24;

template <typename T>
bool parse_whole(std::string_view text, int base, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

// Also numbers above 2^63, which keep their bits.
bool parse_cell_id(std::string_view text, uint64_t& value) {
  if (!text.starts_with('-')) return parse_whole(text, 10, value);
  int64_t negative = 0;
  if (!parse_whole(text, 10, negative)) return false;
  value = static_cast<uint64_t>(negative);
  return true;
}

uint64_t fnv1a(std::string_view text, uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

uint32_t rotated(uint32_t x, unsigned by) {
  return (x << by) | (x >> (32U - by));
}

uint32_t scrambled(uint32_t k) {
  return rotated(k * 0xcc9e2d51U, 15) * 0x1b873593U;
}

// MurmurHash3_x86_32.
uint32_t murmur3(std::string_view text, uint32_t hash) {
  size_t at = 0;
  for (; at + 4 <= text.size(); at += 4) {
    uint32_t k = 0;
    for (unsigned i = 0; i < 4; ++i)
      k |= static_cast<uint32_t>(static_cast<unsigned char>(text[at + i])) << (8 * i);
    hash = rotated(hash ^ scrambled(k), 13) * 5 + 0xe6546b64U;
  }
  uint32_t rest = 0;
  for (size_t i = text.size(); i > at; --i)
    rest = (rest << 8U) | static_cast<unsigned char>(text[i - 1]);
  hash ^= scrambled(rest) ^ static_cast<uint32_t>(text.size());
  hash = (hash ^ (hash >> 16U)) * 0x85ebca6bU;
  hash = (hash ^ (hash >> 13U)) * 0xc2b2ae35U;
  return hash ^ (hash >> 16U);
}

uint64_t hash_text(std::string_view text, CellHash hash, uint64_t seed) {
  if (hash == CellHash::kXxh64) return XXH64(text.data(), text.size(), seed);
  if (hash == CellHash::kFnv1a) return fnv1a(text, 0xcbf29ce484222325ULL ^ seed);
  if (hash == CellHash::kMurmur3) return murmur3(text, static_cast<uint32_t>(seed));
  return crc32_z(seed, reinterpret_cast<const Bytef*>(text.data()), text.size());
}

Status bad_cell(const Slot& slot, size_t column, std::string_view expected, std::string_view cell) {
  return InvalidData("slot '{}', column {}: expected {}, found '{}'", slot.name, column, expected,
                     cell.substr(0, kShownCellBytes));
}

Status empty_cell(const Slot& slot, size_t column) {
  return InvalidData("slot '{}', column {}: the cell is empty and the slot has no default",
                     slot.name, column);
}

Status bad_id(const Slot& slot, size_t column, std::string_view cell) {
  const bool is_hexadecimal = slot.cells.hash == CellHash::kHexadecimal;
  return bad_cell(slot, column, is_hexadecimal ? "a hexadecimal number" : "a whole number", cell);
}

}  // namespace

int64_t ValueCounts::of(size_t slot, uint64_t value) const {
  const auto found = counts_[slot].find(value);
  return found == counts_[slot].end() ? 0 : found->second;
}

bool parse_cell_float(std::string_view text, float& value) {
  const char* const begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = float_from_chars(begin, text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

int64_t id_of(uint64_t value, size_t slot, const CellRule& rule, const ValueCounts* counts) {
  if (rule.min_count > 0 && counts->of(slot, value) < rule.min_count) return rule.rare_id;
  // the sum wraps around without overflow
  if (rule.buckets > 0) value = static_cast<uint64_t>(rule.first_id) + value % rule.buckets;
  return static_cast<int64_t>(value);
}

bool hash_cell(std::string_view cell, const CellRule& rule, uint64_t& value) {
  if (rule.hash == CellHash::kNone) return parse_cell_id(cell, value);
  if (rule.hash == CellHash::kHexadecimal) return parse_whole(cell, 16, value);
  if (rule.prefix.empty()) {
    value = hash_text(cell, rule.hash, rule.seed);
    return true;
  }
  std::string text = rule.prefix;
  text += cell;
  value = hash_text(text, rule.hash, rule.seed);
  return true;
}

DelimitedLines::DelimitedLines(const TextFormat& format, std::span<const Slot> slots,
                               const ValueCounts* counts)
    : format_(format), slots_(slots), counts_(counts), cells_(format.columns) {}

// Splits a line into cells_.
Status DelimitedLines::split(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  // with one column it would be an example of the defaults
  if (line.empty() && cells_.size() == 1) return InvalidData("the line is blank");
  size_t count = 0;
  const char* at = line.data();
  const char* const end = at + line.size();
  while (true) {
    const char* const found =
        at == end ? nullptr
                  : static_cast<const char*>(std::memchr(at, format_.separator, end - at));
    const char* const last = found == nullptr ? end : found;
    if (count < cells_.size()) cells_[count] = {at, last};
    ++count;
    if (found == nullptr) break;
    at = found + 1;
  }
  if (count == cells_.size()) return Ok();
  return InvalidData("expected {} columns, found {}", cells_.size(), count);
}

Status DelimitedLines::append_floats(const Slot& slot, SlotColumn& column) const {
  const CellRule& rule = slot.cells;
  for (size_t c = rule.first; c < rule.first + rule.count; ++c) {
    float value = 0;
    if (cells_[c].empty()) {
      if (!rule.missing) return empty_cell(slot, c);
      value = static_cast<float>(*rule.missing);
    } else if (!parse_cell_float(cells_[c], value)) {
      return bad_cell(slot, c, "a finite number", cells_[c]);
    }
    column.floats.push_back(value);
  }
  column.ends.push_back(static_cast<int64_t>(column.floats.size()));
  return Ok();
}

Status DelimitedLines::append_ids(size_t number, SlotColumn& column) const {
  const Slot& slot = slots_[number];
  const CellRule& rule = slot.cells;
  for (size_t c = rule.first; c < rule.first + rule.count; ++c) {
    if (cells_[c].empty()) {
      if (!rule.missing_id) return empty_cell(slot, c);
      column.ids.push_back(*rule.missing_id);
      continue;
    }
    uint64_t value = 0;
    if (!hash_cell(cells_[c], rule, value)) return bad_id(slot, c, cells_[c]);
    column.ids.push_back(id_of(value, number, rule, counts_));
  }
  column.ends.push_back(static_cast<int64_t>(column.ids.size()));
  return Ok();
}

Status DelimitedLines::append(std::string_view line, SlotRows& to) {
  to.columns.resize(slots_.size());
  MILLRACE_RETURN_IF_ERROR(split(line));
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (!slots_[s].is_used) continue;
    MILLRACE_RETURN_IF_ERROR(slots_[s].is_float ? append_floats(slots_[s], to.columns[s])
                                                : append_ids(s, to.columns[s]));
  }
  ++to.rows;
  return Ok();
}

Status DelimitedLines::count(std::string_view line, ValueCounts& to) {
  MILLRACE_RETURN_IF_ERROR(split(line));
  for (size_t s = 0; s < slots_.size(); ++s) {
    const CellRule& rule = slots_[s].cells;
    if (!slots_[s].is_used || rule.min_count == 0) continue;
    for (size_t c = rule.first; c < rule.first + rule.count; ++c) {
      uint64_t value = 0;
      if (cells_[c].empty()) continue;
      if (!hash_cell(cells_[c], rule, value)) return bad_id(slots_[s], c, cells_[c]);
      to.add(s, value);
    }
  }
  return Ok();
}

}  // namespace millrace::io
