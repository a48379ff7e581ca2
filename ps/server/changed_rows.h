#pragma once

#include <mutex>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/BitVector.h>

#include "framework/base/status.h"
#include "framework/tensor/value.h"

namespace millrace::ps {

/// For every trainer, the rows of one table that changed since it last pulled (geo).
/// Source: spec/ps_runtime.md section 3. Thread-safety: any thread.
class ChangedRows {
 public:
  ChangedRows(int trainers, int64_t height);

  /// Rows have changed, for all trainers. Rows must be within the table.
  void add(llvm::ArrayRef<int64_t> rows);
  /// All rows changed.
  void add_all();
  /// The rows for a trainer, in ascending order, which are then forgotten; a repeated call gets
  /// those of the call before, too.
  std::vector<int64_t> take(int trainer, bool repeat);
  /// The trainer has the whole table.
  void forget(int trainer);

 private:
  struct Rows {
    llvm::BitVector changed;
    llvm::BitVector taken;  // by the last call, whose answer may have been lost
  };
  std::mutex mutex_;
  std::vector<Rows> trainers_;
};

}  // namespace millrace::ps
