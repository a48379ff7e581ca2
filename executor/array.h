#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/types.h"

namespace millrace {

/// A dense array in row-major order, with the sequence boundaries (LoD) of fluid. A value type that
/// owns its bytes.
struct Array {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> dims;
  /// Offsets of every LoD level, outermost first; empty for most arrays.
  std::vector<std::vector<int64_t>> lod;
  /// Elements in native byte order; dtype_size(dtype) times the product of dims.
  std::vector<std::byte> bytes;

  /// An array of the element type that belongs to T: float, double, int32_t, int64_t, uint8_t,
  /// int8_t, int16_t. values.size() must be the product of dims.
  template <typename T>
  static Array of(std::vector<int64_t> dims, std::span<const T> values);
  /// The elements; T must belong to dtype.
  template <typename T>
  [[nodiscard]] std::span<const T> values() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

/// Arrays by var name.
using Arrays = std::map<std::string, Array>;

/// A dense array in row-major order that does not own its memory.
struct ArrayView {
  DType dtype = DType::kFloat32;
  std::span<const int64_t> dims;
  /// dtype_size(dtype) times the product of dims, in native byte order.
  std::span<const std::byte> bytes;
  /// Sequence boundaries: offsets of every LoD level, outermost first.
  std::span<const std::vector<int64_t>> lod;

  /// The elements; T must belong to dtype.
  template <typename T>
  [[nodiscard]] std::span<const T> values() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

/// Views by var name.
using ArrayViews = std::map<std::string, ArrayView>;

/// Views of arrays, which must outlive them.
ArrayViews views_of(const Arrays& arrays);

namespace detail {
/// Copies elements into an array; implements Array::of().
Array make_array(DType dtype, std::vector<int64_t> dims, const void* data, size_t bytes);
template <typename T>
struct ElementType;
template <>
struct ElementType<float> {
  static constexpr DType kType = DType::kFloat32;
};
template <>
struct ElementType<double> {
  static constexpr DType kType = DType::kFloat64;
};
template <>
struct ElementType<int32_t> {
  static constexpr DType kType = DType::kInt32;
};
template <>
struct ElementType<int64_t> {
  static constexpr DType kType = DType::kInt64;
};
template <>
struct ElementType<int16_t> {
  static constexpr DType kType = DType::kInt16;
};
template <>
struct ElementType<int8_t> {
  static constexpr DType kType = DType::kInt8;
};
template <>
struct ElementType<uint8_t> {
  static constexpr DType kType = DType::kUint8;
};
}  // namespace detail

template <typename T>
Array Array::of(std::vector<int64_t> dims, std::span<const T> values) {
  return detail::make_array(detail::ElementType<T>::kType, std::move(dims), values.data(),
                            values.size_bytes());
}

}  // namespace millrace
