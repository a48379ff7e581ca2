#pragma once

#include <memory>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/distinct_ids.h"
#include "kernels/gpu/ops/args.h"

namespace millrace::gpu {

/// Values by row number, grouped by row on the processor and copied to the device: rows that occur
/// several times are added there. Keeps its memory between calls.
class GroupedRows {
 public:
  /// \param rows   row of each line of values, in process memory
  /// \param left_out  lines of that row are dropped; -1: none
  /// \param ascending  the groups are in the order of their rows, not of their first lines
  /// Errors: kResource, kExecution.
  Status make(Memory& memory, llvm::ArrayRef<int64_t> rows, int64_t left_out,
              bool ascending = false);
  /// The distinct rows, in the order of the groups.
  [[nodiscard]] llvm::ArrayRef<int64_t> rows() const { return rows_; }
  /// Number of distinct rows.
  [[nodiscard]] int64_t count() const { return static_cast<int64_t>(rows_.size()); }
  /// \param values  lines with `width` elements
  [[nodiscard]] RowGroups groups(const float* values, int64_t width) const;

 private:
  void sort_groups();

  DistinctIds distinct_;
  std::vector<int64_t> rows_;     ///< distinct rows, in the order of the groups
  std::vector<int32_t> group_;    ///< by line; -1: dropped
  std::vector<std::byte> image_;  ///< what is copied: rows, starts, sources
  std::shared_ptr<Block> block_;  ///< the copy
  int64_t starts_at_ = 0;         ///< bytes before them in the image
  int64_t sources_at_ = 0;
};

/// Ids of an i32 or i64 tensor in device memory as numbers in process memory. Costs nothing if the
/// processor still has them (ResidentLayout::host()), else waits for the device. Errors: rejects
/// other types; kExecution.
Status read_ids(Memory& memory, const Tensor& ids, std::vector<int64_t>& to);

}  // namespace millrace::gpu
