#pragma once

#include "framework/tensor/lod.h"

namespace millrace::ops {

/// Functions that compute the LoD of sequence ops from other LoD. Before a run, LoD is empty and so
/// are the results.

/// All levels but the innermost.
Lod without_last(const Lod& lod);
/// The innermost level replaced by offsets.
Lod with_last(const Lod& lod, LodLevel offsets);
/// The result of repeating sequence i of X (row i if X has no LoD) as often as entry i of a level
/// is long: the number of rows, and the innermost offsets if X has LoD. If the counts differ, rows
/// is -1 and no error is reported.
struct Expanded {
  int64_t rows = -1;
  Lod lod;
};
Expanded expanded(const Lod& x, int64_t x_rows, llvm::ArrayRef<int64_t> repeats);

}  // namespace millrace::ops
