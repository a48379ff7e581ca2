#pragma once

#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/backward/pending.h"

/// Vars that several ops write. A gradient op runs after all forward ops and reads vars by name, so
/// it needs every value of a var under a name of its own.
namespace millrace::ops::backward {

/// Rewrites the forward ops on the way to a loss so that each value of a dense float var has its
/// own name; the last one keeps the name of the var. A loop gets a copy of what its var held
/// before, and an overwriting branch becomes two branches and a choice, as the original's `cond`
/// makes them. A program without overwritten vars stays as it is. What cannot be split keeps its
/// names: persistable vars, counters (`increment` in place, which gradients count back), and vars
/// that blocks without a scalar condition write.
///
/// The original does not do it: its gradients of overwritten vars are wrong.
/// \param warnings  gets the ops whose vars could not be split; null: nobody
/// Cost: linear in ops and arguments, times the depth of blocks.
void split_versions(Program& program, llvm::StringRef loss, std::vector<Status>* warnings);

/// The names that ops of a block mention, with those of their sub-blocks that are not declared
/// there.
struct Touched {
  Names reads;
  Names writes;
};
Touched touched_by(const Op& op);

/// What an op with a sub-block does to vars of the blocks around it.
enum class BlockKind {
  kNone,       ///< no sub-block
  kLoop,       ///< while
  kBranch,     ///< conditional_block with one bool
  kRecurrent,  ///< writes its outputs only
  kOther,
};
BlockKind block_kind(const Op& op);
/// The sub-block of an op that has one.
const Block& steps_of(const Op& op);

/// True if at most one of the branches of a block is taken, as their conditions are made of `not`
/// and `and`.
bool exclude_each_other(llvm::ArrayRef<const Op*> branches);

/// Names that a loss is computed from, by forward ops.
Names names_behind(const Program& program, llvm::StringRef loss);

bool is_dense_float(const Var& var);

/// Warns of gradient ops of an op that read a value which a later op of its block has overwritten:
/// gradient ops run when all forward ops have.
void note_overwritten(const Op& op, const std::vector<GradOp>& made, std::vector<Status>& warnings);

/// A new var of the block, like another one, under a name that no block knows.
std::string declare_version(Block& block, llvm::StringRef like);

/// Replaces a name that an op reads (and, if wanted, writes), also in its sub-blocks where it is
/// not declared.
void rename_deep(Op& op, llvm::StringRef from, llvm::StringRef to, bool writes);

/// to = from, before an op; at the end of the block for null.
void insert_assign(Block& block, Op* where, const std::string& from, const std::string& to);

}  // namespace millrace::ops::backward
