#include <cstring>

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/core/core.h"

namespace millrace::python {
namespace {

nb::dlpack::dtype dlpack_type(DType dtype) {
  using nb::dlpack::dtype_code;
  const auto type = [](dtype_code code, int bits) {
    return nb::dlpack::dtype{static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
  };
  switch (dtype) {
    case DType::kBool:
      return type(dtype_code::Bool, 8);
    case DType::kInt8:
      return type(dtype_code::Int, 8);
    case DType::kInt16:
      return type(dtype_code::Int, 16);
    case DType::kInt32:
      return type(dtype_code::Int, 32);
    case DType::kInt64:
      return type(dtype_code::Int, 64);
    case DType::kUint8:
      return type(dtype_code::UInt, 8);
    case DType::kSizeT:
      return type(dtype_code::UInt, 64);
    case DType::kFloat16:
      return type(dtype_code::Float, 16);
    case DType::kBfloat16:
      return type(dtype_code::UInt, 16);  // to_numpy() shows it as bfloat16
    case DType::kFloat32:
      return type(dtype_code::Float, 32);
    case DType::kFloat64:
      return type(dtype_code::Float, 64);
    case DType::kComplex64:
      return type(dtype_code::Complex, 64);
    case DType::kComplex128:
      return type(dtype_code::Complex, 128);
  }
  return {};
}

std::optional<DType> type_of(nb::dlpack::dtype dtype) {
  if (dtype == nb::dlpack::dtype{static_cast<uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1})
    return DType::kBfloat16;
  for (const DType known :
       {DType::kFloat32, DType::kInt64, DType::kInt32, DType::kFloat64, DType::kBool, DType::kUint8,
        DType::kInt8, DType::kInt16, DType::kFloat16, DType::kComplex64, DType::kComplex128,
        DType::kSizeT}) {
    if (dlpack_type(known) == dtype) return known;
  }
  return std::nullopt;
}

nb::object arrays_module() {
  return nb::module_::import_("millrace._arrays");
}

}  // namespace

nb::str to_text(const std::string& bytes) {
  PyObject* const text =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape");
  if (text == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(text);
}

std::string from_text(nb::handle text, const char* what) {
  if (PyBytes_Check(text.ptr()))
    return {PyBytes_AsString(text.ptr()), static_cast<size_t>(PyBytes_Size(text.ptr()))};
  if (!PyUnicode_Check(text.ptr()))
    throw nb::type_error((std::string(what) + ": expected a str").c_str());
  const nb::object bytes =
      nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogateescape"));
  if (!bytes.is_valid()) throw nb::python_error();
  return {PyBytes_AsString(bytes.ptr()), static_cast<size_t>(PyBytes_Size(bytes.ptr()))};
}

nb::object to_numpy(Array array) {
  auto* const kept = new Array(std::move(array));
  const nb::capsule owner(kept, [](void* memory) noexcept { delete static_cast<Array*>(memory); });
  const std::vector<size_t> shape(kept->dims.begin(), kept->dims.end());
  nb::object numpy = nb::cast(nb::ndarray<nb::numpy>(kept->bytes.data(), shape.size(), shape.data(),
                                                     owner, nullptr, dlpack_type(kept->dtype)));
  if (kept->dtype == DType::kBfloat16) numpy = arrays_module().attr("as_bfloat16")(numpy);
  if (!kept->lod.empty()) numpy = arrays_module().attr("with_lod")(numpy, nb::cast(kept->lod));
  return numpy;
}

namespace {

using Kept = BorrowedArrays::Kept;

bool read_type(Kept& kept) {
  const std::optional<DType> dtype = type_of(kept.array.dtype());
  if (dtype) kept.dtype = *dtype;
  return dtype.has_value();
}

// The caller's memory, or a copy that is contiguous and of a type that DLPack has.
Kept kept_of(const std::string& name, nb::handle value) {
  Kept kept;
  // masked elements are no numbers
  if (nb::hasattr(value, "mask") || !nb::try_cast(value, kept.array) || !read_type(kept)) {
    const auto plain = nb::cast<nb::tuple>(arrays_module().attr("plain")(name, value));
    kept.array = nb::cast<decltype(kept.array)>(plain[0]);
    const bool known = read_type(kept);
    if (nb::cast<bool>(plain[1])) {
      kept.dtype = DType::kBfloat16;
    } else if (!known) {
      const std::string text = "array '" + name + "': its element type has no counterpart";
      throw nb::type_error(text.c_str());
    }
  }
  for (size_t axis = 0; axis < kept.array.ndim(); ++axis)
    kept.dims.push_back(static_cast<int64_t>(kept.array.shape(axis)));
  if (nb::hasattr(value, "lod") && !nb::try_cast(value.attr("lod"), kept.lod)) {
    const std::string text = "array '" + name + "': lod: expected lists of offsets, found " +
                             nb::cast<std::string>(nb::repr(value.attr("lod")));
    throw nb::type_error(text.c_str());
  }
  return kept;
}

std::span<const std::byte> bytes_of(const Kept& kept) {
  return {static_cast<const std::byte*>(kept.array.data()), kept.array.nbytes()};
}

}  // namespace

Array from_numpy(const std::string& name, nb::handle value) {
  Kept kept = kept_of(name, value);
  const std::span<const std::byte> bytes = bytes_of(kept);
  return {kept.dtype, std::move(kept.dims), std::move(kept.lod), {bytes.begin(), bytes.end()}};
}

namespace {

// The same name may be a key twice: as a str and as bytes.
void expect_new(bool inserted, const std::string& name) {
  if (inserted) return;
  const std::string text = "array '" + name + "': expected one value, found two (str and bytes)";
  throw nb::type_error(text.c_str());
}

}  // namespace

BorrowedArrays::BorrowedArrays(const nb::dict& values) {
  for (const auto& [key, value] : values) {
    const std::string name = from_text(key, "name of an array");
    const Kept& kept = kept_.emplace_back(kept_of(name, value));
    expect_new(
        views_.emplace(name, ArrayView{kept.dtype, kept.dims, bytes_of(kept), kept.lod}).second,
        name);
  }
}

Arrays arrays_from(const nb::dict& values) {
  Arrays arrays;
  for (const auto& [key, value] : values) {
    const std::string name = from_text(key, "name of an array");
    expect_new(arrays.emplace(name, from_numpy(name, value)).second, name);
  }
  return arrays;
}

nb::dict to_dict(const std::vector<std::string>& names, Arrays arrays) {
  nb::dict values;
  for (const std::string& name : names) {
    const nb::str key = to_text(name);
    if (!values.contains(key)) values[key] = to_numpy(std::move(arrays.at(name)));
  }
  return values;
}

nb::dict to_dict(Arrays arrays) {
  nb::dict values;
  for (auto& [name, array] : arrays) values[to_text(name)] = to_numpy(std::move(array));
  return values;
}

}  // namespace millrace::python
