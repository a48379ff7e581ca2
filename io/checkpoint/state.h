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

/// A tensor that one rank contributes to a checkpoint. The value is not copied.
struct LocalTensor {
  std::string name;
  /// An initialized dense tensor, selected rows or tensor array. An array is always whole; its
  /// elements that were never written stay unwritten.
  const Value* value = nullptr;
  /// Absent: the value is whole, and equal on every rank that has the name; the coordinator writes
  /// it. Otherwise the dims of the whole tensor, of which the value is the part at `offset`;
  /// several ranks may have the same part. Not for selected rows.
  std::optional<Dims> global_dims;
  Dims offset;
  /// For selected rows: other ranks have other rows of the same table. The rows are then joined in
  /// rank order.
  bool some_rows = false;
};

/// Bytes that one rank contributes to a checkpoint; they are returned unchanged.
struct LocalRecord {
  std::string name;
  std::string_view bytes;  ///< must stay valid until the call returns
};

/// What one rank contributes to a checkpoint. Names may differ between ranks.
struct LocalState {
  std::vector<LocalTensor> tensors;
  std::vector<LocalRecord> records;
  /// Notes for people and tools; those of the coordinator are stored. At most 1 MiB.
  std::map<std::string, std::string> user;

  /// Adds a tensor, table or array that is whole on this rank.
  void add(std::string name, const Value& value);
  /// Adds a part of a dense tensor.
  void add_part(std::string name, const Value& value, Dims global_dims, Dims offset);
  /// Adds some rows of a table; other ranks have other rows.
  void add_rows(std::string name, const Value& value);
  void add_record(std::string name, std::string_view bytes);
};

}  // namespace millrace::io
