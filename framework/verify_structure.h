#pragma once

#include <cstdint>
#include <optional>

#include <llvm/ADT/ArrayRef.h>

#include "framework/finding.h"
#include "framework/program.h"

namespace millrace {

/// Limits that a program must keep before its ops are examined. All are inclusive.
struct StructureLimits {
  /// Largest declared dense tensor, in bytes; unknown dims count as 1. Sparse tables must only have
  /// a product that fits 64 bits, because they hold only some of their rows.
  int64_t max_tensor_bytes = int64_t{1} << 40;
  int32_t max_rank = 9;
  int32_t max_block_depth = 256;  ///< nested blocks, block 0 not counted
  int64_t max_name_bytes = 4096;
};

/// Which checks are possible next.
struct StructureFacts {
  /// False if indices or parents are wrong, so that the blocks do not form a tree: nothing may then
  /// follow parent links.
  bool is_tree = true;
  /// False if a declaration has impossible dims or numbers: shape inference must not run on it.
  bool shapes_are_sane = true;
};

/// Bytes of a dense tensor, with unknown dims counted as 1; nullopt if a dim is below -1 or the
/// product does not fit 64 bits. A dim of 0 makes the tensor empty, but the other dims must still
/// fit.
std::optional<int64_t> tensor_bytes(DType dtype, llvm::ArrayRef<int64_t> dims);

/// Checks the rules of a program that need no op schema: block tree, declarations, names, version.
///
/// A dim below -1 is an error, except in a var that an op computes: the original multiplies dims
/// even if one of them is -1, and only shape inference can tell whether the product is unknown.
///
/// Traversals are iterative; cost is linear in the size of the program. Appends every fault to
/// findings. Source: design/reliability.md section 6, rules 1, 2, 4 and 7.
StructureFacts verify_structure(const Program& program, const StructureLimits& limits,
                                FindingList& findings);

}  // namespace millrace
