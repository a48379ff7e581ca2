#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace {

/// Element type of a tensor. The numbers are VarType.Type of the wire format.
enum class DType : int32_t {
  kBool = 0,  ///< one byte, 0 or 1
  kInt16 = 1,
  kInt32 = 2,
  kInt64 = 3,
  kFloat16 = 4,  ///< IEEE half precision
  kFloat32 = 5,
  kFloat64 = 6,
  /// Element type of the machine's size type; read from files, never computed with.
  kSizeT = 19,
  kUint8 = 20,
  kInt8 = 21,
  kBfloat16 = 22,    ///< the upper half of a float
  kComplex64 = 23,   ///< two floats
  kComplex128 = 24,  ///< two doubles
};

/// What a variable holds. The numbers are VarType.Type of the wire format, without the element
/// types.
enum class VarKind : int32_t {
  kLodTensor = 7,     ///< a dense tensor, which may have LoD
  kSelectedRows = 8,  ///< some rows of a matrix, with their row numbers
  /// Holders of what a run is fed and what it returns.
  kFeedMinibatch = 9,
  kFetchList = 10,
  /// Scopes of the iterations of a loop, kept for its gradient.
  kStepScopes = 11,
  /// Sequences by falling length, for recurrent blocks.
  kLodRankTable = 12,
  kLodTensorArray = 13,  ///< a list of tensors, one for each time step of a loop
  kPlaceList = 14,       ///< devices
  /// Pipelines of input data.
  kReader = 15,
  kRaw = 17,        ///< whatever the op that writes it stores
  kTuple = 18,      ///< var types in order; read from files, never computed with
  kString = 25,     ///< text
  kStrings = 26,    ///< a list of texts
  kVocab = 27,      ///< a map from texts to ids
  kFeedList = 28,   ///< what a run is fed, in newer releases
  kPstring = 29,    ///< elements of text; newer releases only
  kSparseCoo = 30,  ///< a sparse tensor with coordinates; newer releases only
  kSparseCsr = 31,  ///< a sparse matrix in compressed rows; newer releases only
};

/// Type tag of an attribute. The numbers are AttrType of the wire format.
enum class AttrKind : int32_t {
  kInt = 0,     ///< int32
  kFloat = 1,   ///< f32
  kString = 2,  ///< bytes; nearly always UTF-8
  kInts = 3,    ///< a list of int32; the plural names are lists of the singular ones
  kFloats = 4,
  kStrings = 5,
  kBool = 6,  ///< 0 or 1
  kBools = 7,
  /// Index of a block, such as the body of a loop.
  kBlock = 8,
  kLong = 9,  ///< int64
  kBlocks = 10,
  kLongs = 11,
  kFloat64s = 12,  ///< a list of f64; newer releases only
  /// Name of a var; newer releases only.
  kVar = 13,
  kVars = 14,
  kFloat64 = 15,  ///< newer releases only
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
