#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "framework/base/status.h"

namespace millrace::io {

class JsonValue;

/// Members of an object in document order.
using JsonMembers = std::vector<std::pair<std::string, JsonValue>>;
using JsonItems = std::vector<JsonValue>;

/// A value of a parsed JSON document. A plain value.
class JsonValue {
 public:
  /// Null, boolean, integers within int64 or uint64, other numbers, string, array, object.
  using Payload = std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string,
                               JsonItems, JsonMembers>;

  JsonValue() = default;
  explicit JsonValue(Payload payload) : payload_(std::move(payload)) {}

  [[nodiscard]] const Payload& payload() const { return payload_; }
  [[nodiscard]] Payload& payload() { return payload_; }
  /// The content as T; null if it is something else.
  template <typename T>
  [[nodiscard]] const T* get_if() const {
    return std::get_if<T>(&payload_);
  }
  /// The member of an object; null if this is not an object or has no such member.
  [[nodiscard]] const JsonValue* find(std::string_view name) const;
  /// The member of an object, as get_if() returns it; null if there is none or it holds no T.
  template <typename T>
  [[nodiscard]] const T* find_as(std::string_view name) const {
    const JsonValue* const member = find(name);
    return member == nullptr ? nullptr : member->get_if<T>();
  }
  /// A non-negative integer that fits int64; nullopt for anything else.
  [[nodiscard]] std::optional<int64_t> count() const;
  /// A list of such integers; nullopt for anything else.
  [[nodiscard]] std::optional<std::vector<int64_t>> counts() const;
  /// "an object", "a string", ... for messages.
  [[nodiscard]] const char* kind() const;

 private:
  Payload payload_ = nullptr;
};

/// Limits of a document.
struct JsonLimits {
  int64_t max_values = 4'000'000;
  int max_depth = 32;
};

/// Parses one JSON document (RFC 8259, UTF-8). Only whitespace may follow it.
///
/// Errors: kInvalidData with line and column for invalid JSON, and for an object with duplicate
/// members; kResource above a limit.
StatusOr<JsonValue> parse_json(std::string_view text, const JsonLimits& limits = {});

}  // namespace millrace::io
