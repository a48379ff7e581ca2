#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace {

/// Element type of a tensor. The numbers are VarType.Type of the wire format.
enum class DType : int32_t {
  kBool = 0,
  kInt16 = 1,
  kInt32 = 2,
  kInt64 = 3,
  kFloat16 = 4,
  kFloat32 = 5,
  kFloat64 = 6,
  /// Element type of the machine's size type; read from files, never computed with.
  kSizeT = 19,
  kUint8 = 20,
  kInt8 = 21,
  kBfloat16 = 22,
  kComplex64 = 23,
  kComplex128 = 24,
};

/// What a variable holds. The numbers are VarType.Type of the wire format, without the element
/// types.
enum class VarKind : int32_t {
  kLodTensor = 7,
  kSelectedRows = 8,
  /// Holders of what a run is fed and what it returns.
  kFeedMinibatch = 9,
  kFetchList = 10,
  /// Scopes of the iterations of a loop, kept for its gradient.
  kStepScopes = 11,
  /// Sequences by falling length, for recurrent blocks.
  kLodRankTable = 12,
  kLodTensorArray = 13,
  kPlaceList = 14,
  /// Pipelines of input data.
  kReader = 15,
  kRaw = 17,
  kTuple = 18,
  kString = 25,
  kStrings = 26,
  kVocab = 27,
  kFeedList = 28,
  kPstring = 29,
  kSparseCoo = 30,
  kSparseCsr = 31,
};

/// Type tag of an attribute. The numbers are AttrType of the wire format.
enum class AttrKind : int32_t {
  kInt = 0,
  kFloat = 1,
  kString = 2,
  kInts = 3,
  kFloats = 4,
  kStrings = 5,
  kBool = 6,
  kBools = 7,
  /// Index of a block, such as the body of a loop.
  kBlock = 8,
  kLong = 9,
  kBlocks = 10,
  kLongs = 11,
  kFloat64s = 12,
  /// Name of a var; newer releases only.
  kVar = 13,
  kVars = 14,
  kFloat64 = 15,
  /// A number with its own type tag; newer releases only.
  kScalar = 16,
  kScalars = 17,
};

/// True if the number is a member of the enum.
bool is_valid(DType dtype);
bool is_valid(VarKind kind);
bool is_valid(AttrKind kind);

/// Short name in the text form ("f32", "i64", "lod_tensor", "ints"); "?" for a number that is not a
/// member of the enum.
std::string_view dtype_name(DType dtype);
std::string_view var_kind_name(VarKind kind);
std::string_view attr_kind_name(AttrKind kind);

/// Inverse of the three functions above; nullopt for an unknown name.
std::optional<DType> parse_dtype(std::string_view name);
std::optional<VarKind> parse_var_kind(std::string_view name);
std::optional<AttrKind> parse_attr_kind(std::string_view name);

/// Size of one element in bytes; 0 for a number that is not an element type.
int64_t dtype_size(DType dtype);
/// True for f16, bf16, f32 and f64.
bool is_floating(DType dtype);
/// True for the signed and unsigned integers (not bool).
bool is_integer(DType dtype);

}  // namespace millrace
