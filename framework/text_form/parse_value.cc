// Parses attribute values of the text form; append_value() in value.cc writes them.

#include <bit>
#include <charconv>

#include "framework/base/errors.h"
#include "framework/text_form/cursor.h"

namespace millrace::text_form {
namespace {

// One element: a scalar kind and its value. A list consists of elements of one kind.
struct Element {
  AttrKind kind = AttrKind::kInt;
  int64_t integer = 0;
  double real = 0;   // FLOAT64
  float single = 0;  // FLOAT
  std::string text;
  Scalar scalar;
};

bool parse_decimal(llvm::StringRef text, auto& value) {
  // from_chars accepts neither a leading plus nor other spellings of infinity.
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
  return error == std::errc() && end == text.end();
}

bool looks_like_float(llvm::StringRef text) {
  return text.find_first_of(".e") != llvm::StringRef::npos || text == "inf" || text == "-inf";
}

// 0x with 8 digits holds the bits of a FLOAT, with 16 digits those of a FLOAT64.
bool parse_bits(llvm::StringRef digits, Element& out) {
  uint64_t bits = 0;
  if (digits.getAsInteger(16, bits)) return false;
  if (digits.size() == 8) {
    out.kind = AttrKind::kFloat;
    out.single = std::bit_cast<float>(static_cast<uint32_t>(bits));
    return true;
  }
  out.kind = AttrKind::kFloat64;
  out.real = std::bit_cast<double>(bits);
  return digits.size() == 16;
}

bool parse_number(llvm::StringRef word, Element& out) {
  if (word.startswith("0x")) return parse_bits(word.drop_front(2), out);
  if (word.endswith("d")) {
    out.kind = AttrKind::kFloat64;
    word = word.drop_back();
    return looks_like_float(word) && parse_decimal(word, out.real);
  }
  if (looks_like_float(word)) {
    out.kind = AttrKind::kFloat;
    return parse_decimal(word, out.single);
  }
  if (word.endswith("l")) {
    out.kind = AttrKind::kLong;
    return parse_decimal(word.drop_back(), out.integer);
  }
  int32_t small = 0;
  if (!parse_decimal(word, small)) return false;
  out.kind = AttrKind::kInt;
  out.integer = small;
  return true;
}

const char* const kValueForms =
    "an attribute value (5, 5l, 1.5, 1.5d, true, \"s\", ^2, %v, scalar(5l) or a list of these)";

Status parse_element(Cursor& cursor, Element& out);

// Parses what follows "scalar". Its members are elements but never scalars, so nothing is
// recursive.
Status parse_scalar(Cursor& cursor, Element& out) {
  out.kind = AttrKind::kScalar;
  MILLRACE_RETURN_IF_ERROR(cursor.take('(', "'(' after scalar"));
  MILLRACE_ASSIGN_OR_RETURN(const bool other, cursor.take_if('?'));
  if (other) {
    MILLRACE_ASSIGN_OR_RETURN(const int32_t type, cursor.int32("the number of a scalar type"));
    out.scalar.type = static_cast<Scalar::Type>(type);
    return cursor.take(')', "')'");
  }
  Element value;
  if (cursor.token().is_word("scalar")) return cursor.expected("the value of a scalar");
  MILLRACE_RETURN_IF_ERROR(parse_element(cursor, value));
  switch (value.kind) {
    case AttrKind::kBool:
      out.scalar.type = Scalar::Type::kBool;
      out.scalar.boolean = value.integer != 0;
      return cursor.take(')', "')'");
    case AttrKind::kLong:
      out.scalar.type = Scalar::Type::kLong;
      out.scalar.integer = value.integer;
      return cursor.take(')', "')'");
    case AttrKind::kFloat64:
      break;
    default:
      return cursor.wrong("expected a bool, a long or one or two float64 inside scalar()");
  }
  out.scalar.type = Scalar::Type::kFloat64;
  out.scalar.real = value.real;
  MILLRACE_ASSIGN_OR_RETURN(const bool complex, cursor.take_if(','));
  if (complex) {
    out.scalar.type = Scalar::Type::kComplex;
    Element imaginary;
    if (cursor.token().kind == TokenKind::kWord && !cursor.token().is_word("scalar"))
      MILLRACE_RETURN_IF_ERROR(parse_element(cursor, imaginary));
    if (imaginary.kind != AttrKind::kFloat64) return cursor.expected("a float64 (1.5d)");
    out.scalar.imaginary = imaginary.real;
  }
  return cursor.take(')', "')'");
}

Status parse_element(Cursor& cursor, Element& out) {
  const Token token = cursor.token();
  if (token.kind == TokenKind::kString) {
    out.kind = AttrKind::kString;
    MILLRACE_ASSIGN_OR_RETURN(out.text, cursor.name("a string"));
    return Ok();
  }
  if (token.is('%')) {
    MILLRACE_RETURN_IF_ERROR(cursor.advance());
    out.kind = AttrKind::kVar;
    MILLRACE_ASSIGN_OR_RETURN(out.text, cursor.name("a var name after %"));
    return Ok();
  }
  if (token.is('^')) {
    MILLRACE_RETURN_IF_ERROR(cursor.advance());
    out.kind = AttrKind::kBlock;
    MILLRACE_ASSIGN_OR_RETURN(out.integer, cursor.int32("a block index after ^"));
    return Ok();
  }
  if (token.kind != TokenKind::kWord) return cursor.expected(kValueForms);
  if (token.text == "scalar") {
    MILLRACE_RETURN_IF_ERROR(cursor.advance());
    return parse_scalar(cursor, out);
  }
  if (token.text == "true" || token.text == "false") {
    out.kind = AttrKind::kBool;
    out.integer = token.text == "true" ? 1 : 0;
  } else if (!parse_number(token.text, out)) {
    return cursor.expected(kValueForms);
  }
  return cursor.advance();
}

AttrValue single_value(Element element) {
  switch (element.kind) {
    case AttrKind::kInt:
      return AttrValue::of_int(static_cast<int32_t>(element.integer));
    case AttrKind::kLong:
      return AttrValue::of_long(element.integer);
    case AttrKind::kBlock:
      return AttrValue::of_block(static_cast<int32_t>(element.integer));
    case AttrKind::kBool:
      return AttrValue::of_bool(element.integer != 0);
    case AttrKind::kFloat:
      return AttrValue::of_float(element.single);
    case AttrKind::kFloat64:
      return AttrValue::of_float64(element.real);
    case AttrKind::kString:
      return AttrValue::of_string(std::move(element.text));
    case AttrKind::kVar:
      return AttrValue::of_var(std::move(element.text));
    default:
      return AttrValue::of_scalar(element.scalar);
  }
}

template <typename T, typename Get>
std::vector<T> collect(std::vector<Element>& elements, Get get) {
  std::vector<T> out;
  out.reserve(elements.size());
  for (Element& element : elements) out.push_back(static_cast<T>(get(element)));
  return out;
}

// The list of the given elements; nullopt if there is no list kind for them.
std::optional<AttrValue> list_value(AttrKind kind, std::vector<Element> elements) {
  const auto integer = [](const Element& e) { return e.integer; };
  const auto text = [](Element& e) { return std::move(e.text); };
  switch (kind) {
    case AttrKind::kInt:
    case AttrKind::kInts:
      return AttrValue::of_ints(collect<int32_t>(elements, integer));
    case AttrKind::kLong:
    case AttrKind::kLongs:
      return AttrValue::of_longs(collect<int64_t>(elements, integer));
    case AttrKind::kBlock:
    case AttrKind::kBlocks:
      return AttrValue::of_blocks(collect<int32_t>(elements, integer));
    case AttrKind::kBool:
    case AttrKind::kBools:
      return AttrValue::of_bools(collect<uint8_t>(elements, integer));
    case AttrKind::kFloat:
    case AttrKind::kFloats:
      return AttrValue::of_floats(collect<float>(elements, [](Element& e) { return e.single; }));
    case AttrKind::kFloat64:
    case AttrKind::kFloat64s:
      return AttrValue::of_float64s(collect<double>(elements, [](Element& e) { return e.real; }));
    case AttrKind::kString:
    case AttrKind::kStrings:
      return AttrValue::of_strings(collect<std::string>(elements, text));
    case AttrKind::kVar:
    case AttrKind::kVars:
      return AttrValue::of_vars(collect<std::string>(elements, text));
    case AttrKind::kScalar:
    case AttrKind::kScalars:
      return AttrValue::of_scalars(collect<Scalar>(elements, [](Element& e) { return e.scalar; }));
  }
  return std::nullopt;
}

StatusOr<AttrValue> parse_list(Cursor& cursor) {
  MILLRACE_RETURN_IF_ERROR(cursor.advance());
  std::vector<Element> elements;
  while (true) {
    MILLRACE_RETURN_IF_ERROR(cursor.skip_newlines());
    if (cursor.token().is(']')) {
      return cursor.wrong(elements.empty() ? "an empty list needs its kind, for example ints[]"
                                           : "expected a list element after ',', found ']'");
    }
    const Token start = cursor.token();
    Element element;
    MILLRACE_RETURN_IF_ERROR(parse_element(cursor, element));
    if (!elements.empty() && element.kind != elements.front().kind) {
      return cursor.wrong(fmt::format(
          "elements of a list must be of one kind: {} is {}, but the "
          "first is {}",
          start.shown(), attr_kind_name(element.kind), attr_kind_name(elements.front().kind)));
    }
    elements.push_back(std::move(element));
    MILLRACE_RETURN_IF_ERROR(cursor.skip_newlines());
    MILLRACE_ASSIGN_OR_RETURN(const bool more, cursor.take_if(','));
    if (!more) break;
  }
  MILLRACE_RETURN_IF_ERROR(cursor.take(']', "',' or ']'"));
  const AttrKind kind = elements.front().kind;
  return *list_value(kind, std::move(elements));
}

// Parses the rest of "ints[]" or "int?"; the cursor is just after the kind.
StatusOr<AttrValue> parse_kind_form(Cursor& cursor, AttrKind kind, bool& missing) {
  const bool is_list = attr_kind_name(kind).ends_with('s');
  if (is_list) {
    MILLRACE_RETURN_IF_ERROR(cursor.take('[', "'[]' after the kind of an empty list"));
    MILLRACE_RETURN_IF_ERROR(cursor.take(']', "']'; only empty lists name their kind"));
    return *list_value(kind, {});
  }
  MILLRACE_RETURN_IF_ERROR(cursor.take('?', "'?' after the kind of a missing value"));
  missing = true;
  Element empty;
  empty.kind = kind;
  return single_value(std::move(empty));
}

}  // namespace

StatusOr<AttrValue> parse_value(Cursor& cursor, bool& missing) {
  missing = false;
  if (cursor.token().is('[')) return parse_list(cursor);
  if (cursor.token().kind == TokenKind::kWord) {
    const llvm::StringRef word = cursor.token().text;
    const std::optional<AttrKind> kind = parse_attr_kind({word.data(), word.size()});
    if (kind) {
      MILLRACE_RETURN_IF_ERROR(cursor.advance());
      if (*kind == AttrKind::kScalar && cursor.token().is('(')) {
        Element element;
        MILLRACE_RETURN_IF_ERROR(parse_scalar(cursor, element));
        return single_value(std::move(element));
      }
      return parse_kind_form(cursor, *kind, missing);
    }
  }
  Element element;
  MILLRACE_RETURN_IF_ERROR(parse_element(cursor, element));
  return single_value(std::move(element));
}

}  // namespace millrace::text_form
