#include "framework/base/json_writer.h"

#include <cmath>

#include <fmt/format.h>

#include "framework/base/text.h"

namespace millrace {

std::string json_string(std::string_view text) {
  std::string out = "\"";
  out.reserve(text.size() + 2);
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<uint8_t>(text[i]);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += text[i++];
    } else if (c < 0x20 || c == 0x7F) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
      ++i;
    } else if (c < 0x80) {
      out += text[i++];
    } else {
      // printable() knows which sequences are valid; its escapes get the backslash that JSON wants.
      size_t end = i;
      while (end < text.size() && static_cast<uint8_t>(text[end]) >= 0x80) ++end;
      for (const char p : printable(text.substr(i, end - i))) {
        if (p == '\\') out += '\\';
        out += p;
      }
      i = end;
    }
  }
  return out += '"';
}

void JsonWriter::line_break() {
  if (indent_ == 0 || (!levels_.empty() && levels_.back().on_one_line)) return;
  out_ += '\n';
  out_.append(levels_.size() * static_cast<size_t>(indent_), ' ');
}

void JsonWriter::separate() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (levels_.empty()) return;
  Level& level = levels_.back();
  if (!level.empty) out_ += level.on_one_line || indent_ == 0 ? ", " : ",";
  level.empty = false;
  line_break();
}

JsonWriter& JsonWriter::raw(std::string_view text) {
  separate();
  out_ += text;
  return *this;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  const bool inherited = !levels_.empty() && levels_.back().on_one_line;
  levels_.push_back(Level{true, inherited});
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  const Level level = levels_.back();
  levels_.pop_back();
  if (!level.empty && !level.on_one_line) line_break();
  out_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::inline_array() {
  levels_.back().on_one_line = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  out_ += json_string(name);
  out_ += ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  return raw(json_string(text));
}
JsonWriter& JsonWriter::value(bool flag) {
  return raw(flag ? "true" : "false");
}
JsonWriter& JsonWriter::value(int64_t number) {
  return raw(fmt::format("{}", number));
}
JsonWriter& JsonWriter::value(uint64_t number) {
  return raw(fmt::format("{}", number));
}
JsonWriter& JsonWriter::value(double number) {
  return std::isfinite(number) ? raw(fmt::format("{}", number)) : value(fmt::format("{}", number));
}
JsonWriter& JsonWriter::value(float number) {
  return std::isfinite(number) ? raw(fmt::format("{}", number)) : value(fmt::format("{}", number));
}
JsonWriter& JsonWriter::null() {
  return raw("null");
}

std::string JsonWriter::take() {
  return std::move(out_) + "\n";
}

}  // namespace millrace
