// Runs of a block: its ops in order, each with checked inputs and prepared outputs.

#include <utility>

#include "executor/block_runner.h"
#include "executor/gpu/gpu_ops.h"
#include "framework/base/errors.h"
#include "framework/base/exceptions.h"
#include "framework/tensor/layout.h"

namespace millrace::executor {

Status BlockRunner::run_ops(const llvm::BitVector* skipped) {
  shapes_changed_.store(false, std::memory_order_relaxed);
  MILLRACE_RETURN_IF_ERROR(overlap_ == nullptr ? run_in_order(0, compiled_ops_.size(), skipped)
                                               : run_with_overlap());
  const bool changed = shapes_changed_.load(std::memory_order_relaxed);
  return arena_is_used_ ? arena_.after_run(table_.data(), changed) : Ok();
}

Status BlockRunner::run_in_order(size_t first, size_t end, const llvm::BitVector* skipped) {
  Replays* const replays = replays_for(skipped);
  size_t i = first;
  // catches exceptions of all ops in one place, because this costs time for each op
  Status status = without_exceptions("in the op", [&] {
    return replays != nullptr ? run_recorded(i, end, *replays) : run_each(i, end, skipped);
  });
  return status.ok() ? status : place_error(compiled_ops_[i], std::move(status));
}

Status BlockRunner::run_each(size_t& i, size_t end, const llvm::BitVector* skipped) {
  for (; i < end; ++i) {
    CompiledOp& compiled = compiled_ops_[i];
    arena_.before_op(i);
    if (skipped == nullptr || !skipped->test(static_cast<unsigned>(i))) {
      if (observer_ != nullptr) observer_->before(compiled);
      MILLRACE_RETURN_IF_ERROR(locks_ == nullptr ? run_unguarded(compiled, device_)
                                                 : run_locked(compiled, device_));
      if (observer_ != nullptr) MILLRACE_RETURN_IF_ERROR(observer_->after(compiled, table_.data()));
    }
    MILLRACE_RETURN_IF_ERROR(arena_.after_op(i, table_.data()));
  }
  return Ok();
}

Status BlockRunner::run_recorded(size_t& i, size_t end, Replays& replays) {
  for (; i < end; ++i) {
    MILLRACE_ASSIGN_OR_RETURN(const size_t queued, replays.before(i, table_.data()));
    if (queued > 0) {
      i += queued - 1;
      continue;
    }
    arena_.before_op(i);
    Status status = run_op(compiled_ops_[i], device_);
    if (status.ok()) status = arena_.after_op(i, table_.data());
    if (status.ok()) status = replays.after(i, gpu_->was_steady(i));
    if (status.ok()) continue;
    const int64_t again = replays.failed(i);
    if (again < 0) return status;
    i = static_cast<size_t>(again) - 1;
  }
  replays.after_run(table_.data());
  return Ok();
}

// Null if the ops must run one by one.
Replays* BlockRunner::replays_for(const llvm::BitVector* skipped) const {
  const bool one_by_one = gpu_ == nullptr || skipped != nullptr || observer_ != nullptr ||
                          watches_memory_ || !arena_is_used_;
  return one_by_one ? nullptr : &gpu_->replays();
}

Status BlockRunner::place_error(const CompiledOp& compiled, Status status) const {
  if (status.location().op >= 0) return status;  // already set by an op of a sub-block
  Location place = compiled.op->location();
  place.slot = status.location().slot;
  place.slot_index = status.location().slot_index;
  place.var = status.location().var;
  // kernels that resize their outputs do not report which one failed
  if (status.code() == StatusCode::kResource && place.var.empty()) {
    std::string written;
    for (const llvm::StringRef name : compiled.op->output_names())
      written += (written.empty() ? "'" : ", '") + name.str() + "'";
    if (!written.empty()) status = std::move(status).with_note("the op writes " + written);
  }
  return std::move(status).at(std::move(place));
}

Status BlockRunner::run_op(CompiledOp& compiled, kernels::CpuDevice& device) {
  return without_exceptions("in the op", [&] {
    return locks_ == nullptr ? run_unguarded(compiled, device) : run_locked(compiled, device);
  });
}

Status BlockRunner::run_unguarded(CompiledOp& compiled, kernels::CpuDevice& device) {
  MILLRACE_RETURN_IF_ERROR(check_inputs(compiled, table_.data()));
  if (gpu_ != nullptr && !compiled.control) return run_gpu_op(compiled, device);
  if (gpu_ != nullptr && GpuOps::is_transfer(*compiled.op)) {
    return gpu_->run_transfer(compiled, table_, [&](Value* const* table) {
      ControlContext ctx{{table, compiled.inputs, compiled.outputs, device}, *scope_, *this};
      return (*compiled.control)(ctx);
    });
  }
  if (compiled.control) {
    MILLRACE_RETURN_IF_ERROR(prepare_control(compiled, device));
    ControlContext ctx{{table_.data(), compiled.inputs, compiled.outputs, device}, *scope_, *this};
    return (*compiled.control)(ctx);
  }
  MILLRACE_RETURN_IF_ERROR(make_inputs_plain(compiled, table_.data(), device));
  bool changed = false;
  MILLRACE_ASSIGN_OR_RETURN(
      const bool apart,
      prepare_outputs(compiled, table_.data(), changed, nullptr,
                      [this](int32_t index, Tensor& tensor) { arena_.forget(index, tensor); }));
  if (watches_memory_) fill_new_outputs(compiled, table_.data());
  if (changed) shapes_changed_.store(true, std::memory_order_relaxed);
  const kernels::KernelContext ctx(
      table_.data(), apart ? llvm::ArrayRef<int32_t>(compiled.inputs_apart) : compiled.inputs,
      compiled.outputs, device);
  MILLRACE_RETURN_IF_ERROR(compiled.kernel(ctx));
  if (apart) {
    for (const CompiledOp::Shared& shared : compiled.shared) table_[shared.spare]->clear();
  }
  // control ops pass on values of sub-blocks and do not support layouts
  return depth_ == 0 ? Ok() : make_outputs_plain(compiled, table_.data(), device);
}

Status BlockRunner::prepare_control(const CompiledOp& compiled, kernels::CpuDevice& device) {
  const llvm::StringRef type = compiled.op->type();
  const bool passes_on = type.startswith("while") || type.startswith("conditional_block") ||
                         type.startswith("recurrent");
  if (gpu_ == nullptr || !passes_on) return make_inputs_plain(compiled, table_.data(), device);
  for (const int32_t index : compiled.inputs) {
    auto* const tensor = index < 0 ? nullptr : table_[index]->get_if<Tensor>();
    // a private layout is that of the device
    if (tensor != nullptr && tensor->layout() != nullptr && !tensor->layout()->is_private())
      MILLRACE_RETURN_IF_ERROR(make_plain(*tensor));
  }
  return Ok();
}

Status BlockRunner::run_gpu_op(CompiledOp& compiled, kernels::CpuDevice& device) {
  bool changed = false;
  const auto index = static_cast<size_t>(&compiled - compiled_ops_.data());
  MILLRACE_RETURN_IF_ERROR(
      gpu_->run(index, compiled, table_, device, observer_ != nullptr, changed));
  if (changed) shapes_changed_.store(true, std::memory_order_relaxed);
  // control ops pass on values of sub-blocks and do not support other layouts
  if (depth_ == 0 || gpu_->placed(index).kernel) return Ok();
  return make_outputs_plain(compiled, table_.data(), device);
}

}  // namespace millrace::executor
