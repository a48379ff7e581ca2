#include "framework/text_form/value.h"

#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "framework/base/text.h"
#include "framework/text_form/print.h"

namespace millrace {
namespace text_form {
namespace {

void append_long(std::string& out, int64_t value) {
  fmt::format_to(std::back_inserter(out), "{}l", value);
}

template <typename T>
void append_decimal(std::string& out, T value) {
  const size_t begin = out.size();
  fmt::format_to(std::back_inserter(out), "{}", value);
  // A float without point and exponent would be read back as an int.
  if (std::isfinite(value) && out.find_first_of(".e", begin) == std::string::npos) out += ".0";
}

void append_float32(std::string& out, float value) {
  if (std::isnan(value)) {
    fmt::format_to(std::back_inserter(out), "0x{:08x}", std::bit_cast<uint32_t>(value));
  } else {
    append_decimal(out, value);
  }
}

void append_float64(std::string& out, double value) {
  if (std::isnan(value)) {
    fmt::format_to(std::back_inserter(out), "0x{:016x}", std::bit_cast<uint64_t>(value));
  } else {
    append_decimal(out, value);
    out += 'd';
  }
}

void append_scalar(std::string& out, const Scalar& scalar) {
  out += "scalar(";
  switch (scalar.type) {
    case Scalar::Type::kBool:
      out += scalar.boolean ? "true" : "false";
      break;
    case Scalar::Type::kLong:
      append_long(out, scalar.integer);
      break;
    case Scalar::Type::kFloat64:
      append_float64(out, scalar.real);
      break;
    case Scalar::Type::kComplex:
      append_float64(out, scalar.real);
      out += ", ";
      append_float64(out, scalar.imaginary);
      break;
    default:
      fmt::format_to(std::back_inserter(out), "?{}", static_cast<int32_t>(scalar.type));
  }
  out += ')';
}

template <typename List, typename Each>
void append_list(std::string& out, AttrKind kind, const List& list, Each each) {
  if (list.empty()) {
    out += attr_kind_name(kind);
    out += "[]";
    return;
  }
  out += '[';
  bool first = true;
  for (const auto& element : list) {
    if (!first) out += ", ";
    first = false;
    each(element);
  }
  out += ']';
}

void append_list_value(std::string& out, const AttrValue& value) {
  const AttrKind kind = value.kind();
  switch (kind) {
    case AttrKind::kInts:
      return append_list(out, kind, value.ints(), [&](int32_t v) { out += std::to_string(v); });
    case AttrKind::kBlocks:
      return append_list(out, kind, value.ints(),
                         [&](int32_t v) { out += '^' + std::to_string(v); });
    case AttrKind::kLongs:
      return append_list(out, kind, value.longs(), [&](int64_t v) { append_long(out, v); });
    case AttrKind::kFloats:
      return append_list(out, kind, value.floats(), [&](float v) { append_float32(out, v); });
    case AttrKind::kFloat64s:
      return append_list(out, kind, value.float64s(), [&](double v) { append_float64(out, v); });
    case AttrKind::kStrings:
      return append_list(out, kind, value.strings(),
                         [&](const std::string& v) { out += in_quotes(v); });
    case AttrKind::kVars:
      return append_list(out, kind, value.strings(),
                         [&](const std::string& v) { out += '%' + print_name(v); });
    case AttrKind::kBools:
      return append_list(out, kind, value.bools(),
                         [&](uint8_t v) { out += v != 0 ? "true" : "false"; });
    default:
      return append_list(out, kind, value.scalars(),
                         [&](const Scalar& v) { append_scalar(out, v); });
  }
}

}  // namespace
}  // namespace text_form

void append_value(std::string& out, const AttrValue& value) {
  switch (value.kind()) {
    case AttrKind::kInt:
      out += std::to_string(value.integer());
      return;
    case AttrKind::kLong:
      return text_form::append_long(out, value.integer());
    case AttrKind::kBlock:
      out += '^' + std::to_string(value.integer());
      return;
    case AttrKind::kBool:
      out += value.boolean() ? "true" : "false";
      return;
    case AttrKind::kFloat:
      return text_form::append_float32(out, value.float32());
    case AttrKind::kFloat64:
      return text_form::append_float64(out, value.float64());
    case AttrKind::kString:
      out += in_quotes({value.string().data(), value.string().size()});
      return;
    case AttrKind::kVar:
      out += '%' + print_name(value.string());
      return;
    case AttrKind::kScalar:
      return text_form::append_scalar(out, value.scalars()[0]);
    default:
      return text_form::append_list_value(out, value);
  }
}

std::string print_value(const AttrValue& value) {
  std::string out;
  append_value(out, value);
  return out;
}

std::string hex_of(llvm::StringRef bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    out += kDigits[static_cast<uint8_t>(c) >> 4U];
    out += kDigits[static_cast<uint8_t>(c) & 0x0FU];
  }
  return out;
}

}  // namespace millrace
