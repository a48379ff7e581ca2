#pragma once

#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/backward/pending.h"

/// Vars that several ops write. A gradient op runs after all forward ops and reads vars by name, so
/// every value of a var needs a distinct name.
namespace millrace::ops::backward {

/// Rewrites the forward ops that a loss depends on, so that each value of a dense float var has its
/// own name. The last value keeps the name of the var. A loop works on a copy of the earlier value.
/// A branch that overwrites a var becomes two branches and a select_input, as the original's `cond`
/// builds them. A program without overwritten vars does not change. These vars are not split:
/// persistable vars, counters (`increment` in place, which gradients count back), and vars that
/// blocks without a scalar condition write.
///
/// The original does not split vars: its gradients of overwritten vars are wrong.
/// \param warnings  receives a warning for each op whose vars could not be split; null: no warnings
/// Cost: linear in ops and arguments, times the depth of blocks.
void split_versions(const OpRegistry& registry, Program& program, llvm::StringRef loss,
                    std::vector<Status>* warnings);

/// The names that an op reads and writes, including those of its sub-blocks that are not declared
/// there.
struct Touched {
  Names reads;
  Names writes;
};
Touched touched_by(const Op& op);

/// True unless op_role says that the op computes gradients, updates, exchanges or rates.
bool is_forward(const Op& op);

/// How an op with a sub-block changes vars of the enclosing blocks.
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

/// The op that runs a block as its sub-block; null for block 0 and if there is none.
const Op* owner_of(const Block& block);

/// True if the conditions of the branches, as far as they consist of `not`, `and` and `or`, show
/// that at most one branch of them is taken.
bool exclude_each_other(llvm::ArrayRef<const Op*> branches);

/// Names of the loss and of the vars from which forward ops compute it.
Names names_leading_to(const Program& program, llvm::StringRef loss);

bool is_dense_float(const Var& var);

/// Declares a var in the block with the spec of another one and a name that no block declares.
/// \returns the name
std::string declare_version(Block& block, llvm::StringRef like);

/// Replaces a name in the inputs of an op (and in its outputs if `writes`), also in its sub-blocks
/// unless they declare the name.
void rename_deep(Op& op, llvm::StringRef from, llvm::StringRef to, bool writes);

/// Inserts an assign `to = from` before an op, or at the end of the block if `where` is null.
void insert_assign(Block& block, Op* where, const std::string& from, const std::string& to);

}  // namespace millrace::ops::backward
