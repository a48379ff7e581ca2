#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "framework/base/status.h"
#include "framework/tensor/value.h"

namespace millrace::ps {

/// A pull or push, as a server hears it.
struct TableCall {
  /// What is meant, where a table has several: "" (rows, gradients), "geo" (changed rows), "set"
  /// (values instead of gradients).
  std::string_view what;
  int trainer = 0;
  uint64_t sequence = 0;  ///< of the trainer's call, the same in a repeat; 0: not known
  std::span<const Value* const> args;
};

/// A typed table of a server. Source: spec/ps_runtime.md section 7.
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
  /// Errors: kInvalidArgument, with found against expected, for arguments that do not fit.
  virtual Status pull(const TableCall& call, Value& reply) = 0;
  virtual Status push(const TableCall& call) = 0;
  /// All trainers of a step have pushed (sync): what was put aside is applied.
  virtual Status pour() { return {}; }
  /// A trainer leaves: what it has put aside since the last step counts for nothing.
  virtual void drop(int trainer) { static_cast<void>(trainer); }
  /// Rows, or elements of a dense table.
  [[nodiscard]] virtual int64_t size() const = 0;
  [[nodiscard]] virtual int64_t memory_bytes() const = 0;
  /// A factor that the table's learning rates have from now on, which must outlive it.
  virtual void share_rate(const std::atomic<float>*) {}
};

/// The ids of an argument: an int64 tensor of any dims. Errors: kInvalidArgument naming the place.
StatusOr<std::span<const int64_t>> ids_of(const TableCall& call, size_t place);
/// The floats of an argument, of which there must be `count`. Errors: as above.
StatusOr<std::span<const float>> floats_of(const TableCall& call, size_t place, size_t count);

}  // namespace millrace::ps
