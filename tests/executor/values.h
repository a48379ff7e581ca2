#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "framework/tensor/layout.h"
#include "framework/tensor/value.h"

namespace millrace::executor {

/// A tensor of f32.
inline Value tensor_value(const std::vector<int64_t>& dims, const std::vector<float>& data,
                          Lod lod = {}) {
  Value value;
  auto& tensor = value.as<Tensor>();
  EXPECT_TRUE(tensor.resize(DType::kFloat32, dims).ok());
  std::copy(data.begin(), data.end(), tensor.data<float>());
  tensor.set_lod(std::move(lod));
  return value;
}

/// The elements of a tensor, in row-major order; empty without a tensor.
inline std::vector<float> floats(const Value& value) {
  const auto* const tensor = value.get_if<Tensor>();
  if (tensor == nullptr || !tensor->initialized()) return {};
  Tensor plain;  // kernels may keep parameters in special layouts
  EXPECT_TRUE(copy_plain(*tensor, plain).ok());
  const auto values = plain.values<float>();
  return {values.begin(), values.end()};
}

}  // namespace millrace::executor
