#include "framework/op_attrs.h"

#include <limits>

#include "framework/base/errors.h"

namespace millrace {
namespace {

bool is_integer_kind(AttrKind kind) {
  return kind == AttrKind::kInt || kind == AttrKind::kLong || kind == AttrKind::kBool;
}

bool fits_int32(int64_t v) {
  return v >= std::numeric_limits<int32_t>::min() && v <= std::numeric_limits<int32_t>::max();
}

// Element kind of a list kind; other kinds are returned unchanged.
AttrKind element_kind(AttrKind kind) {
  switch (kind) {
    case AttrKind::kInts:
      return AttrKind::kInt;
    case AttrKind::kLongs:
      return AttrKind::kLong;
    case AttrKind::kFloats:
      return AttrKind::kFloat;
    case AttrKind::kFloat64s:
      return AttrKind::kFloat64;
    case AttrKind::kStrings:
      return AttrKind::kString;
    case AttrKind::kBools:
      return AttrKind::kBool;
    default:
      return kind;
  }
}

// Elements of an integer list, or of a single integer as a list of one.
std::optional<std::vector<int64_t>> integers(const AttrValue& value) {
  switch (value.kind()) {
    case AttrKind::kInt:
    case AttrKind::kLong:
    case AttrKind::kBool:
      return std::vector<int64_t>{value.integer()};
    case AttrKind::kInts:
      return std::vector<int64_t>(value.ints().begin(), value.ints().end());
    case AttrKind::kLongs:
      return value.longs().vec();
    case AttrKind::kBools:
      return std::vector<int64_t>(value.bools().begin(), value.bools().end());
    default:
      return std::nullopt;
  }
}

std::optional<std::vector<double>> reals(const AttrValue& value) {
  switch (value.kind()) {
    case AttrKind::kFloat:
      return std::vector<double>{value.float32()};
    case AttrKind::kFloat64:
      return std::vector<double>{value.float64()};
    case AttrKind::kFloats:
      return std::vector<double>(value.floats().begin(), value.floats().end());
    case AttrKind::kFloat64s:
      return value.float64s().vec();
    default:
      return std::nullopt;
  }
}

std::optional<AttrValue> from_integers(const std::vector<int64_t>& v, AttrKind to) {
  if (to == AttrKind::kInt || to == AttrKind::kLong || to == AttrKind::kBool) {
    if (v.size() != 1) return std::nullopt;
    if (to == AttrKind::kLong) return AttrValue::of_long(v[0]);
    if (to == AttrKind::kBool) return AttrValue::of_bool(v[0] != 0);
    if (!fits_int32(v[0])) return std::nullopt;
    return AttrValue::of_int(static_cast<int32_t>(v[0]));
  }
  if (to == AttrKind::kLongs) return AttrValue::of_longs(v);
  if (to == AttrKind::kBools) return AttrValue::of_bools(std::vector<uint8_t>(v.begin(), v.end()));
  std::vector<int32_t> narrow;
  for (const int64_t x : v) {
    if (!fits_int32(x)) return std::nullopt;
    narrow.push_back(static_cast<int32_t>(x));
  }
  return AttrValue::of_ints(std::move(narrow));
}

std::optional<AttrValue> from_reals(const std::vector<double>& v, AttrKind to) {
  switch (to) {
    case AttrKind::kFloat:
      return AttrValue::of_float(static_cast<float>(v[0]));
    case AttrKind::kFloat64:
      return AttrValue::of_float64(v[0]);
    case AttrKind::kFloats:
      return AttrValue::of_floats(std::vector<float>(v.begin(), v.end()));
    default:
      return AttrValue::of_float64s(v);
  }
}

}  // namespace

AttrValue make_attr(bool v) {
  return AttrValue::of_bool(v);
}
AttrValue make_attr(int32_t v) {
  return AttrValue::of_int(v);
}
AttrValue make_attr(int64_t v) {
  return AttrValue::of_long(v);
}
AttrValue make_attr(float v) {
  return AttrValue::of_float(v);
}
AttrValue make_attr(double v) {
  return AttrValue::of_float64(v);
}
AttrValue make_attr(std::string v) {
  return AttrValue::of_string(std::move(v));
}
AttrValue make_attr(const char* v) {
  return AttrValue::of_string(v);
}
AttrValue make_attr(std::vector<int32_t> v) {
  return AttrValue::of_ints(std::move(v));
}
AttrValue make_attr(std::vector<int64_t> v) {
  return AttrValue::of_longs(std::move(v));
}
AttrValue make_attr(std::vector<float> v) {
  return AttrValue::of_floats(std::move(v));
}
AttrValue make_attr(std::vector<double> v) {
  return AttrValue::of_float64s(std::move(v));
}
AttrValue make_attr(std::vector<std::string> v) {
  return AttrValue::of_strings(std::move(v));
}
AttrValue make_attr(std::vector<bool> v) {
  return AttrValue::of_bools(std::vector<uint8_t>(v.begin(), v.end()));
}

bool attr_kind_converts(AttrKind from, AttrKind to) {
  if (from == to) return true;
  const AttrKind from_element = element_kind(from);
  const AttrKind to_element = element_kind(to);
  const bool from_list = from_element != from;
  const bool to_list = to_element != to;
  if (from_list && !to_list) return false;
  if (is_integer_kind(from_element) && is_integer_kind(to_element)) return true;
  const auto real = [](AttrKind k) { return k == AttrKind::kFloat || k == AttrKind::kFloat64; };
  if (real(from_element) && real(to_element)) return true;
  return from_element == to_element;
}

std::optional<AttrValue> convert_attr(const AttrValue& value, AttrKind to) {
  if (value.kind() == to) return value;
  if (!attr_kind_converts(value.kind(), to)) return std::nullopt;
  if (const auto v = integers(value)) return from_integers(*v, to);
  if (const auto v = reals(value)) return from_reals(*v, to);
  if (value.kind() == AttrKind::kString) return AttrValue::of_strings({value.string().str()});
  return std::nullopt;
}

template <>
bool attr_cast<bool>(const AttrValue& value) {
  return value.boolean();
}
template <>
int32_t attr_cast<int32_t>(const AttrValue& value) {
  return static_cast<int32_t>(value.integer());
}
template <>
int64_t attr_cast<int64_t>(const AttrValue& value) {
  return value.integer();
}
template <>
float attr_cast<float>(const AttrValue& value) {
  return value.float32();
}
template <>
double attr_cast<double>(const AttrValue& value) {
  return value.float64();
}
template <>
std::string attr_cast<std::string>(const AttrValue& value) {
  return value.string().str();
}
template <>
std::vector<int32_t> attr_cast<std::vector<int32_t>>(const AttrValue& value) {
  return value.ints().vec();
}
template <>
std::vector<int64_t> attr_cast<std::vector<int64_t>>(const AttrValue& value) {
  return value.longs().vec();
}
template <>
std::vector<float> attr_cast<std::vector<float>>(const AttrValue& value) {
  return value.floats().vec();
}
template <>
std::vector<double> attr_cast<std::vector<double>>(const AttrValue& value) {
  return value.float64s().vec();
}
template <>
std::vector<std::string> attr_cast<std::vector<std::string>>(const AttrValue& value) {
  return value.strings().vec();
}
template <>
std::vector<bool> attr_cast<std::vector<bool>>(const AttrValue& value) {
  return std::vector<bool>(value.bools().begin(), value.bools().end());
}

Status attr_error(const Op& op, llvm::StringRef name, AttrKind wanted, const AttrValue* found) {
  Location where = op.location();
  where.attr = name.str();
  if (found == nullptr) {
    return InvalidProgram("attribute '{}' is missing (expected {})",
                          std::string_view(name.data(), name.size()), attr_kind_name(wanted))
        .at(std::move(where));
  }
  return InvalidProgram("attribute '{}' has the wrong type (expected {}, found {})",
                        std::string_view(name.data(), name.size()), attr_kind_name(wanted),
                        attr_kind_name(found->kind()))
      .at(std::move(where));
}

}  // namespace millrace
