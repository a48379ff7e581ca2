#include "executor/block_runner.h"

#include <fmt/format.h>

#include "framework/names.h"

namespace millrace::executor {
namespace {

bool is_required(const ops::OpDef& def, llvm::StringRef slot) {
  const ops::SlotDef* const declared = def.find_input(slot);
  return declared != nullptr &&
         (declared->arity == ops::Arity::kOne || declared->arity == ops::Arity::kMany) &&
         (declared->kinds & ops::kTensorLike) != 0 && (declared->kinds & ops::kTensorArray) == 0;
}

}  // namespace

StatusOr<std::unique_ptr<BlockRunner>> BlockRunner::compile(const Runtime& runtime,
                                                            const Block& block,
                                                            kernels::CpuDevice& device) {
  std::unique_ptr<BlockRunner> runner(new BlockRunner(runtime, block, device));
  runner->steps_.reserve(block.op_count());
  for (const Op& op : block.ops()) {
    if (Status status = runner->add_step(op); !status.ok())
      return std::move(status).at(op.location());
  }
  for (Step& step : runner->steps_) runner->find_shared(step);
  return runner;
}

int32_t BlockRunner::index_of(NameId name) {
  const auto [found, is_new] = indices_.try_emplace(name, static_cast<int32_t>(names_.size()));
  if (is_new) names_.push_back(name);
  return found->second;
}

Status BlockRunner::add_step(const Op& op) {
  Step step;
  step.op = &op;
  step.def = runtime_.ops->find(op.type());
  if (step.def == nullptr) {
    const std::string near = runtime_.ops->suggest(op.type());
    return Status(StatusCode::kUnimplemented, "unknown op type")
        .with_hint(near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  }
  const auto add_args = [&](llvm::ArrayRef<Slot> slots, llvm::SmallVectorImpl<int32_t>& to) {
    for (const Slot& slot : slots) {
      for (const Arg& arg : slot.args)
        to.push_back(op.name_of(arg.name) == names::kEmpty ? -1 : index_of(arg.name));
    }
  };
  add_args(op.inputs(), step.inputs);
  add_args(op.outputs(), step.outputs);
  uint16_t position = 0;
  for (const Slot& slot : op.inputs()) {
    const bool required = is_required(*step.def, op.name_of(slot.name));
    for (size_t k = 0; k < slot.args.size(); ++k, ++position) {
      if (required && step.inputs[position] >= 0) step.required.push_back(position);
    }
  }
  const kernels::KernelSetup setup(*step.def, op, device_);
  if (const ControlMaker control = runtime_.controls.find(op.type())) {
    MILLRACE_ASSIGN_OR_RETURN(step.control, control(setup, *this));
  } else if (const kernels::KernelMaker kernel = runtime_.kernels->find(op.type())) {
    MILLRACE_ASSIGN_OR_RETURN(step.kernel, kernel(setup));
  } else {
    return {StatusCode::kUnimplemented,
            fmt::format("op '{}' has no kernel for CPU", op.type().str())};
  }
  steps_.push_back(std::move(step));
  return Ok();
}

void BlockRunner::find_shared(Step& step) {
  if (step.control) return;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    for (size_t o = 0; o < step.outputs.size(); ++o) {
      if (step.inputs[i] < 0 || step.inputs[i] != step.outputs[o]) continue;
      spares_.push_back(std::make_unique<Value>());
      step.shared.push_back({static_cast<uint16_t>(i), static_cast<uint16_t>(o),
                             static_cast<int32_t>(names_.size() + spares_.size() - 1)});
    }
  }
}

void BlockRunner::bind(Scope& scope) {
  scope_ = &scope;
  table_.resize(names_.size() + spares_.size());
  for (size_t i = 0; i < names_.size(); ++i) {
    const llvm::StringRef name = block_.program().names().str(names_[i]);
    const Var* const var = block_.find_var(names_[i]);
    Value* value = nullptr;
    if (var == nullptr || var->persistable()) {
      value = scope.find(name);
      if (value == nullptr) value = &(var == nullptr ? scope : scope.root()).local(name);
    } else {
      value = &scope.local(name);
    }
    table_[i] = value;
  }
  for (size_t i = 0; i < spares_.size(); ++i) table_[names_.size() + i] = spares_[i].get();
}

Status BlockRunner::run() {
  shapes_changed_ = false;
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (observer_ != nullptr) observer_->before(steps_[i]);
    Status status = run_step(steps_[i]);
    if (status.ok() && observer_ != nullptr) status = observer_->after(steps_[i], table_.data());
    if (!status.ok()) return place_error(steps_[i], std::move(status));
    arena_.after_step(i, table_.data());
  }
  return arena_is_used_ ? arena_.after_run(table_.data(), shapes_changed_) : Ok();
}

Status BlockRunner::place_error(const Step& step, Status status) const {
  if (status.location().op >= 0) return status;  // an op of a sub-block
  Location place = step.op->location();
  place.slot = status.location().slot;
  place.slot_index = status.location().slot_index;
  place.var = status.location().var;
  return std::move(status).at(std::move(place));
}

void BlockRunner::plan_memory() {
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
  // what control ops and other blocks use has lives that the order of steps does not tell
  for (const Step& step : steps_) {
    if (!step.control) continue;
    exclude_args(step.op->inputs());
    exclude_args(step.op->outputs());
  }
  for (const Block& block : block_.program().blocks()) {
    if (&block == &block_) continue;
    for (const Op& op : block.ops()) {
      exclude_args(op.inputs());
      exclude_args(op.outputs());
    }
  }
  arena_ = Arena(steps_, std::move(temporary));
  arena_is_used_ = true;
}

void BlockRunner::observe(StepObserver* observer) {
  observer_ = observer;
  for (auto& [index, runner] : sub_blocks_) runner->observe(observer);
}

void BlockRunner::keep(llvm::StringRef name) {
  if (!arena_is_used_) return;
  const auto id = block_.program().names().find(name);
  const auto found = id ? indices_.find(*id) : indices_.end();
  if (found != indices_.end()) arena_.keep(found->second, table_.data());
}

Status BlockRunner::run_step(Step& step) {
  MILLRACE_RETURN_IF_ERROR(check_inputs(step, table_.data()));
  if (step.control) {
    ControlContext ctx{{table_.data(), step.inputs, step.outputs, device_}, *scope_, *this};
    return step.control(ctx);
  }
  MILLRACE_ASSIGN_OR_RETURN(const bool apart,
                            prepare_outputs(step, table_.data(), shapes_changed_));
  const kernels::KernelContext ctx(table_.data(),
                                   apart ? llvm::ArrayRef<int32_t>(step.inputs_apart) : step.inputs,
                                   step.outputs, device_);
  MILLRACE_RETURN_IF_ERROR(step.kernel(ctx));
  if (apart) {
    for (const Step::Shared& shared : step.shared) table_[shared.spare]->clear();
  }
  return Ok();
}

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
    MILLRACE_ASSIGN_OR_RETURN(
        runner, compile(runtime_, program.block(static_cast<size_t>(index)), device_));
    runner->observe(observer_);
  }
  return runner.get();
}

}  // namespace millrace::executor
