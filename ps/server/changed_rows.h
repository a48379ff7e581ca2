#pragma once

#include <mutex>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/BitVector.h>

#include "framework/base/status.h"
#include "framework/tensor/value.h"

namespace millrace::ps {

/// Geo: for every trainer, the rows of one table that changed since its last pull.
/// Source: spec/ps_runtime.md section 3. Thread-safety: any thread.
class ChangedRows {
 public:
  ChangedRows(int trainers, int64_t height);

  /// Marks rows as changed for all trainers. Rows must be within the table.
  void add(llvm::ArrayRef<int64_t> rows);
  /// Marks all rows as changed.
  void add_all();
  /// Returns and clears the changed rows of a trainer, in ascending order. A repeated call also
  /// returns the rows of the previous call.
  std::vector<int64_t> take(int trainer, bool repeat);
  /// Clears the changed rows of a trainer, which has just received the whole table.
  void forget(int trainer);

 private:
  struct Rows {
    llvm::BitVector changed;
    llvm::BitVector taken;  // by the last call, whose response may have been lost
  };
  std::mutex mutex_;
  std::vector<Rows> trainers_;
};

}  // namespace millrace::ps
