#include "io/json.h"

#include <algorithm>
#include <limits>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "io/check_json.h"

namespace millrace::io {
namespace {

// Builds the tree from the events of nlohmann's parser, which keeps its stack on the heap.
// Returning false stops parsing.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  [[nodiscard]] Status take_error() { return std::move(error_); }
  [[nodiscard]] JsonValue take() { return std::move(root_); }

  bool null() override { return add(JsonValue()); }
  bool boolean(bool value) override { return add(JsonValue(value)); }
  bool number_integer(int64_t value) override { return add(JsonValue(value)); }
  bool number_unsigned(uint64_t value) override {
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return add(JsonValue(static_cast<int64_t>(value)));
    return add(JsonValue(value));
  }
  bool number_float(double value, const std::string&) override { return add(JsonValue(value)); }
  bool string(std::string& value) override { return add(JsonValue(std::move(value))); }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override { return open(JsonValue(JsonMembers())); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(JsonValue(JsonItems())); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (!open_.back().names.insert(name).second) {
      return fail(InvalidData("expected one member {} in an object, found two", in_quotes(name)));
    }
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    return fail(InvalidData("not valid JSON at {}", place_of(position)));
  }

 private:
  struct Level {
    JsonValue value;
    std::string key;  // key of this value in the enclosing object
    std::set<std::string> names;
  };

  // "line 3, column 7" of the character that the parser read last, counted from 1.
  [[nodiscard]] std::string place_of(size_t position) const {
    const std::string_view before = text_.substr(0, position == 0 ? 0 : position - 1);
    const size_t start = before.rfind('\n') + 1;  // 0 without a line break
    return fmt::format("line {}, column {}{}", 1 + std::ranges::count(before, '\n'),
                       before.size() - start + 1,
                       position > text_.size() ? ": it ends too early" : "");
  }

  bool fail(Status status) {
    if (error_.ok()) error_ = std::move(status);
    return false;
  }

  bool count() {
    if (++values_ <= limits_.max_values) return true;
    return fail(
        {StatusCode::kResource, fmt::format("JSON of more than {} values", limits_.max_values)});
  }

  bool add(JsonValue value) { return count() && place(std::move(value)); }

  bool place(JsonValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (auto* items = std::get_if<JsonItems>(&open_.back().value.payload())) {
      items->push_back(std::move(value));
    } else {
      std::get<JsonMembers>(open_.back().value.payload())
          .emplace_back(std::move(key_), std::move(value));
    }
    return true;
  }

  bool open(JsonValue value) {
    if (!count()) return false;
    if (static_cast<int>(open_.size()) >= limits_.max_depth)
      return fail(InvalidData("JSON nested deeper than {} levels", limits_.max_depth));
    open_.push_back({std::move(value), std::move(key_), {}});
    return true;
  }

  bool close() {
    Level level = std::move(open_.back());
    open_.pop_back();
    key_ = std::move(level.key);
    return place(std::move(level.value));
  }

  std::string_view text_;
  JsonLimits limits_;
  int64_t values_ = 0;
  JsonValue root_;
  std::vector<Level> open_;
  std::string key_;
  Status error_;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
  const auto* const members = get_if<JsonMembers>();
  if (members == nullptr) return nullptr;
  const auto found = std::ranges::find(*members, name, &JsonMembers::value_type::first);
  return found == members->end() ? nullptr : &found->second;
}

std::optional<int64_t> JsonValue::count() const {
  const auto* const number = get_if<int64_t>();
  if (number == nullptr || *number < 0) return std::nullopt;
  return *number;
}

std::optional<std::vector<int64_t>> JsonValue::counts() const {
  const auto* const items = get_if<JsonItems>();
  if (items == nullptr) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const JsonValue& item : *items) {
    const std::optional<int64_t> number = item.count();
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

const char* JsonValue::kind() const {
  constexpr const char* kKinds[] = {"null",     "a boolean", "a number", "a number",
                                    "a number", "a string",  "a list",   "an object"};
  return kKinds[payload_.index()];
}

StatusOr<JsonValue> parse_json(std::string_view text, const JsonLimits& limits) {
  Builder builder(text, limits);
  if (nlohmann::json::sax_parse(text, &builder)) return builder.take();
  Status status = builder.take_error();
  return status.ok() ? InvalidData("not valid JSON") : std::move(status);
}

Status check_json(std::string_view text, JsonComments comments) {
  Builder builder(text, JsonLimits{});
  constexpr auto kJson = nlohmann::json::input_format_t::json;
  if (nlohmann::json::sax_parse(text, &builder, kJson, true, comments == JsonComments::kAllow))
    return Ok();
  Status status = builder.take_error();
  return status.ok() ? InvalidData("not valid JSON") : std::move(status);
}

}  // namespace millrace::io
