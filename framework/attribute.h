#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/name_table.h"
#include "framework/types.h"

namespace millrace {

/// A value of the SCALAR kinds. The wire message stores the type tag and one member.
struct Scalar {
  enum class Type : int32_t { kBool = 1, kLong = 2, kFloat64 = 3, kComplex = 4 };
  Type type = Type::kLong;
  bool boolean = false;  ///< of kBool
  int64_t integer = 0;   ///< of kLong
  double real = 0;       ///< of kFloat64 and kComplex
  double imaginary = 0;  ///< of kComplex
  bool operator==(const Scalar&) const = default;
};

/// One attribute value: a kind and its payload. Immutable; copies of lists and strings share their
/// storage. Thread-safety: concurrent readers.
class AttrValue {
 public:
  AttrValue() = default;  ///< INT 0

  /// One maker per kind. Kinds with the same payload differ by meaning: a BLOCK is the index of a
  /// block, a VAR the name of a var.
  static AttrValue of_int(int32_t v) { return {AttrKind::kInt, static_cast<int64_t>(v)}; }
  static AttrValue of_long(int64_t v) { return {AttrKind::kLong, v}; }
  static AttrValue of_block(int32_t v) { return {AttrKind::kBlock, static_cast<int64_t>(v)}; }
  static AttrValue of_bool(bool v) { return {AttrKind::kBool, static_cast<int64_t>(v)}; }
  static AttrValue of_float(float v) { return {AttrKind::kFloat, v}; }
  static AttrValue of_float64(double v) { return {AttrKind::kFloat64, v}; }
  static AttrValue of_string(std::string v) { return {AttrKind::kString, share(std::move(v))}; }
  static AttrValue of_var(std::string v) { return {AttrKind::kVar, share(std::move(v))}; }
  /// Lists; the kind of a list does not depend on its length.
  static AttrValue of_ints(std::vector<int32_t> v) {
    return {AttrKind::kInts, share(std::move(v))};
  }
  static AttrValue of_blocks(std::vector<int32_t> v) {
    return {AttrKind::kBlocks, share(std::move(v))};
  }
  static AttrValue of_longs(std::vector<int64_t> v) {
    return {AttrKind::kLongs, share(std::move(v))};
  }
  static AttrValue of_floats(std::vector<float> v) {
    return {AttrKind::kFloats, share(std::move(v))};
  }
  static AttrValue of_float64s(std::vector<double> v) {
    return {AttrKind::kFloat64s, share(std::move(v))};
  }
  static AttrValue of_strings(std::vector<std::string> v) {
    return {AttrKind::kStrings, share(std::move(v))};
  }
  static AttrValue of_vars(std::vector<std::string> v) {
    return {AttrKind::kVars, share(std::move(v))};
  }
  static AttrValue of_bools(std::vector<uint8_t> v) {
    return {AttrKind::kBools, share(std::move(v))};
  }
  static AttrValue of_scalar(Scalar v) {
    return {AttrKind::kScalar, share(std::vector<Scalar>{v})};
  }
  static AttrValue of_scalars(std::vector<Scalar> v) {
    return {AttrKind::kScalars, share(std::move(v))};
  }

  [[nodiscard]] AttrKind kind() const { return kind_; }

  /// Accessors. Each may be called only for the kinds listed above it.
  /// INT, LONG, BLOCK, BOOL
  [[nodiscard]] int64_t integer() const { return std::get<int64_t>(payload_); }
  /// BOOL
  [[nodiscard]] bool boolean() const { return std::get<int64_t>(payload_) != 0; }
  /// FLOAT
  [[nodiscard]] float float32() const { return std::get<float>(payload_); }
  /// FLOAT64
  [[nodiscard]] double float64() const { return std::get<double>(payload_); }
  /// STRING, VAR
  [[nodiscard]] llvm::StringRef string() const { return *std::get<Shared<std::string>>(payload_); }
  /// INTS, BLOCKS
  [[nodiscard]] llvm::ArrayRef<int32_t> ints() const { return list<int32_t>(); }
  /// LONGS
  [[nodiscard]] llvm::ArrayRef<int64_t> longs() const { return list<int64_t>(); }
  /// FLOATS
  [[nodiscard]] llvm::ArrayRef<float> floats() const { return list<float>(); }
  /// FLOAT64S
  [[nodiscard]] llvm::ArrayRef<double> float64s() const { return list<double>(); }
  /// STRINGS, VARS
  [[nodiscard]] llvm::ArrayRef<std::string> strings() const { return list<std::string>(); }
  /// BOOLS, one byte each, 0 or 1
  [[nodiscard]] llvm::ArrayRef<uint8_t> bools() const { return list<uint8_t>(); }
  /// SCALAR (one element), SCALARS
  [[nodiscard]] llvm::ArrayRef<Scalar> scalars() const { return list<Scalar>(); }

  /// Same kind and same payload; floats compare by bit pattern, so NaN equals itself.
  [[nodiscard]] bool operator==(const AttrValue& other) const;

 private:
  template <typename T>
  using Shared = std::shared_ptr<const T>;
  /// The type that stores each kind: integers and flags share one, and so do strings and var names.
  using Payload =
      std::variant<int64_t, float, double, Shared<std::string>, Shared<std::vector<int32_t>>,
                   Shared<std::vector<int64_t>>, Shared<std::vector<float>>,
                   Shared<std::vector<double>>, Shared<std::vector<std::string>>,
                   Shared<std::vector<uint8_t>>, Shared<std::vector<Scalar>>>;

  AttrValue(AttrKind kind, Payload payload) : payload_(std::move(payload)), kind_(kind) {}
  template <typename T>
  static Shared<T> share(T v) {
    return std::make_shared<const T>(std::move(v));
  }
  /// The list of T. Undefined for another kind: the accessors above state which kinds they are for.
  template <typename T>
  [[nodiscard]] llvm::ArrayRef<T> list() const {
    return *std::get<Shared<std::vector<T>>>(payload_);
  }

  Payload payload_ = int64_t{0};    ///< its alternative depends on the kind only
  AttrKind kind_ = AttrKind::kInt;  ///< as in the file, even where it is not what the schema has
};

/// A named attribute of an op.
/// An op has one entry per attribute of the file; attributes that are not listed have the default
/// of the op's schema (ops/read_attr.h).
struct Attr {
  NameId name;      ///< in the name table of the program
  AttrValue value;  ///< of any kind; only the verifier compares it with the schema
  /// True if the file named a scalar kind but carried no value; readers see zero or "".
  bool missing_value = false;
  /// Wire bytes of fields that the format does not define, kept for export. Null in nearly every
  /// attribute.
  std::shared_ptr<const std::string> unknown;
};

}  // namespace millrace
