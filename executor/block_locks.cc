#include <algorithm>

#include <fmt/format.h>

#include "executor/block_runner.h"
#include "executor/var_locks.h"
#include "framework/base/errors.h"

// The part of BlockRunner that shares variables with other threads.
namespace millrace::executor {
namespace block_locks {

using Uses = llvm::SmallVector<VarUse, 2>;

void add_use(const VarLocks& locks, const Value* value, bool changes, Uses& uses) {
  std::shared_mutex* const lock = locks.find(value);
  if (lock == nullptr) return;
  for (VarUse& use : uses) {
    if (use.value != value) continue;
    use.changes = use.changes || changes;
    return;
  }
  uses.push_back({lock, value, changes});
}

// The shared variables of an op. A kernel may bring an input that it accepts in any layout to
// another one, and ops without a kernel may do anything.
Uses uses_of(const CompiledOp& compiled, Value* const* table, const VarLocks& locks) {
  Uses uses;
  const InputLists::Positions plain = compiled.lists.plain();
  for (size_t i = 0; i < compiled.inputs.size(); ++i) {
    const bool only_read =
        compiled.control == nullptr && std::find(plain.begin(), plain.end(), i) != plain.end();
    if (compiled.inputs[i] >= 0) add_use(locks, table[compiled.inputs[i]], !only_read, uses);
  }
  for (const int32_t index : compiled.outputs)
    if (index >= 0) add_use(locks, table[index], /*changes=*/true, uses);
  std::sort(uses.begin(), uses.end(),
            [](const VarUse& a, const VarUse& b) { return a.lock < b.lock; });
  return uses;
}

// An output in the memory of a shared variable would be read later without its lock.
Status check_apart(const CompiledOp& compiled, Value* const* table, const VarLocks& locks,
                   const Uses& uses) {
  for (const int32_t index : compiled.outputs) {
    if (index < 0 || locks.find(table[index]) != nullptr) continue;
    for (const VarUse& use : uses) {
      if (have_common_memory(*table[index], *use.value))
        return Unimplemented(
            "an output shares memory with a variable that several threads use at the same time");
    }
  }
  return Ok();
}

}  // namespace block_locks

void BlockRunner::share_vars(const VarLocks& locks) {
  locks_ = &locks;
  uses_.clear();
  for (const CompiledOp& compiled : compiled_ops_)
    uses_.push_back(block_locks::uses_of(compiled, table_.data(), locks));
}

Status BlockRunner::run_locked(CompiledOp& compiled, kernels::CpuDevice& device) {
  const auto& uses = uses_[static_cast<size_t>(&compiled - compiled_ops_.data())];
  const HeldVars held(uses);
  MILLRACE_RETURN_IF_ERROR(run_unguarded(compiled, device));
  return uses.empty() ? Ok() : block_locks::check_apart(compiled, table_.data(), *locks_, uses);
}

}  // namespace millrace::executor
