#include "framework/base/text.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace millrace {
namespace {

// Length of the valid UTF-8 sequence at text[i], or 0. Overlong forms, surrogates and > U+10FFFF
// are invalid.
size_t utf8_length(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) { return static_cast<uint8_t>(text[k]); };
  const uint8_t lead = byte(i);
  if (lead < 0x80) return 1;
  size_t length = 0;
  uint32_t code = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
    code = lead & 0x1FU;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    code = lead & 0x0FU;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    code = lead & 0x07U;
  } else {
    return 0;
  }
  if (i + length > text.size()) return 0;
  for (size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xC0U) != 0x80U) return 0;
    code = (code << 6U) | (byte(i + k) & 0x3FU);
  }
  if (length == 3 && (code < 0x800 || (code >= 0xD800 && code <= 0xDFFF))) return 0;
  if (length == 4 && (code < 0x10000 || code > 0x10FFFF)) return 0;
  if (code >= 0x80 && code < 0xA0) return 0;  // C1 control characters also affect terminals
  return length;
}

void append_hex(std::string& out, char c) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += "\\x";
  out += kDigits[static_cast<uint8_t>(c) >> 4U];
  out += kDigits[static_cast<uint8_t>(c) & 0x0FU];
}

// Appends the character at text[i], escaped if it could change the state of a terminal; returns its
// length.
size_t append_printable(std::string& out, std::string_view text, size_t i) {
  const auto c = static_cast<uint8_t>(text[i]);
  const size_t length = (c < 0x20 || c == 0x7F) ? 0 : utf8_length(text, i);
  if (length == 0) {
    append_hex(out, text[i]);
    return 1;
  }
  out.append(text.substr(i, length));
  return length;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) i += append_printable(out, text, i);
  return out;
}

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  out.reserve(text.size() + 2);
  for (size_t i = 0; i < text.size();) {
    switch (text[i]) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        i += append_printable(out, text, i);
        continue;
    }
    ++i;
  }
  return out += '"';
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> previous(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(previous);
    previous.swap(row);
  }
  return previous[b.size()];
}

std::string nearest_name(std::string_view word, std::span<const std::string_view> candidates) {
  // Long words come from hostile files; do not spend quadratic time on them.
  constexpr size_t kLongestWord = 128;
  if (word.size() > kLongestWord) return {};
  size_t best = std::max<size_t>(1, word.size() / 3) + 1;
  std::string_view found;
  for (const std::string_view candidate : candidates) {
    const size_t gap = candidate.size() > word.size() ? candidate.size() - word.size()
                                                      : word.size() - candidate.size();
    if (gap >= best) continue;
    const size_t distance = edit_distance(word, candidate);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return std::string(found);
}

}  // namespace millrace
