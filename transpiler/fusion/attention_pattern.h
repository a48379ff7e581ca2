#pragma once

#include <optional>
#include <string>

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "ops/registry.h"
#include "transpiler/fusion/inner_vars.h"

namespace millrace::transpiler {

/// Ops that together compute attention over heads: Q, K and V [batch, rows, heads * width] are
/// split into heads (reshape2, transpose2), Q is scaled, the softmax of Q times K plus a mask
/// weighs V, and the heads are joined. Includes the ops of the gradient if the program has them.
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

  llvm::StringRef dout;  ///< this and the next three: empty if there is no gradient
  llvm::StringRef dq;
  llvm::StringRef dk;
  llvm::StringRef dv;
  llvm::SmallVector<Op*, 16> backward;  ///< the first one reads dout
};

/// Finds the attention around a softmax op; nullopt if the pattern does not match, or if another op
/// reads one of its inner values.
std::optional<AttentionPattern> find_attention(Op& softmax, const InnerVars& inner,
                                               const ops::OpRegistry& registry);

}  // namespace millrace::transpiler
