#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/tensor/tensor.h"

/// Types and attributes of PIR programs in their JSON form.
namespace millrace::interchange::pir {

/// Type of a dense tensor, or of an array of such tensors.
struct TensorType {
  DType dtype = DType::kFloat32;  ///< of the elements
  Dims dims = {};                 ///< -1 is an unknown extent
  bool is_array = false;          ///< a tensor array; dims are those of its tensors
};

/// One attribute of an op.
struct Attr {
  std::string name;
  std::string json;  ///< its value with the type tag
};

/// True if PIR programs have the element type.
bool has_type(DType dtype);
/// The name of an element type in attributes: "float32".
std::string dtype_text(DType dtype);
/// The element type of such a name, and of a tag of a type: "0.t_f32". \returns nullopt for others
std::optional<DType> dtype_of_text(llvm::StringRef text);
std::optional<DType> dtype_of_tag(llvm::StringRef tag);
/// The version of the form that release 3.3.1 writes.
inline constexpr int kFormVersion = 4;
/// The JSON form of a type, and of a list of types.
std::string type_json(const TensorType& type);
std::string types_json(const std::vector<TensorType>& types);

/// Attributes of each kind. Numbers of kind f32 and f64 must be finite.
Attr of_bool(std::string name, bool value);
Attr of_i32(std::string name, int64_t value);
Attr of_i64(std::string name, int64_t value);
Attr of_f32(std::string name, double value);
Attr of_f64(std::string name, double value);
Attr of_string(std::string name, const std::string& value);
Attr of_bools(std::string name, const std::vector<bool>& values);
Attr of_i32s(std::string name, const std::vector<int64_t>& values);
Attr of_i64s(std::string name, const std::vector<int64_t>& values);
Attr of_f32s(std::string name, const std::vector<float>& values);
Attr of_f64s(std::string name, const std::vector<double>& values);
Attr of_strings(std::string name, const std::vector<std::string>& values);
/// A list of extents, which has a type of its own.
Attr of_dims(std::string name, const std::vector<int64_t>& values);
/// An element type.
Attr of_dtype(std::string name, DType dtype);
/// The element type that the op takes from its input.
Attr of_own_dtype(std::string name);
/// The device of a constant: any, or the CPU for values that a kernel reads on the host.
Attr of_place(bool on_host);

}  // namespace millrace::interchange::pir
