#include "interchange/from_onnx/tensors.h"

#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "framework/base/errors.h"

namespace millrace::interchange {
namespace {

using ::onnx::TensorProto;

// Number of elements. Errors: a negative dim, or a product that no memory could hold.
StatusOr<int64_t> count_elements(const TensorProto& proto) {
  int64_t count = 1;
  for (const int64_t dim : proto.dims()) {
    if (dim < 0) return InvalidData("a constant has the dim {}, expected at least 0", dim);
    if (__builtin_mul_overflow(count, dim, &count) || count > (int64_t{1} << 48))
      return InvalidData("a constant has too many elements");
  }
  return count;
}

// Elements that are listed as numbers of the wire format, each as one T.
template <typename T, typename List>
Status copy_listed(const List& list, Tensor& to) {
  if (static_cast<int64_t>(list.size()) != to.numel())
    return InvalidData("a constant has {} values, expected {}", list.size(), to.numel());
  T* out = to.data<T>();
  for (const auto value : list) *out++ = static_cast<T>(value);
  return Ok();
}

Status listed_values(const TensorProto& proto, Tensor& to) {
  switch (to.dtype()) {
    case DType::kFloat32:
      return copy_listed<float>(proto.float_data(), to);
    case DType::kFloat64:
      return copy_listed<double>(proto.double_data(), to);
    case DType::kInt64:
      return copy_listed<int64_t>(proto.int64_data(), to);
    case DType::kInt32:
      return copy_listed<int32_t>(proto.int32_data(), to);
    case DType::kInt16:
      return copy_listed<int16_t>(proto.int32_data(), to);
    case DType::kInt8:
      return copy_listed<int8_t>(proto.int32_data(), to);
    case DType::kUint8:
      return copy_listed<uint8_t>(proto.int32_data(), to);
    case DType::kBool: {
      bool* out = to.data<bool>();
      for (const int32_t value : proto.int32_data()) *out++ = value != 0;
      return Ok();
    }
    default: {  // f16: the bits, as integers
      auto* out = reinterpret_cast<uint16_t*>(to.raw());
      for (const int32_t value : proto.int32_data()) *out++ = static_cast<uint16_t>(value);
      return Ok();
    }
  }
}

size_t listed_count(const TensorProto& proto, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return static_cast<size_t>(proto.float_data_size());
    case DType::kFloat64:
      return static_cast<size_t>(proto.double_data_size());
    case DType::kInt64:
      return static_cast<size_t>(proto.int64_data_size());
    default:
      return static_cast<size_t>(proto.int32_data_size());
  }
}

// Where the bytes of a constant are.
struct ExternalData {
  std::string location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
};

StatusOr<ExternalData> external_data(const TensorProto& proto) {
  ExternalData data;
  for (const auto& entry : proto.external_data()) {
    const std::string& value = entry.value();
    if (entry.key() == "location") {
      data.location = value;
    } else if (entry.key() == "offset" || entry.key() == "length") {
      uint64_t number = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
      if (error != std::errc() || end != value.data() + value.size())
        return InvalidData("external data: '{}' is no {}", value, entry.key());
      if (entry.key() == "offset")
        data.offset = number;
      else
        data.length = number;
    } else if (entry.key() != "checksum") {
      return Unimplemented("import of ONNX: the entry '{}' of external data", entry.key());
    }
  }
  return data;
}

// The path of a file of the model. Links and ".." must not lead out of the folder.
StatusOr<std::string> path_inside(const std::string& folder, const std::string& location) {
  namespace fs = std::filesystem;
  if (folder.empty())
    return Unimplemented("import of ONNX: data in the file '{}' beside the model", location);
  std::error_code error;
  const fs::path root = fs::weakly_canonical(folder, error);
  const fs::path path = fs::weakly_canonical(root / location, error);
  const fs::path relative = path.lexically_relative(root);
  if (error || location.empty() || fs::path(location).is_absolute() || relative.empty() ||
      *relative.begin() == "..")
    return InvalidData("external data: the file '{}' is not in the folder of the model", location);
  return path.string();
}

Status read_external(const TensorProto& proto, const std::string& folder, int64_t bytes,
                     std::string& content) {
  MILLRACE_ASSIGN_OR_RETURN(const ExternalData data, external_data(proto));
  MILLRACE_ASSIGN_OR_RETURN(const std::string path, path_inside(folder, data.location));
  if (data.length && *data.length != static_cast<uint64_t>(bytes))
    return InvalidData("external data in '{}': {} bytes, expected {}", data.location, *data.length,
                       bytes);
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error) return NotFound("external data: the file '{}': {}", data.location, error.message());
  if (data.offset > size || size - data.offset < static_cast<uint64_t>(bytes))
    return InvalidData("external data: '{}' has {} bytes, expected {} from {} on", data.location,
                       size, bytes, data.offset);
  content.resize(static_cast<size_t>(bytes));
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(data.offset));
  file.read(content.data(), bytes);
  if (!file) return IoError("external data: cannot read '{}'", data.location);
  return Ok();
}

}  // namespace

StatusOr<DType> dtype_from_onnx(int32_t type) {
  switch (type) {
    case TensorProto::BOOL:
      return DType::kBool;
    case TensorProto::UINT8:
      return DType::kUint8;
    case TensorProto::INT8:
      return DType::kInt8;
    case TensorProto::INT16:
      return DType::kInt16;
    case TensorProto::INT32:
      return DType::kInt32;
    case TensorProto::INT64:
      return DType::kInt64;
    case TensorProto::FLOAT16:
      return DType::kFloat16;
    case TensorProto::FLOAT:
      return DType::kFloat32;
    case TensorProto::DOUBLE:
      return DType::kFloat64;
    default: {
      const bool is_named = ::onnx::TensorProto_DataType_IsValid(type);
      const std::string name =
          is_named
              ? ::onnx::TensorProto_DataType_Name(static_cast<::onnx::TensorProto_DataType>(type))
              : std::to_string(type);
      return Unimplemented("import of ONNX: element type {}", name);
    }
  }
}

StatusOr<Tensor> tensor_from_onnx(const TensorProto& proto, const std::string& folder) {
  MILLRACE_ASSIGN_OR_RETURN(const DType dtype, dtype_from_onnx(proto.data_type()));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t count, count_elements(proto));
  if (proto.has_segment()) return Unimplemented("import of ONNX: a constant in segments");
  const int64_t bytes = count * static_cast<int64_t>(dtype_size(dtype));
  const Dims dims(proto.dims().begin(), proto.dims().end());
  const bool is_external = proto.data_location() == TensorProto::EXTERNAL;
  std::string read;
  if (is_external) MILLRACE_RETURN_IF_ERROR(read_external(proto, folder, bytes, read));
  const std::string& raw = is_external ? read : proto.raw_data();
  const bool has_raw = is_external || proto.has_raw_data();
  if (has_raw && static_cast<int64_t>(raw.size()) != bytes)
    return InvalidData("a constant has {} bytes, expected {}", raw.size(), bytes);
  if (!has_raw && static_cast<int64_t>(listed_count(proto, dtype)) != count)
    return InvalidData("a constant has {} values, expected {}", listed_count(proto, dtype), count);
  MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(dtype, dims));
  if (!has_raw) {
    MILLRACE_RETURN_IF_ERROR(listed_values(proto, tensor));
    return tensor;
  }
  if (bytes > 0) std::memcpy(tensor.raw(), raw.data(), static_cast<size_t>(bytes));
  if (dtype == DType::kBool)
    for (bool& value : tensor.values<bool>()) {
      uint8_t byte = 0;
      std::memcpy(&byte, &value, 1);
      value = byte != 0;
    }
  return tensor;
}

}  // namespace millrace::interchange
