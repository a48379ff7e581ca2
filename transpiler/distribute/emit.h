#pragma once

#include <string>

#include <llvm/ADT/ArrayRef.h>

#include "framework/block.h"

/// Emits plain ops that several distribution modes use, with the attributes that the original
/// writes. The new op goes before `where`; null appends it.
namespace millrace::transpiler {

/// out = factor * x
Op& emit_scale(Block& block, Op* where, llvm::StringRef x, llvm::StringRef out, float factor,
               int32_t role);
/// out = x - y
Op& emit_sub(Block& block, Op* where, llvm::StringRef x, llvm::StringRef y, llvm::StringRef out,
             int32_t role);
/// out = x
Op& emit_assign(Block& block, Op* where, llvm::StringRef x, llvm::StringRef out, int32_t role);
/// out = sum of xs
Op& emit_sum(Block& block, Op* where, llvm::ArrayRef<std::string> xs, llvm::StringRef out,
             int32_t role);
/// out = xs concatenated along dim 0
Op& emit_concat(Block& block, Op* where, llvm::ArrayRef<std::string> xs, llvm::StringRef out,
                int32_t role);

}  // namespace millrace::transpiler
