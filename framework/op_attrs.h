#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/attribute.h"
#include "framework/base/status.h"
#include "framework/op.h"

// Attributes of ops as C++ values. The types are bool, int32_t, int64_t, float, double, std::string
// and lists of these; BLOCK and VAR attributes are read through AttrValue. Code that knows the
// schema of an op uses ops/read_attr.h, which also knows the defaults.
namespace millrace {

/// The kind under which attributes of C++ type T are stored.
template <typename T>
struct AttrTraits;

template <>
struct AttrTraits<bool> {
  static constexpr AttrKind kKind = AttrKind::kBool;
};
template <>
struct AttrTraits<int32_t> {
  static constexpr AttrKind kKind = AttrKind::kInt;
};
template <>
struct AttrTraits<int64_t> {
  static constexpr AttrKind kKind = AttrKind::kLong;
};
template <>
struct AttrTraits<float> {
  static constexpr AttrKind kKind = AttrKind::kFloat;
};
template <>
struct AttrTraits<double> {
  static constexpr AttrKind kKind = AttrKind::kFloat64;
};
template <>
struct AttrTraits<std::string> {
  static constexpr AttrKind kKind = AttrKind::kString;
};
template <>
struct AttrTraits<std::vector<int32_t>> {
  static constexpr AttrKind kKind = AttrKind::kInts;
};
template <>
struct AttrTraits<std::vector<int64_t>> {
  static constexpr AttrKind kKind = AttrKind::kLongs;
};
template <>
struct AttrTraits<std::vector<float>> {
  static constexpr AttrKind kKind = AttrKind::kFloats;
};
template <>
struct AttrTraits<std::vector<double>> {
  static constexpr AttrKind kKind = AttrKind::kFloat64s;
};
template <>
struct AttrTraits<std::vector<std::string>> {
  static constexpr AttrKind kKind = AttrKind::kStrings;
};
template <>
struct AttrTraits<std::vector<bool>> {
  static constexpr AttrKind kKind = AttrKind::kBools;
};

/// Wraps a C++ value as an attribute value of the matching kind.
AttrValue make_attr(bool v);
AttrValue make_attr(int32_t v);
AttrValue make_attr(int64_t v);
AttrValue make_attr(float v);
AttrValue make_attr(double v);
AttrValue make_attr(std::string v);
AttrValue make_attr(const char* v);
AttrValue make_attr(std::vector<int32_t> v);
AttrValue make_attr(std::vector<int64_t> v);
AttrValue make_attr(std::vector<float> v);
AttrValue make_attr(std::vector<double> v);
AttrValue make_attr(std::vector<std::string> v);
AttrValue make_attr(std::vector<bool> v);

/// True if a value of kind `from` is accepted where the schema expects `to`: the same kind; one
/// integer kind for another (INT, LONG, BOOL); a float for a wider one; a single value for a list
/// of one; one integer list for another. Programs of different versions use these forms for the
/// same attribute (spec/model_format.md section 5).
bool attr_kind_converts(AttrKind from, AttrKind to);

/// The value converted to kind `to`; nullopt if the kind does not convert or an integer does not
/// fit.
std::optional<AttrValue> convert_attr(const AttrValue& value, AttrKind to);

/// The C++ value; the kind must match T.
/// Use get_attr() unless the value comes from convert_attr() to the kind of T.
template <typename T>
T attr_cast(const AttrValue& value);
template <>
bool attr_cast<bool>(const AttrValue& value);
template <>
int32_t attr_cast<int32_t>(const AttrValue& value);
template <>
int64_t attr_cast<int64_t>(const AttrValue& value);
template <>
float attr_cast<float>(const AttrValue& value);
template <>
double attr_cast<double>(const AttrValue& value);
template <>
std::string attr_cast<std::string>(const AttrValue& value);
template <>
std::vector<int32_t> attr_cast<std::vector<int32_t>>(const AttrValue& value);
template <>
std::vector<int64_t> attr_cast<std::vector<int64_t>>(const AttrValue& value);
template <>
std::vector<float> attr_cast<std::vector<float>>(const AttrValue& value);
template <>
std::vector<double> attr_cast<std::vector<double>>(const AttrValue& value);
template <>
std::vector<std::string> attr_cast<std::vector<std::string>>(const AttrValue& value);
template <>
std::vector<bool> attr_cast<std::vector<bool>>(const AttrValue& value);

/// The error for an attribute that is absent (found = null) or of the wrong kind. Its location
/// names op and attribute.
Status attr_error(const Op& op, llvm::StringRef name, AttrKind wanted, const AttrValue* found);

/// The attribute converted to T. Errors: kInvalidProgram with op and attribute if it is absent or
/// not convertible.
/// \code{.cc}
///   MILLRACE_ASSIGN_OR_RETURN(const int64_t axis, get_attr<int64_t>(op, "axis"));
/// \endcode
template <typename T>
StatusOr<T> get_attr(const Op& op, llvm::StringRef name) {
  const AttrValue* const value = op.find_attr(name);
  if (value != nullptr) {
    if (const std::optional<AttrValue> converted = convert_attr(*value, AttrTraits<T>::kKind)) {
      return attr_cast<T>(*converted);
    }
  }
  return attr_error(op, name, AttrTraits<T>::kKind, value);
}

/// The attribute converted to T, or the default if it is absent or not convertible.
template <typename T>
T get_attr_or(const Op& op, llvm::StringRef name, T fallback) {
  const AttrValue* const value = op.find_attr(name);
  if (value == nullptr) return fallback;
  const std::optional<AttrValue> converted = convert_attr(*value, AttrTraits<T>::kKind);
  return converted ? attr_cast<T>(*converted) : fallback;
}

}  // namespace millrace
