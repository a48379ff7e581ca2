#include "jobs/run/collective_ops.h"

#include <algorithm>

#include <llvm/ADT/STLExtras.h>

#include "executor/collective/rings.h"

namespace millrace::jobs {
namespace {

bool has_op(const Program& program, llvm::function_ref<bool(llvm::StringRef)> is_it) {
  return std::any_of(program.blocks().begin(), program.blocks().end(), [&](const Block& block) {
    return std::any_of(block.ops().begin(), block.ops().end(),
                       [&](const Op& op) { return is_it(op.type()); });
  });
}

}  // namespace

bool has_collective_ops(const Program& program) {
  return has_op(program, executor::exchanges_with_ranks);
}

const Op* find_group_ids(const Program& startup) {
  for (const Op& op : startup.root().ops()) {
    if (op.type() == "gen_nccl_id") return &op;
  }
  return nullptr;
}

}  // namespace millrace::jobs
