#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "ps/protocol/kinds.h"

namespace millrace::ps {

/// The arguments of a pull or push as received by a server, and whose call it is.
struct TableCall {
  int trainer = 0;
  uint64_t sequence = 0;  ///< of the trainer's call, equal for a repeat; 0: unknown
  std::span<const Value* const> args;
};

/// State of a table in a snapshot: tensors by name.
using TableState = std::map<std::string, Value>;

/// A typed table on a server. Source: spec/ps_runtime.md section 7.
///
/// Thread-safety: all calls from any threads.
class Table {
 public:
  Table() = default;
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  virtual ~Table() = default;

  /// "MemorySparseTable", ...
  [[nodiscard]] virtual std::string_view table_class() const = 0;
  /// Errors: kInvalidArgument, with expected and found, for arguments of the wrong type or size.
  /// A table without a variant for the kind treats it as kPlain or kUpdate.
  virtual Status pull(PullKind kind, const TableCall& call, Value& reply) = 0;
  virtual Status push(PushKind kind, const TableCall& call) = 0;
  /// Copies everything that a snapshot must have to continue with the same bits. No other thread
  /// may change the table meanwhile. Errors: kUnimplemented naming a class of tables without it;
  /// kResource.
  virtual StatusOr<TableState> state();
  /// Replaces the contents of the table by that state; pushes that are not applied are dropped.
  /// Errors: kInvalidData naming the part that is wrong, and its table class.
  virtual Status set_state(const TableState& state);
  /// Rows, or elements of a dense table.
  [[nodiscard]] virtual int64_t size() const = 0;
  [[nodiscard]] virtual int64_t memory_bytes() const = 0;
  /// Sets a factor for the table's learning rates, which must outlive the table.
  virtual void share_rate(const std::atomic<float>*) {}
};

/// The ids of an argument: an int64 tensor of any dims. Errors: kInvalidArgument naming the
/// argument.
StatusOr<std::span<const int64_t>> ids_of(const TableCall& call, size_t place);
/// The floats of an argument, of which there must be `count`. Errors: as above.
StatusOr<std::span<const float>> floats_of(const TableCall& call, size_t place, size_t count);

}  // namespace millrace::ps
