#pragma once

#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "framework/tensor/value.h"
#include "ps/transport/codec.h"

/// Values for tests of transfers, and comparisons of received values with them.
namespace millrace::ps::test {

/// A tensor whose bytes count up from `first`.
inline Tensor make_tensor(DType dtype, std::vector<int64_t> dims, uint8_t first = 1) {
  Tensor tensor = std::move(Tensor::create(dtype, dims)).value();
  for (int64_t i = 0; i < tensor.bytes(); ++i)
    tensor.raw()[i] = static_cast<std::byte>(static_cast<uint8_t>(first + i));
  return tensor;
}

inline Value tensor_value(Tensor tensor) {
  Value value;
  value.as<Tensor>() = std::move(tensor);
  return value;
}

inline Value floats(std::vector<float> values) {
  Tensor tensor =
      std::move(Tensor::create(DType::kFloat32, {static_cast<int64_t>(values.size())})).value();
  std::memcpy(tensor.raw(), values.data(), values.size() * sizeof(float));
  return tensor_value(std::move(tensor));
}

inline Value rows_value(std::vector<int64_t> rows, int64_t height, int64_t width) {
  Value value;
  auto& to = value.as<SelectedRows>();
  to.value = make_tensor(DType::kFloat32, {static_cast<int64_t>(rows.size()), width}, 7);
  to.rows = std::move(rows);
  to.height = height;
  return value;
}

inline void expect_same(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.initialized(), b.initialized());
  if (!a.initialized()) return;
  EXPECT_EQ(a.dtype(), b.dtype());
  ASSERT_EQ(a.dims(), b.dims());
  EXPECT_EQ(a.lod(), b.lod());
  EXPECT_EQ(0, std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())));
}

inline void expect_same(const Value& a, const Value& b) {
  ASSERT_EQ(a.kind(), b.kind());
  if (a.holds<Tensor>()) expect_same(*a.get_if<Tensor>(), *b.get_if<Tensor>());
  if (a.holds<Strings>()) {
    EXPECT_EQ(*a.get_if<Strings>(), *b.get_if<Strings>());
  }
  if (a.holds<SelectedRows>()) {
    EXPECT_EQ(a.get_if<SelectedRows>()->rows, b.get_if<SelectedRows>()->rows);
    EXPECT_EQ(a.get_if<SelectedRows>()->height, b.get_if<SelectedRows>()->height);
    expect_same(a.get_if<SelectedRows>()->value, b.get_if<SelectedRows>()->value);
  }
  if (a.holds<TensorArray>()) {
    ASSERT_EQ(a.get_if<TensorArray>()->size(), b.get_if<TensorArray>()->size());
    for (size_t i = 0; i < a.get_if<TensorArray>()->size(); ++i)
      expect_same((*a.get_if<TensorArray>())[i], (*b.get_if<TensorArray>())[i]);
  }
}

/// One value of every kind that can be transferred.
inline std::vector<std::pair<std::string, Value>> all_kinds() {
  std::vector<std::pair<std::string, Value>> values;
  for (const DType dtype :
       {DType::kBool, DType::kInt16, DType::kInt32, DType::kInt64, DType::kFloat16, DType::kFloat32,
        DType::kFloat64, DType::kSizeT, DType::kUint8, DType::kInt8, DType::kBfloat16,
        DType::kComplex64, DType::kComplex128})
    values.emplace_back(std::string(dtype_name(dtype)), tensor_value(make_tensor(dtype, {3, 5})));
  values.emplace_back("scalar", tensor_value(make_tensor(DType::kFloat32, {})));
  values.emplace_back("empty", tensor_value(make_tensor(DType::kFloat32, {0, 4})));
  values.emplace_back("unset", tensor_value(Tensor()));
  values.emplace_back("nothing", Value());
  Tensor sequences = make_tensor(DType::kInt64, {5, 1});
  sequences.set_lod(Lod({{0, 2, 3}, {0, 1, 4, 5}}));
  values.emplace_back("sequences", tensor_value(std::move(sequences)));
  values.emplace_back("rows", rows_value({4, 0, 4}, 10, 2));
  values.emplace_back("no rows", rows_value({}, 10, 2));
  Value array;
  array.as<TensorArray>().push_back(make_tensor(DType::kFloat32, {2, 2}));
  array.as<TensorArray>().emplace_back();
  array.as<TensorArray>().push_back(make_tensor(DType::kInt8, {300}));
  values.emplace_back("array", std::move(array));
  Value strings;
  strings.as<Strings>() = {"a", "", std::string("\0\xff", 2), std::string(1000, 'x')};
  values.emplace_back("strings", std::move(strings));
  values.emplace_back("large", tensor_value(make_tensor(DType::kFloat32, {300000})));
  return values;
}

/// The bytes of a message, concatenated.
inline std::string flat(const OutgoingMessage& message) {
  std::string bytes = message.head;
  for (const std::span<const std::byte> piece : message.payload)
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  return bytes;
}

/// Passes bytes to a reader in chunks of at most `step`.
inline Status feed_by(MessageReader& reader, std::string_view bytes, size_t step) {
  for (size_t at = 0; at < bytes.size(); at += step) {
    const std::string_view piece = bytes.substr(at, step);
    MILLRACE_RETURN_IF_ERROR(reader.feed(std::as_bytes(std::span(piece.data(), piece.size()))));
  }
  return Ok();
}

}  // namespace millrace::ps::test
