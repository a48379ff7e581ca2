#include "executor/block_runner.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include "executor/compiled_ops/memory_guard.h"
#include "executor/gpu/gpu_ops.h"
#include "executor/overlap/overlap.h"
#include "framework/base/errors.h"
#include "framework/names.h"
#include "kernels/cpu/layouts.h"
#include "kernels/value_kinds.h"
#include "ops/absent_gradients.h"
#include "ops/op_def.h"
#include "ops/unread_attrs.h"

namespace millrace::executor {
namespace {

bool is_required(const ops::OpDef& def, llvm::StringRef slot) {
  const ops::SlotDef* const declared = def.find_input(slot);
  return declared != nullptr &&
         (declared->arity == ops::Arity::kOne || declared->arity == ops::Arity::kMany) &&
         (declared->kinds & ops::kTensorLike) != 0 && (declared->kinds & ops::kTensorArray) == 0;
}

// True for a dense tensor in an optional slot. The program lists it because the op needs it:
// without a value the op would silently compute something else. Gradient ops list what their
// forward op had, and ops that talk to servers list tables that are there.
bool is_listed_tensor(const ops::OpDef& def, const Op& op, const Slot& slot, llvm::StringRef name) {
  const ops::SlotDef* const declared = def.find_input(op.name_of(slot.name));
  const Var* const var = op.block().find_var_recursive(name);
  return declared != nullptr && declared->arity == ops::Arity::kOptional &&
         (declared->kinds & ops::kTensorArray) == 0 && var != nullptr &&
         var->kind() == VarKind::kLodTensor && def.capability() == ops::Capability::kPure &&
         !op.type().endswith("_grad") && !op.writes(name);
}

// The slot of an argument and its position there, by its position among those of all slots.
std::pair<llvm::StringRef, size_t> slot_at(const Op& op, llvm::ArrayRef<Slot> slots,
                                           size_t position) {
  for (const Slot& slot : slots) {
    if (position < slot.args.size()) return {op.name_of(slot.name), position};
    position -= slot.args.size();
  }
  return {};
}

// False if the op declares that the output may be in the memory of the input. All other kernels may
// write an output while they read their inputs.
bool must_be_apart(const CompiledOp& compiled, size_t input, size_t output) {
  const Op& op = *compiled.op;
  const auto from = slot_at(op, op.inputs(), input);
  const auto to = slot_at(op, op.outputs(), output);
  return from.second != to.second ||
         llvm::none_of(compiled.def->inplace_pairs(), [&](const auto& pair) {
           return pair.first == from.first && pair.second == to.first;
         });
}

// Control ops that completely write their outputs.
bool writes_whole(const Op& op) {
  return op.type() == "distributed_lookup_table" || op.type() == "prefetch";
}

}  // namespace

BlockRunner::BlockRunner(const Runtime& runtime, const Block& block, kernels::CpuDevice& device)
    : runtime_(runtime),
      block_(block),
      device_(device),
      watches_memory_(device.library<MemoryWatch>().on) {}
BlockRunner::~BlockRunner() = default;

StatusOr<std::unique_ptr<BlockRunner>> BlockRunner::compile(const Runtime& runtime,
                                                            const Block& block,
                                                            kernels::CpuDevice& device, int depth,
                                                            llvm::ArrayRef<const Op*> order) {
  std::unique_ptr<BlockRunner> runner(new BlockRunner(runtime, block, device));
  runner->depth_ = depth;
  runner->compiled_ops_.reserve(block.op_count());
  std::vector<const Op*> as_they_stand;
  if (order.empty()) {
    for (const Op& op : block.ops()) as_they_stand.push_back(&op);
    order = as_they_stand;
  }
  for (const Op* const op : order) {
    if (Status status = runner->add_op(*op); !status.ok())
      return std::move(status).at(op->location());
  }
  for (CompiledOp& compiled : runner->compiled_ops_) runner->find_shared(compiled);
  runner->find_begun();
  if (const std::shared_ptr<gpu::Context>& context = gpu::context_of(device))
    runner->gpu_ = std::make_unique<GpuOps>(context, runner->compiled_ops_, device, *runtime.ops,
                                            ControlNumbers(block.program()));
  return runner;
}

int32_t BlockRunner::index_of(NameId name) {
  const auto [found, is_new] = indices_.try_emplace(name, static_cast<int32_t>(names_.size()));
  if (is_new) names_.push_back(name);
  return found->second;
}

void BlockRunner::add_name(llvm::StringRef name) {
  if (const auto id = block_.program().names().find(name)) index_of(*id);
}

Status BlockRunner::add_op(const Op& op) {
  CompiledOp compiled;
  compiled.op = &op;
  compiled.def = runtime_.ops->find(op.type());
  if (compiled.def == nullptr) {
    const std::string near = runtime_.ops->suggest(op.type());
    return Status(StatusCode::kUnimplemented, "unknown op type")
        .with_hint(near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  }
  MILLRACE_RETURN_IF_ERROR(ops::check_attrs_are_read(*compiled.def, op));
  for (const Slot& slot : op.inputs()) {
    for (const Arg& arg : slot.args) {
      const bool absent = op.name_of(arg.name) == names::kEmpty ||
                          ops::is_absent_gradient(op, op.name_of(slot.name), op.name_of(arg.name));
      compiled.inputs.push_back(absent ? -1 : index_of(arg.name));
    }
  }
  for (const Slot& slot : op.outputs()) {
    for (const Arg& arg : slot.args)
      compiled.outputs.push_back(op.name_of(arg.name) == names::kEmpty ? -1 : index_of(arg.name));
  }
  // positions in an op are 16 bits wide
  if (constexpr size_t kMost = UINT16_MAX;
      std::max(compiled.inputs.size(), compiled.outputs.size()) > kMost) {
    return {StatusCode::kUnimplemented,
            fmt::format("an op with {} inputs and {} outputs, expected at most {} of each",
                        compiled.inputs.size(), compiled.outputs.size(), kMost)};
  }
  if (runtime_.controls.find(op.type()) == nullptr)
    MILLRACE_RETURN_IF_ERROR(check_written_once(compiled));
  const auto inputs = static_cast<uint16_t>(compiled.inputs.size());
  llvm::SmallVector<uint16_t, 8> needed;
  llvm::SmallVector<uint16_t, 8> incoming;
  llvm::SmallVector<uint16_t, 8> plain;
  llvm::SmallVector<uint16_t, 8> shared_layout;
  uint16_t position = 0;
  for (const Slot& slot : op.inputs()) {
    const bool required = is_required(*compiled.def, op.name_of(slot.name));
    const kernels::AcceptedKinds kinds = kernels::accepted_kinds(op.type(), op.name_of(slot.name));
    for (size_t k = 0; k < slot.args.size(); ++k, ++position) {
      if (compiled.inputs[position] < 0) continue;
      if (required || is_listed_tensor(*compiled.def, op, slot, op.name_of(slot.args[k].name)))
        needed.push_back(position);
      if (kinds.rows || kinds.arrays || kinds.others) compiled.kinds.push_back({position, kinds});
      if (!kinds.others && op.type().endswith("_grad") && op.name_of(slot.name).endswith("@GRAD"))
        incoming.push_back(position);
    }
  }
  const kernels::KernelSetup setup(*compiled.def, op, device_, *runtime_.ops);
  if (const ControlMaker* const control = runtime_.controls.find(op.type())) {
    MILLRACE_ASSIGN_OR_RETURN(Control made, (*control)(setup, *this));
    compiled.control = std::make_unique<Control>(std::move(made));
  } else if (const kernels::KernelMaker kernel = runtime_.kernels->find(op.type())) {
    MILLRACE_ASSIGN_OR_RETURN(compiled.kernel, kernel(setup));
  } else if (const auto custom = runtime_.custom_kernels.find(op.type());
             custom != runtime_.custom_kernels.end()) {
    MILLRACE_ASSIGN_OR_RETURN(compiled.kernel, custom->getValue()(setup));
  } else {
    Status status = Unimplemented("op '{}' has no kernel for CPU", op.type().str());
    if (compiled.def->capability() != ops::Capability::kNetwork) return status;
    return std::move(status).with_hint("only processes of a job run it: --role in the tools");
  }
  for (position = 0; position < inputs; ++position) {
    if (compiled.inputs[position] < 0) continue;
    if (!llvm::is_contained(setup.accepted_layouts(), position)) {
      plain.push_back(position);
    } else if (compiled.control == nullptr && !kernels::keeps_private_layouts(op.type())) {
      shared_layout.push_back(position);
    }
  }
  compiled.lists = InputLists(needed, incoming, plain, shared_layout);
  compiled_ops_.push_back(std::move(compiled));
  return Ok();
}

void BlockRunner::find_shared(CompiledOp& compiled) {
  if (compiled.control) return;
  for (size_t i = 0; i < compiled.inputs.size(); ++i) {
    for (size_t o = 0; o < compiled.outputs.size(); ++o) {
      if (compiled.inputs[i] < 0 || compiled.inputs[i] != compiled.outputs[o]) continue;
      spares_.push_back(std::make_unique<Value>());
      compiled.shared.push_back({static_cast<uint16_t>(i), static_cast<uint16_t>(o),
                                 static_cast<int32_t>(names_.size() + spares_.size() - 1),
                                 must_be_apart(compiled, i, o)});
    }
  }
}

// A var of the block begins in the op that mentions it first, if that op only writes it. Arrays
// are excluded because several ops write them.
void BlockRunner::find_begun() {
  llvm::BitVector seen(static_cast<unsigned>(names_.size()));
  const auto see = [&](llvm::ArrayRef<int32_t> args) {
    for (const int32_t index : args) {
      if (index >= 0) seen.set(static_cast<unsigned>(index));
    }
  };
  for (CompiledOp& compiled : compiled_ops_) {
    see(compiled.inputs);
    for (const int32_t index : compiled.outputs) {
      if (index < 0 || seen.test(static_cast<unsigned>(index))) continue;
      const Var* const var = block_.find_var(names_[static_cast<size_t>(index)]);
      if (var != nullptr && !var->persistable() && var->kind() != VarKind::kLodTensorArray)
        compiled.begun.push_back(index);
    }
    see(compiled.outputs);
  }
}

// Creates the value of a name that no scope has, in the scope of the block that declares it,
// searching outwards from this block; in this scope if no block declares it.
Value& BlockRunner::make_value(Scope& scope, llvm::StringRef name) const {
  Scope* place = &scope;
  for (const Block* block = &block_; block != nullptr && place != nullptr;) {
    if (const Var* const var = block->find_var(name))
      return (var->persistable() ? scope.root() : *place).local(name);
    const int32_t parent = block->parent();
    if (parent < 0 || parent >= block->index()) break;
    block = &block_.program().block(static_cast<size_t>(parent));
    place = place->parent();
  }
  return scope.local(name);
}

// Table entries that an op with a kernel writes before any op reads them.
llvm::BitVector BlockRunner::written_first() const {
  llvm::BitVector seen(static_cast<unsigned>(names_.size()));
  llvm::BitVector written(seen.size());
  const auto visit = [&](llvm::ArrayRef<int32_t> args, bool writes) {
    for (const int32_t index : args) {
      if (index < 0 || seen.test(static_cast<unsigned>(index))) continue;
      seen.set(static_cast<unsigned>(index));
      if (writes) written.set(static_cast<unsigned>(index));
    }
  };
  for (const CompiledOp& compiled : compiled_ops_) {
    visit(compiled.inputs, false);
    visit(compiled.outputs, !compiled.control || writes_whole(*compiled.op));
  }
  return written;
}

// Kernels completely write the values they are first to write. Arrays grow, so even an array that
// is written first must start empty; a var without a declaration may be an array.
bool BlockRunner::is_stale(const Var* var, bool is_written_first) const {
  return watches_memory_ || !is_written_first || var == nullptr ||
         var->kind() == VarKind::kLodTensorArray;
}

BlockRunner::Binding BlockRunner::binding(Scope& scope) const {
  Binding result;
  result.scope = &scope;
  result.table.resize(names_.size() + spares_.size());
  const llvm::BitVector written = written_first();
  for (size_t i = 0; i < names_.size(); ++i) {
    const llvm::StringRef name = block_.program().names().str(names_[i]);
    const Var* const var = block_.find_var(names_[i]);
    const bool is_local = var != nullptr && !var->persistable();
    Value* value = is_local ? &scope.local(name) : scope.find(name);
    if (value == nullptr) value = &make_value(scope, name);
    result.table[i] = value;
    // a value of this scope without a declaration also belongs to it
    const bool is_own = is_local || (var == nullptr && scope.find_local(name) == value);
    if (is_own && is_stale(var, written.test(static_cast<unsigned>(i))))
      result.stale.push_back(static_cast<int32_t>(i));
  }
  for (size_t i = 0; i < spares_.size(); ++i) result.table[names_.size() + i] = spares_[i].get();
  return result;
}

void BlockRunner::Binding::forget() const {
  for (const int32_t index : stale) {
    Value& value = *table[static_cast<size_t>(index)];
    if (!value.holds<StepScopes>()) value.clear();
  }
}

void BlockRunner::forget_last_run(Lasts lasts) {
  for (const int32_t index : stale_) {
    Value& value = *table_[static_cast<size_t>(index)];
    if (!arena_.contains(index) && !value.holds<std::monostate>() && !(lasts && lasts(value)))
      value.clear();
  }
  arena_.begin_run(table_.data());
}

void BlockRunner::bind(Scope& scope) {
  Binding result = binding(scope);
  scope_ = result.scope;
  table_ = std::move(result.table);
  stale_ = std::move(result.stale);
}

Status BlockRunner::run(Binding& binding) {
  std::swap(scope_, binding.scope);
  table_.swap(binding.table);
  Status status = run();
  std::swap(scope_, binding.scope);
  table_.swap(binding.table);
  return status;
}

Status BlockRunner::run() {
  return run_ops(nullptr);
}

Status BlockRunner::run_without(const llvm::BitVector& skipped) {
  return run_ops(&skipped);
}

void BlockRunner::plan_memory(bool in_place) {
  llvm::BitVector temporary(static_cast<unsigned>(names_.size()));
  for (const Var& var : block_.vars()) {
    const auto found = indices_.find(var.id());
    if (found == indices_.end() || var.persistable() || var.kind() != VarKind::kLodTensor) continue;
    temporary.set(static_cast<unsigned>(found->second));
  }
  const auto exclude = [&](NameId name) {
    const auto found = indices_.find(name);
    if (found != indices_.end()) temporary.reset(static_cast<unsigned>(found->second));
  };
  const auto exclude_args = [&](llvm::ArrayRef<Slot> slots) {
    for (const Slot& slot : slots) {
      for (const Arg& arg : slot.args) exclude(arg.name);
    }
  };
  // for values that control ops or other blocks use, the order of ops does not give the lifetime
  for (const CompiledOp& compiled : compiled_ops_) {
    if (!compiled.control) continue;
    exclude_args(compiled.op->inputs());
    exclude_args(compiled.op->outputs());
  }
  for (const Block& block : block_.program().blocks()) {
    if (&block == &block_) continue;
    for (const Op& op : block.ops()) {
      exclude_args(op.inputs());
      exclude_args(op.outputs());
    }
  }
  arena_ = Arena(compiled_ops_, std::move(temporary), in_place);
  if (watches_memory_) arena_.watch();
  if (gpu_ != nullptr) arena_.use(gpu_->context().memory().shared_from_this());
  arena_is_used_ = true;
}

void BlockRunner::observe(OpObserver* observer) {
  observer_ = observer;
  for (auto& [index, runner] : sub_blocks_) runner->observe(observer);
}

void BlockRunner::keep(llvm::StringRef name) {
  if (!arena_is_used_) return;
  const auto id = block_.program().names().find(name);
  const auto found = id ? indices_.find(*id) : indices_.end();
  if (found != indices_.end()) arena_.keep(found->second, table_.data());
}

// An exception would leave lanes of other threads waiting, and would not say which op it was.
Value* BlockRunner::find(llvm::StringRef name) const {
  const auto id = block_.program().names().find(name);
  if (!id) return nullptr;
  const auto found = indices_.find(*id);
  return found == indices_.end() ? nullptr : table_[static_cast<size_t>(found->second)];
}

StatusOr<BlockRunner*> BlockRunner::sub_block(int32_t index) {
  std::unique_ptr<BlockRunner>& runner = sub_blocks_[index];
  if (runner == nullptr) {
    const Program& program = block_.program();
    if (index <= 0 || static_cast<size_t>(index) >= program.block_count()) {
      return Status(StatusCode::kInvalidProgram,
                    fmt::format("there is no sub-block {}: the program has {} blocks", index,
                                program.block_count()));
    }
    constexpr int kDeepest = 64;
    if (depth_ >= kDeepest) {
      return Status(StatusCode::kInvalidProgram,
                    fmt::format("sub-blocks nest deeper than {}", kDeepest));
    }
    MILLRACE_ASSIGN_OR_RETURN(
        runner, compile(runtime_, program.block(static_cast<size_t>(index)), device_, depth_ + 1));
    runner->observe(observer_);
  }
  return runner.get();
}

}  // namespace millrace::executor
