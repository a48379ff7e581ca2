#include "framework/import_attr.h"

#include <bit>
#include <cstring>

namespace millrace {
namespace {

using wire::Field;
using wire::Reader;
using wire::Type;
namespace f = wire::attr_field;

// Longer attributes (mostly op_callstack) are rarely repeated.
constexpr size_t kLongestCached = 128;

// All values an Attr message may carry; its kind determines which one is used.
struct Values {
  uint64_t integer = 0;
  float float32 = 0;
  double float64 = 0;
  llvm::StringRef string;
  std::vector<int32_t> ints;
  std::vector<int64_t> longs;
  std::vector<float> floats;
  std::vector<double> float64s;
  std::vector<std::string> strings;
  std::vector<uint8_t> bools;
  std::vector<Scalar> scalars;
};

// Field number that carries the value of a kind.
uint32_t value_field(AttrKind kind) {
  switch (kind) {
    case AttrKind::kInt:
      return f::kI;
    case AttrKind::kFloat:
      return f::kF;
    case AttrKind::kString:
      return f::kS;
    case AttrKind::kInts:
      return f::kInts;
    case AttrKind::kFloats:
      return f::kFloats;
    case AttrKind::kStrings:
      return f::kStrings;
    case AttrKind::kBool:
      return f::kB;
    case AttrKind::kBools:
      return f::kBools;
    case AttrKind::kBlock:
      return f::kBlockIdx;
    case AttrKind::kLong:
      return f::kL;
    case AttrKind::kBlocks:
      return f::kBlocksIdx;
    case AttrKind::kLongs:
      return f::kLongs;
    case AttrKind::kFloat64s:
      return f::kFloat64s;
    case AttrKind::kVar:
      return f::kVarName;
    case AttrKind::kVars:
      return f::kVarsName;
    case AttrKind::kFloat64:
      return f::kFloat64;
    case AttrKind::kScalar:
      return f::kScalar;
    case AttrKind::kScalars:
      return f::kScalars;
  }
  return 0;
}

bool is_list(AttrKind kind) {
  switch (kind) {
    case AttrKind::kInts:
    case AttrKind::kFloats:
    case AttrKind::kStrings:
    case AttrKind::kBools:
    case AttrKind::kBlocks:
    case AttrKind::kLongs:
    case AttrKind::kFloat64s:
    case AttrKind::kVars:
    case AttrKind::kScalars:
      return true;
    default:
      return false;
  }
}

Status wrong_wire(llvm::StringRef name, const Field& field) {
  return InvalidProgram("malformed program: attr '{}' has wire type {} in field {}",
                        std::string_view(name.data(), name.size()),
                        static_cast<uint32_t>(field.type), field.number);
}

template <typename T>
Status read_fixed(const Field& field, llvm::StringRef name, Type single, std::vector<T>& out) {
  if (field.type == single) {
    T value;
    std::memcpy(&value, &field.varint, sizeof value);
    out.push_back(value);
    return Ok();
  }
  if (field.type != Type::kBytes || field.bytes.size() % sizeof(T) != 0)
    return wrong_wire(name, field);
  for (size_t i = 0; i < field.bytes.size(); i += sizeof(T)) {
    T value;
    std::memcpy(&value, field.bytes.data() + i, sizeof value);
    out.push_back(value);
  }
  return Ok();
}

template <typename T>
Status read_varints(const Field& field, llvm::StringRef name, std::vector<T>& out) {
  if (field.type == Type::kVarint) {
    out.push_back(static_cast<T>(field.varint));
    return Ok();
  }
  if (field.type != Type::kBytes) return wrong_wire(name, field);
  return wire_each_varint(field.bytes, "list",
                          [&](uint64_t v) { out.push_back(static_cast<T>(v)); });
}

// Any non-zero number is true, even one that does not fit a byte.
Status read_bools(const Field& field, llvm::StringRef name, std::vector<uint8_t>& out) {
  std::vector<uint64_t> numbers;
  MILLRACE_RETURN_IF_ERROR(read_varints(field, name, numbers));
  for (const uint64_t number : numbers) out.push_back(number != 0 ? 1 : 0);
  return Ok();
}

Status read_scalar(const Field& field, llvm::StringRef name, std::vector<Scalar>& out) {
  if (field.type != Type::kBytes) return wrong_wire(name, field);
  Scalar scalar;
  Reader reader(field.bytes);
  Field member;
  while (reader.next(member)) {
    switch (member.number) {
      case 1:
        scalar.type = static_cast<Scalar::Type>(static_cast<int32_t>(member.varint));
        break;
      case 2:
        scalar.boolean = member.varint != 0;
        break;
      case 3:
        scalar.integer = static_cast<int64_t>(member.varint);
        break;
      case 4:
        scalar.real = std::bit_cast<double>(member.varint);
        break;
      case 5: {
        Reader parts(member.bytes);
        Field part;
        while (parts.next(part)) {
          (part.number == 1 ? scalar.real : scalar.imaginary) = std::bit_cast<double>(part.varint);
        }
        if (parts.failed()) return wrong_wire(name, field);
        break;
      }
      default:
        break;
    }
  }
  if (reader.failed()) return wrong_wire(name, field);
  out.push_back(scalar);
  return Ok();
}

// Reads the value field of the given kind into values.
Status read_value(const Field& field, llvm::StringRef name, AttrKind kind, Values& values) {
  const auto expect = [&](Type type) {
    return field.type == type ? Ok() : wrong_wire(name, field);
  };
  switch (kind) {
    case AttrKind::kInt:
    case AttrKind::kBlock:
    case AttrKind::kLong:
    case AttrKind::kBool:
      values.integer = field.varint;
      return expect(Type::kVarint);
    case AttrKind::kFloat:
      values.float32 = std::bit_cast<float>(static_cast<uint32_t>(field.varint));
      return expect(Type::kFixed32);
    case AttrKind::kFloat64:
      values.float64 = std::bit_cast<double>(field.varint);
      return expect(Type::kFixed64);
    case AttrKind::kString:
    case AttrKind::kVar:
      values.string = field.bytes;
      return expect(Type::kBytes);
    case AttrKind::kInts:
    case AttrKind::kBlocks:
      return read_varints(field, name, values.ints);
    case AttrKind::kLongs:
      return read_varints(field, name, values.longs);
    case AttrKind::kBools:
      return read_bools(field, name, values.bools);
    case AttrKind::kFloats:
      return read_fixed(field, name, Type::kFixed32, values.floats);
    case AttrKind::kFloat64s:
      return read_fixed(field, name, Type::kFixed64, values.float64s);
    case AttrKind::kStrings:
    case AttrKind::kVars:
      values.strings.push_back(field.bytes.str());
      return expect(Type::kBytes);
    case AttrKind::kScalar:
    case AttrKind::kScalars:
      return read_scalar(field, name, values.scalars);
  }
  return Ok();
}

AttrValue make_value(AttrKind kind, Values values) {
  switch (kind) {
    case AttrKind::kInt:
      return AttrValue::of_int(static_cast<int32_t>(values.integer));
    case AttrKind::kBlock:
      return AttrValue::of_block(static_cast<int32_t>(values.integer));
    case AttrKind::kLong:
      return AttrValue::of_long(static_cast<int64_t>(values.integer));
    case AttrKind::kBool:
      return AttrValue::of_bool(values.integer != 0);
    case AttrKind::kFloat:
      return AttrValue::of_float(values.float32);
    case AttrKind::kFloat64:
      return AttrValue::of_float64(values.float64);
    case AttrKind::kString:
      return AttrValue::of_string(values.string.str());
    case AttrKind::kVar:
      return AttrValue::of_var(values.string.str());
    case AttrKind::kInts:
      return AttrValue::of_ints(std::move(values.ints));
    case AttrKind::kBlocks:
      return AttrValue::of_blocks(std::move(values.ints));
    case AttrKind::kLongs:
      return AttrValue::of_longs(std::move(values.longs));
    case AttrKind::kBools:
      return AttrValue::of_bools(std::move(values.bools));
    case AttrKind::kFloats:
      return AttrValue::of_floats(std::move(values.floats));
    case AttrKind::kFloat64s:
      return AttrValue::of_float64s(std::move(values.float64s));
    case AttrKind::kStrings:
      return AttrValue::of_strings(std::move(values.strings));
    case AttrKind::kVars:
      return AttrValue::of_vars(std::move(values.strings));
    case AttrKind::kScalar:
      return AttrValue::of_scalar(values.scalars.empty() ? Scalar{} : values.scalars.back());
    case AttrKind::kScalars:
      return AttrValue::of_scalars(std::move(values.scalars));
  }
  return {};
}

}  // namespace

StatusOr<Attr> AttrReader::read(llvm::StringRef message) {
  if (message.size() > kLongestCached) return decode(message);
  const auto it = cache_.find(message);
  if (it != cache_.end()) return Attr(it->second);
  MILLRACE_ASSIGN_OR_RETURN(Attr attr, decode(message));
  cache_.try_emplace(message, attr);
  return attr;
}

StatusOr<Attr> AttrReader::decode(llvm::StringRef message) {
  std::optional<llvm::StringRef> name;
  std::optional<AttrKind> kind;
  Reader header(message);
  Field field;
  while (header.next(field)) {
    if (field.number == f::kName && field.type == Type::kBytes) name = field.bytes;
    if (field.number == f::kType && field.type == Type::kVarint) {
      kind = static_cast<AttrKind>(static_cast<int32_t>(field.varint));
    }
  }
  if (header.failed())
    return InvalidProgram("malformed program: cannot parse attr message: {}", header.error());
  if (!name || !kind)
    return InvalidProgram("malformed program: attr lacks its required {}", name ? "type" : "name");
  const std::string_view shown(name->data(), name->size());
  if (!is_valid(*kind)) {
    return InvalidProgram("malformed program: attr '{}' has unknown type {}", shown,
                          static_cast<int32_t>(*kind));
  }
  Values values;
  bool has_value = is_list(*kind);
  std::string unknown;
  const uint32_t wanted = value_field(*kind);
  Reader reader(message);
  while (reader.next(field)) {
    if (field.number == f::kName || field.number == f::kType) continue;
    if (field.number != wanted) {
      unknown.append(field.encoded.data(), field.encoded.size());
      continue;
    }
    MILLRACE_RETURN_IF_ERROR(read_value(field, *name, *kind, values));
    has_value = true;
  }
  Attr attr{names_.intern(*name), make_value(*kind, std::move(values)), !has_value, nullptr};
  if (!unknown.empty()) attr.unknown = std::make_shared<const std::string>(std::move(unknown));
  return attr;
}

}  // namespace millrace
