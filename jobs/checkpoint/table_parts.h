#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/status.h"
#include "framework/types.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/save_streams.h"
#include "ps/table/typed_table.h"

/// Parts of the state of typed tables (ps/table/state_parts.h) in snapshots.
namespace millrace::jobs {

/// A part as an array of numbers; empty if the server does not have it. Errors: kInvalidData for a
/// value of another type; those of reading.
template <typename T>
StatusOr<std::vector<T>> numbers_of(const io::Checkpoint& server, int id, const std::string& part,
                                    DType dtype) {
  const std::string name = ps::table_item(id, part);
  if (!server.manifest().has(name)) return std::vector<T>();
  MILLRACE_ASSIGN_OR_RETURN(const Value value, server.load(name));
  const auto* const tensor = value.get_if<Tensor>();
  if (tensor == nullptr || tensor->dtype() != dtype)
    return InvalidData("'{}': expected a tensor of {}", name, dtype_name(dtype))
        .in_file(server.folder());
  const auto values = tensor->template values<T>();
  return std::vector<T>(values.begin(), values.end());
}

/// Numbers in memory as a stream, which keeps them alive.
template <typename T>
io::StreamedTensor stream_of(std::string name, DType dtype, std::vector<T> values) {
  io::StreamedTensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.dims = {static_cast<int64_t>(values.size())};
  const auto kept = std::make_shared<const std::vector<T>>(std::move(values));
  tensor.read = [kept](uint64_t offset, std::span<std::byte> to) {
    if (!to.empty())
      std::memcpy(to.data(), reinterpret_cast<const std::byte*>(kept->data()) + offset, to.size());
    return Ok();
  };
  return tensor;
}

}  // namespace millrace::jobs
