#pragma once

#include <optional>
#include <string>

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "ops/registry.h"
#include "transpiler/fusion/inner_vars.h"

namespace millrace::transpiler {

/// Ops that are together an attention over heads: Q, K and V [batch, rows, heads * width] are cut
/// into heads (reshape2, transpose2), Q is scaled, softmax of the products with K plus a mask
/// weighs V, and the heads are joined again. With the ops of its gradient, if the program has them.
struct AttentionPattern {
  llvm::StringRef q;
  llvm::StringRef k;
  llvm::StringRef v;
  llvm::StringRef mask;  ///< empty if there is none
  llvm::StringRef probs;
  llvm::StringRef out;
  int32_t heads = 1;
  float scale = 1.0F;
  llvm::SmallVector<Op*, 16> forward;  ///< the last one writes out

  llvm::StringRef dout;  ///< empty if there is no gradient, as are the next three
  llvm::StringRef dq;
  llvm::StringRef dk;
  llvm::StringRef dv;
  llvm::SmallVector<Op*, 16> backward;  ///< the first one reads dout
};

/// The attention around a softmax op; nullopt if it is none, or if somebody else uses what lies
/// between.
std::optional<AttentionPattern> find_attention(Op& softmax, const InnerVars& inner,
                                               const ops::OpRegistry& registry);

}  // namespace millrace::transpiler
