#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/save.h"

namespace millrace::testing {

/// A float tensor with consecutive numbers: element i is first + i.
inline Value counting(Dims dims, float first = 0) {
  Value value;
  Tensor& tensor = value.as<Tensor>();
  EXPECT_TRUE(tensor.resize(DType::kFloat32, dims).ok());
  std::iota(tensor.values<float>().begin(), tensor.values<float>().end(), first);
  return value;
}

/// A slice of a counting() tensor of the given dims.
inline Value counting_part(const Dims& dims, const io::Box& box, float first = 0) {
  const Value whole = counting(dims, first);
  Value part;
  Tensor& tensor = part.as<Tensor>();
  EXPECT_TRUE(tensor.resize(DType::kFloat32, box.shape).ok());
  if (box.numel() == 0) return part;
  const io::Runs runs(io::Box::whole(dims), box, 4);
  for (int64_t run = 0; run < runs.count(); ++run) {
    std::memcpy(tensor.raw() + runs.to(run), whole.get_if<Tensor>()->raw() + runs.from(run),
                static_cast<size_t>(runs.bytes()));
  }
  return part;
}

inline std::string bytes_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.bytes())};
}

/// True if both are tensors with the same dtype, shape and bits.
inline ::testing::AssertionResult same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.dims() != b.dims())
    return ::testing::AssertionFailure() << describe(a) << " and " << describe(b);
  if (bytes_of(a) != bytes_of(b)) return ::testing::AssertionFailure() << "contents differ";
  return ::testing::AssertionSuccess();
}

/// Calls body(rank) on one thread per rank; returns the statuses by rank.
template <typename Body>
std::vector<Status> on_ranks(int32_t ranks, Body body) {
  std::vector<Status> statuses(static_cast<size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { statuses[static_cast<size_t>(rank)] = body(rank); });
  threads.clear();
  return statuses;
}

/// "ok", or the full text of the status.
inline std::string outcome(const Status& status) {
  return status.ok() ? "ok" : status.to_string();
}
template <typename T>
std::string outcome(const StatusOr<T>& result) {
  return result.ok() ? "ok" : result.status().to_string();
}

}  // namespace millrace::testing
