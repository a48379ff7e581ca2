#include "ps/server/server_block.h"

namespace millrace::ps {

bool find_merge(const Block& block, int trainers, Merge& merge) {
  if (block.op_count() == 0) return false;
  const Op& sum = *block.ops().begin();
  const auto slots = sum.input("X");
  if (sum.type() != "sum" || slots.size() != static_cast<size_t>(trainers)) return false;
  merge = Merge{};
  for (const llvm::StringRef slot : slots) {
    const Var* const var = block.find_var_recursive(slot);
    if (var == nullptr || var->persistable()) return false;
    merge.slots.push_back(slot.str());
  }
  merge.out = sum.first_output("Out").str();
  const Op* const scale = block.next(sum);
  merge.averages = scale != nullptr && scale->type() == "scale" &&
                   scale->first_input("X") == merge.out && scale->first_output("Out") == merge.out;
  return true;
}

StatusOr<std::unique_ptr<ServerBlock>> ServerBlock::compile(const executor::Runtime& runtime,
                                                            const Block& block, Scope& scope,
                                                            const VarGuards& guards, int threads,
                                                            uint64_t seed) {
  std::unique_ptr<ServerBlock> made(new ServerBlock(block, scope, threads, seed));
  // depth 1: outputs of ops must be in row-major order, because they are read by name
  MILLRACE_ASSIGN_OR_RETURN(made->runner_,
                            executor::BlockRunner::compile(runtime, block, made->device_, 1));
  made->runner_->bind(made->scope_);
  made->needs_ = guards.needs(block.index());
  return made;
}

Status ServerBlock::run() {
  return runner_->run();
}

Status ServerBlock::run_first(size_t count) {
  llvm::BitVector skipped(static_cast<unsigned>(runner_->compiled_ops().size()));
  if (count < skipped.size()) skipped.set(static_cast<unsigned>(count), skipped.size());
  return runner_->run_without(skipped);
}

Status ServerBlock::run_after(size_t count) {
  llvm::BitVector skipped(static_cast<unsigned>(runner_->compiled_ops().size()));
  skipped.set(0, static_cast<unsigned>(std::min<size_t>(count, skipped.size())));
  return runner_->run_without(skipped);
}

}  // namespace millrace::ps
