#pragma once

#include "framework/tensor/lod.h"

namespace millrace::ops {

/// LoD that sequence ops derive from LoD alone. Before a run it is empty and so are the results.

/// All levels but the innermost.
Lod without_last(const Lod& lod);
/// The innermost level replaced by offsets.
Lod with_last(const Lod& lod, LodLevel offsets);
/// Rows that result if entry i of a level repeats sequence i of X (row i if X has no LoD), and the
/// innermost offsets of the result where X has LoD. Fails quietly with rows -1 if the counts
/// differ.
struct Expanded {
  int64_t rows = -1;
  Lod lod;
};
Expanded expanded(const Lod& x, int64_t x_rows, llvm::ArrayRef<int64_t> repeats);

}  // namespace millrace::ops
