#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "framework/program.h"
#include "ops/grad.h"

/// Declarations that the files of append_backward() share.
namespace millrace::ops::backward {

using Names = std::set<std::string>;

/// True if the name is that of a gradient, or of a term of one.
bool is_grad_name(llvm::StringRef name);

/// The block in attribute sub_block; -1 if there is none.
int32_t sub_block_of(const Op& op);

/// Names of the block's vars with stop_gradient set.
Names stopped_names(const Block& block);

/// A gradient op that is not yet in a block.
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

/// How often the ops of a block run.
enum class Course {
  kOnce,   ///< once
  kLoop,   ///< repeatedly: any op may read what the previous iteration wrote
  kSteps,  ///< repeatedly, passing states on: every op is on the path, as in the original
};

/// The ops of a block between the needed vars and what they are computed from, in block order; the
/// names that no gradient flows through; and the same for sub-blocks, by block index.
struct OpPath {
  std::vector<Op*> ops;
  Names no_grad;
  std::map<int32_t, OpPath> inner;
};

/// Walks back from the needed names. An op is on the path if one of its outputs is needed and its
/// type has a gradient rule; then its inputs are needed, too, unless they are in no_grad. The walk
/// through a sub-block starts from the outputs of its op that are needed in the outer block; in a
/// loop, also from everything that any op of an iteration needs.
///
/// The original walks through the body of a loop twice, so a value that takes more than one
/// iteration to reach an output loses its gradient. Here the walk is repeated until it adds
/// nothing.
/// Errors: kInvalidProgram for an unknown op type, or for a sub-block that does not exist.
StatusOr<OpPath> find_op_path(const OpRegistry& registry, Block& block, Names needed,
                              const Names& no_grad, Course course);

/// A var that an op with a sub-block lists twice in a slot has one gradient in the sub-block: it is
/// handed out once, and the other place becomes @EMPTY@. Initial states differ inside.
void hand_out_once(GradOp& grad);

/// Gives each writer of a gradient with several writers a distinct output name
/// ("<grad>@RENAME@block<B>@<n>"), and inserts the sums before the first reader.
/// \param block  index of the forward block
/// \param given  gradients that have a value before the first op, to which all writers add
void sum_repeated_outputs(std::vector<PendingOp>& ops, int32_t block, const Names& given);

/// Removes ops that only compute or only read gradients that are not needed. Inserts ops that fill
/// such a gradient with zeros if a remaining op reads it.
/// \param no_grad  names of forward vars
void remove_unneeded(std::vector<PendingOp>& ops, const Names& no_grad);

}  // namespace millrace::ops::backward
