#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// Quoted JSON string. Control characters become \u00HH. Bytes that are not valid UTF-8 become the
/// visible text \xHH, because JSON cannot represent arbitrary bytes.
std::string json_string(std::string_view text);

/// Builds one JSON document from start to end. Keys stay in the order of the calls, numbers are
/// exact, NaN and infinities become strings. It does not check that keys and values alternate: the
/// caller's calls must nest correctly. Thread-safety: one writer.
class JsonWriter {
 public:
  /// \param indent  spaces per level; 0 writes everything on one line
  explicit JsonWriter(int indent = 2) : indent_(indent) {}

  /// Open and close containers; they return the writer, so that calls can be chained.
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  /// The next value belongs to this key of the open object.
  JsonWriter& key(std::string_view name);

  /// Values: elements of an open array, or of the last key.
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool flag);
  JsonWriter& value(int64_t number);
  JsonWriter& value(int number) { return value(static_cast<int64_t>(number)); }
  JsonWriter& value(uint64_t number);
  /// Shortest text that reads back to the same double.
  JsonWriter& value(double number);
  /// Shortest text that reads back to the same float.
  JsonWriter& value(float number);
  JsonWriter& null();

  /// key(name).value(v) in one call.
  template <typename T>
  JsonWriter& member(std::string_view name, const T& v) {
    return key(name).value(v);
  }

  /// Puts all elements of the innermost open array on one line.
  JsonWriter& inline_array();

  /// The document, with a line feed at the end.
  [[nodiscard]] std::string take();

 private:
  /// State of one open object or array.
  struct Level {
    bool empty = true;         ///< no comma before the next value
    bool on_one_line = false;  ///< set by inline_array()
  };
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& raw(std::string_view text);
  /// Writes what must come before the next value: a comma, a line break, nothing after a key.
  void separate();
  void line_break();

  int indent_;                 ///< spaces per level
  bool after_key_ = false;     ///< the next value belongs to the key at the end of out_
  std::string out_;            ///< the text so far
  std::vector<Level> levels_;  ///< open containers, the innermost last
};

}  // namespace millrace
