#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/program.h"
#include "ops/backward/pending.h"
#include "ops/registry.h"

namespace millrace::ops::backward {

/// Restores the loop counters for the gradients of another loss. Gradient ops count the counters of
/// loops back, so a second set of gradients would begin with counters at their initial values. This
/// function copies each such counter after the forward ops of the block and before the first
/// gradient op of earlier calls, and appends ops that restore it before the gradients of this call.
///
/// \param forward  the block whose gradients are computed
/// \param target   the block for the gradient ops, without ops of this call: block 0 itself or a
/// new one
void restore_counters(Block& forward, Block& target);

/// Integers and conditions that ops overwrite: a counter that starts again, ids of a second
/// look-up. Gradient ops of ops before the overwriting one need the earlier value. Counters that
/// `increment` changes in place are left alone where gradient ops count them back.
class Overwrites {
 public:
  explicit Overwrites(const OpRegistry& registry) : registry_(registry) {}

  /// Notes what a forward op overwrites.
  /// \param position     number of gradient ops made so far: those of the op and of later ops
  /// \param counts_back  gradient ops of the op leave counters as they were before it
  void note(Op& op, size_t position, bool counts_back);

  /// Copies the noted vars that gradient ops need, in front of the overwriting op. The gradient ops
  /// read the copy. If they count the var back, an op that restores it is inserted instead.
  /// \param ops  all gradient ops of the block, in order
  void keep_values(std::vector<PendingOp>& ops);

 private:
  struct Overwrite {
    Op* op;
    std::string name;
    size_t position;
  };
  bool is_counted(const Op& op, const std::string& name);
  bool is_needed(const Overwrite& noted, const Names& reread, const std::vector<PendingOp>& ops);
  // The executor begins the gradients of an iteration with the values that the iteration began
  // with. Returns the vars that gradient ops need as an op of the iteration has left them.
  Names reread_in_loop(const std::vector<PendingOp>& ops);

  const OpRegistry& registry_;
  std::vector<Overwrite> noted_;  ///< in the order of the gradient ops
  std::map<std::string, bool> counted_;
};

}  // namespace millrace::ops::backward
