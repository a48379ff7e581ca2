#include "jobs/config/json_fields.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "io/check_json.h"

namespace millrace::jobs {
namespace {

using Json = nlohmann::json;

}  // namespace

std::string json_kind(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return in_quotes(value.get<std::string>());
    default:
      return value.dump();
  }
}

StatusOr<Json> parse_json_object(const std::string& text) {
  MILLRACE_RETURN_IF_ERROR(io::check_json(text));
  Json json = Json::parse(text, nullptr, false);
  if (json.is_object()) return json;
  return InvalidArgument("expected a JSON object, found {}", json_kind(json));
}

JsonFields::JsonFields(const Json& object, std::string path)
    : object_(object.is_object() ? &object : nullptr), path_(std::move(path)) {
  if (!object.is_object())
    status_ = InvalidArgument("'{}': expected an object, found {}", path_, json_kind(object));
}

std::string JsonFields::path_of(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

void JsonFields::fail(const std::string& key, const char* expected, const Json& found) {
  if (!status_.ok()) return;
  status_ =
      InvalidArgument("'{}': expected {}, found {}", path_of(key), expected, json_kind(found));
}

const Json* JsonFields::find(const std::string& key) {
  known_.insert(key);
  if (object_ == nullptr) return nullptr;
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

JsonFields& JsonFields::number(const std::string& key, double& out) {
  if (const Json* const value = find(key)) {
    // programs and tables have such numbers as float32
    const double found = value->is_number() ? value->get<double>() : 0;
    if (!value->is_number())
      fail(key, "a number", *value);
    else if (std::abs(found) > std::numeric_limits<float>::max())
      fail(key, "a number that float32 can hold", *value);
    else
      out = found;
  }
  return *this;
}

JsonFields& JsonFields::number(const std::string& key, std::optional<double>& out) {
  double value = 0;
  if (find(key) == nullptr) return *this;
  number(key, value);
  out = value;
  return *this;
}

JsonFields& JsonFields::number(const std::string& key, float& out) {
  double wide = out;
  number(key, wide);
  out = static_cast<float>(wide);
  return *this;
}

JsonFields& JsonFields::boolean(const std::string& key, bool& out) {
  if (const Json* const value = find(key)) {
    if (value->is_boolean())
      out = value->get<bool>();
    else
      fail(key, "true or false", *value);
  }
  return *this;
}

JsonFields& JsonFields::text(const std::string& key, std::string& out) {
  if (const Json* const value = find(key)) {
    if (value->is_string())
      out = value->get<std::string>();
    else
      fail(key, "a string", *value);
  }
  return *this;
}

JsonFields& JsonFields::numbers(const std::string& key, std::vector<double>& out) {
  if (const Json* const value = find(key)) {
    std::vector<double> items;
    if (!value->is_array()) fail(key, "a list of numbers", *value);
    for (const Json& item : value->is_array() ? *value : Json::array()) {
      if (!item.is_number()) {
        fail(key, "a list of numbers", item);
        return *this;
      }
      items.push_back(item.get<double>());
    }
    out = std::move(items);
  }
  return *this;
}

JsonFields& JsonFields::strings(const std::string& key, std::vector<std::string>& out) {
  if (const Json* const value = find(key)) {
    std::vector<std::string> items;
    if (!value->is_array()) fail(key, "a list of names", *value);
    for (const Json& item : value->is_array() ? *value : Json::array()) {
      if (!item.is_string()) {
        fail(key, "a list of names", item);
        return *this;
      }
      items.push_back(item.get<std::string>());
    }
    out = std::move(items);
  }
  return *this;
}

JsonFields& JsonFields::ignore(std::initializer_list<const char*> keys) {
  known_.insert(keys.begin(), keys.end());
  return *this;
}

JsonFields& JsonFields::require(const std::string& key) {
  if (status_.ok() && find(key) == nullptr)
    status_ = InvalidArgument("'{}': expected a value, found none", path_of(key));
  return *this;
}

std::vector<Status> JsonFields::unknown() const {
  std::vector<Status> found;
  if (object_ == nullptr) return found;
  const std::vector<std::string_view> names(known_.begin(), known_.end());
  for (const auto& [key, value] : object_->items()) {
    if (known_.contains(key)) continue;
    const std::string near = nearest_name(key, names);
    found.push_back(InvalidArgument("'{}': unknown key, expected one of {}", path_of(key),
                                    fmt::join(known_, ", ")));
    if (!near.empty())
      found.back() = std::move(found.back()).with_hint(fmt::format("did you mean '{}'?", near));
  }
  return found;
}

Status JsonFields::finish() {
  MILLRACE_RETURN_IF_ERROR(status_);
  std::vector<Status> found = unknown();
  return found.empty() ? Ok() : std::move(found.front());
}

}  // namespace millrace::jobs
