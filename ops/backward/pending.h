#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "framework/program.h"
#include "ops/grad.h"

/// Parts of append_backward() that its files share.
namespace millrace::ops::backward {

using Names = std::set<std::string>;

/// True if the name is that of a gradient; partial ones included.
bool is_grad_name(llvm::StringRef name);

/// The block in attribute sub_block; -1 if there is none.
int32_t sub_block_of(const Op& op);

/// Names of vars that say stop_gradient.
Names stopped_names(const Block& block);

/// A gradient op on its way into a block.
struct PendingOp {
  GradOp op;
  /// Block with the gradients of the op's sub-block; null if it has none.
  Block* sub_block = nullptr;

  /// Calls fn(name) for every argument.
  template <typename Fn>
  void each_input(Fn fn) const {
    for (const auto& [slot, names] : op.inputs)
      for (const std::string& name : names) fn(name);
  }
  template <typename Fn>
  void each_output(Fn fn) const {
    for (const auto& [slot, names] : op.outputs)
      for (const std::string& name : names) fn(name);
  }
  [[nodiscard]] bool reads(const std::string& name) const;
};

/// How the ops of a block follow one another.
enum class Course {
  kOnce,   ///< from first to last
  kLoop,   ///< again and again: what a step leaves may be read by the next, by any op of it
  kSteps,  ///< again and again, handing states on: every op is on the path, as in the original
};

/// Ops of a block on the way from what is needed back to its inputs, in block order, and the names
/// that no gradient flows through; the same of sub-blocks by their index.
struct OpPath {
  std::vector<Op*> ops;
  Names no_grad;
  std::map<int32_t, OpPath> inner;
};

/// Walks back from the needed names. An op is on the path if one of its outputs is needed and its
/// type has a gradient rule; then its inputs are needed, unless they are in no_grad. Of an op with
/// a sub-block only those outputs count inside that are needed where it stands; in a loop, all that
/// any op of a step needs.
///
/// The original goes through the body of a loop twice; a value that takes more steps than one on
/// its way loses its gradient there. Here a body is gone through until nothing is added. Errors:
/// kInvalidProgram for an unknown op type, or a sub-block that is not there.
StatusOr<OpPath> find_op_path(const OpRegistry& registry, Block& block, Names needed,
                              const Names& no_grad, Course course);

/// Gives every writer of a gradient that has several of them a name of its own
/// ("<grad>@RENAME@block<B>@<n>"), and adds the sums before the first reader.
/// \param block  index of the forward block
/// \param given  gradients that hold something before the first op, to which all writers add
void sum_repeated_outputs(std::vector<PendingOp>& ops, int32_t block, const Names& given);

/// Removes ops that compute or read nothing but gradients which nobody needs, and fills gradients
/// that a kept op reads with zeros.
/// \param no_grad  names of forward vars
void remove_unneeded(std::vector<PendingOp>& ops, const Names& no_grad);

}  // namespace millrace::ops::backward
