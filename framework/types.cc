#include "framework/types.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace millrace {
namespace {

template <typename Enum>
struct Named {
  Enum value;
  std::string_view name;
};

constexpr std::array<Named<DType>, 13> kDTypes = {{{DType::kBool, "bool"},
                                                   {DType::kInt16, "i16"},
                                                   {DType::kInt32, "i32"},
                                                   {DType::kInt64, "i64"},
                                                   {DType::kFloat16, "f16"},
                                                   {DType::kFloat32, "f32"},
                                                   {DType::kFloat64, "f64"},
                                                   {DType::kSizeT, "size_t"},
                                                   {DType::kUint8, "u8"},
                                                   {DType::kInt8, "i8"},
                                                   {DType::kBfloat16, "bf16"},
                                                   {DType::kComplex64, "c64"},
                                                   {DType::kComplex128, "c128"}}};

constexpr std::array<Named<VarKind>, 18> kVarKinds = {
    {{VarKind::kLodTensor, "lod_tensor"},
     {VarKind::kSelectedRows, "selected_rows"},
     {VarKind::kFeedMinibatch, "feed_minibatch"},
     {VarKind::kFetchList, "fetch_list"},
     {VarKind::kStepScopes, "step_scopes"},
     {VarKind::kLodRankTable, "lod_rank_table"},
     {VarKind::kLodTensorArray, "lod_tensor_array"},
     {VarKind::kPlaceList, "place_list"},
     {VarKind::kReader, "reader"},
     {VarKind::kRaw, "raw"},
     {VarKind::kTuple, "tuple"},
     {VarKind::kString, "string"},
     {VarKind::kStrings, "strings"},
     {VarKind::kVocab, "vocab"},
     {VarKind::kFeedList, "feed_list"},
     {VarKind::kPstring, "pstring"},
     {VarKind::kSparseCoo, "sparse_coo"},
     {VarKind::kSparseCsr, "sparse_csr"}}};

constexpr std::array<Named<AttrKind>, 18> kAttrKinds = {{{AttrKind::kInt, "int"},
                                                         {AttrKind::kFloat, "float"},
                                                         {AttrKind::kString, "string"},
                                                         {AttrKind::kInts, "ints"},
                                                         {AttrKind::kFloats, "floats"},
                                                         {AttrKind::kStrings, "strings"},
                                                         {AttrKind::kBool, "bool"},
                                                         {AttrKind::kBools, "bools"},
                                                         {AttrKind::kBlock, "block"},
                                                         {AttrKind::kLong, "long"},
                                                         {AttrKind::kBlocks, "blocks"},
                                                         {AttrKind::kLongs, "longs"},
                                                         {AttrKind::kFloat64s, "float64s"},
                                                         {AttrKind::kVar, "var"},
                                                         {AttrKind::kVars, "vars"},
                                                         {AttrKind::kFloat64, "float64"},
                                                         {AttrKind::kScalar, "scalar"},
                                                         {AttrKind::kScalars, "scalars"}}};

template <typename Table, typename Enum>
std::string_view name_in(const Table& table, Enum value) {
  const auto it =
      std::find_if(table.begin(), table.end(), [&](const auto& row) { return row.value == value; });
  return it == table.end() ? std::string_view("?") : it->name;
}

template <typename Enum, typename Table>
std::optional<Enum> value_in(const Table& table, std::string_view name) {
  const auto it =
      std::find_if(table.begin(), table.end(), [&](const auto& row) { return row.name == name; });
  return it == table.end() ? std::nullopt : std::optional<Enum>(it->value);
}

}  // namespace

bool is_valid(DType dtype) {
  return dtype_name(dtype) != "?";
}
bool is_valid(VarKind kind) {
  return var_kind_name(kind) != "?";
}
bool is_valid(AttrKind kind) {
  return attr_kind_name(kind) != "?";
}

std::string_view dtype_name(DType dtype) {
  return name_in(kDTypes, dtype);
}
std::string_view var_kind_name(VarKind kind) {
  return name_in(kVarKinds, kind);
}
std::string_view attr_kind_name(AttrKind kind) {
  return name_in(kAttrKinds, kind);
}

std::optional<DType> parse_dtype(std::string_view name) {
  return value_in<DType>(kDTypes, name);
}
std::optional<VarKind> parse_var_kind(std::string_view name) {
  return value_in<VarKind>(kVarKinds, name);
}
std::optional<AttrKind> parse_attr_kind(std::string_view name) {
  return value_in<AttrKind>(kAttrKinds, name);
}

int64_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUint8:
    case DType::kInt8:
      return 1;
    case DType::kInt16:
    case DType::kFloat16:
    case DType::kBfloat16:
      return 2;
    case DType::kInt32:
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
    case DType::kFloat64:
    case DType::kSizeT:
    case DType::kComplex64:
      return 8;
    case DType::kComplex128:
      return 16;
  }
  return 0;
}

bool is_floating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBfloat16;
}

bool is_integer(DType dtype) {
  return dtype == DType::kInt16 || dtype == DType::kInt32 || dtype == DType::kInt64 ||
         dtype == DType::kSizeT || dtype == DType::kUint8 || dtype == DType::kInt8;
}

}  // namespace millrace
