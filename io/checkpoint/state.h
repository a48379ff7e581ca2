#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/tensor/value.h"
#include "framework/var.h"

namespace millrace::io {

/// A tensor that one rank hands to a checkpoint. The value stays where it is.
struct LocalTensor {
  std::string name;
  /// A dense tensor, selected rows or a tensor array, initialized. An array is always whole; its
  /// elements that were never written stay so.
  const Value* value = nullptr;
  /// Absent: the value is whole, and equal on every rank that has the name; the coordinator writes
  /// it. Else the dims of the whole tensor, of which the value is the part at `offset`; ranks may
  /// have equal parts. Not for selected rows.
  std::optional<Dims> global_dims;
  Dims offset;
  /// Of selected rows: other ranks have other rows of the same table. Rows are then joined in order
  /// of ranks.
  bool some_rows = false;
};

/// Bytes that one rank hands to a checkpoint; they are given back as they are.
struct LocalRecord {
  std::string name;
  std::string_view bytes;  ///< must stay until the call is over
};

/// What one rank hands to a checkpoint. Names may differ from rank to rank.
struct LocalState {
  std::vector<LocalTensor> tensors;
  std::vector<LocalRecord> records;
  /// Notes for people and tools; those of the coordinator are kept. 1 MiB at most.
  std::map<std::string, std::string> user;

  /// A tensor, table or array that is whole here.
  void add(std::string name, const Value& value);
  /// A part of a dense tensor.
  void add_part(std::string name, const Value& value, Dims global_dims, Dims offset);
  /// Some rows of a table that other ranks have other rows of.
  void add_rows(std::string name, const Value& value);
  void add_record(std::string name, std::string_view bytes);
};

}  // namespace millrace::io
